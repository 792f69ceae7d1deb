#ifndef ANNULUS_SERVER_HTTP_ANSWER_FORM_H_
#define ANNULUS_SERVER_HTTP_ANSWER_FORM_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api.h"
#include "server/generation/generation_run.h"
#include "server/http/attached_documents.h"
#include "server/http/http_errors.h"
#include "server/work/call_memory.h"

namespace annulus::server {

// What an answer tells beside its text.
struct AnswerFacts {
  std::string request_id;
  std::string model;
  int64_t created = 0;  // seconds since 1970
  Usage usage = {};     // so far, of all choices
};

// How one API answers a generation. Not thread-safe.
class AnswerForm {
 public:
  virtual ~AnswerForm() = default;

  // A form that begins anew, for the answer to the same request; null if this API has no such
  // thing. Made before the answer begins, after SetDocuments.
  virtual std::unique_ptr<AnswerForm> Again() const { return nullptr; }

  // Whether the answer is a stream of events (text/event-stream), or one JSON object.
  virtual bool streams() const = 0;

  // The events of a stream, each with the empty line that ends it.
  virtual std::string StreamDelta(const AnswerFacts& facts, const Delta& delta) = 0;
  virtual std::string StreamEnd(const AnswerFacts& facts, const Completion& completion) = 0;
  virtual std::string StreamError(const HttpError& error) = 0;
  // What a heartbeat of a stream has beside its comment; empty: nothing.
  virtual std::string StreamBeat() const { return ""; }

  // Whether Gather gets all parts of the answer: of a stream, each before StreamDelta.
  virtual bool gathers() const { return !streams(); }
  // Gathers a part of the answer for its end.
  virtual void Gather(const Delta& delta) = 0;
  // Upper bound of the bytes that Gather takes for a delta's evidence.
  virtual size_t CitationBytes(const Delta& /*delta*/) const { return 0; }
  // Bytes that are gathered.
  virtual size_t gathered_bytes() const = 0;
  virtual std::string Whole(const AnswerFacts& facts, const Completion& completion) = 0;

  // For forms whose requests may ask for several choices (AskedGeneration::choices).
  // The calls that follow are about this choice.
  virtual void UseChoice(int /*choice*/) {}
  // A choice has ended that is not the last to end. Returns the events of a stream.
  virtual std::string ChoiceEnd(const AnswerFacts& /*facts*/, const Completion& /*completion*/) {
    return "";
  }

  // Whether the answer begins with the prompt. If so, SetEcho must be called before all else.
  virtual bool echoes() const { return false; }
  // The prompt, and what its first token, of which no log probability will come, is by itself.
  virtual void SetEcho(const std::string& /*prompt*/, const std::string& /*first_token*/) {}

  // The documents of the prompt, for forms whose answers cite them; before the answer begins.
  virtual void SetDocuments(std::vector<PromptedDocument> /*documents*/) {}
  // Heap bytes of what this keeps of the request, and the request's evidence of the same.
  virtual size_t kept_bytes() const { return 0; }

  // Replaces the name of a GenerationSpec field in an error by the one of the request.
  virtual absl::Status PlaceField(absl::Status status) const = 0;
};

// A request that was read, and the form of its answer.
struct FormRequest {
  AskedGeneration asked;
  std::unique_ptr<AnswerForm> answer;
  std::vector<AttachedDocument> documents = {};  // not yet in `asked`
  std::vector<std::string> headers = {};         // of the answer, each "Name: value"
  // For how long the keys and values of the documents are to stay after the answer; absent: as long
  // as there is room.
  std::optional<std::chrono::milliseconds> keep_for = std::nullopt;
};
// Reads the body of a request. Runs in the pool. Errors name the fields of the body.
using FormReader = absl::StatusOr<FormRequest> (*)(const std::deque<std::string>& body,
                                                   CallMemory& memory, const CancelFlag& cancel);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_ANSWER_FORM_H_
