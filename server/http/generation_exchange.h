#ifndef ANNULUS_SERVER_HTTP_GENERATION_EXCHANGE_H_
#define ANNULUS_SERVER_HTTP_GENERATION_EXCHANGE_H_

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/generation/bounded_sink.h"
#include "server/generation/generation_call.h"
#include "server/http/answer_form.h"
#include "server/http/http_exchange.h"
#include "server/http/reply_terms.h"

namespace annulus::server {

// One generation over HTTP, as a stream of server-sent events or as one JSON object.
//
// A refusal comes before the status line. Once the request is queued and nothing else is written,
// each heartbeat writes something, so that clients do not give up during a long prompt: in streams
// a comment with the progress, else a line feed before the JSON. A failure after the status line is
// an error event in a stream; a JSON answer breaks off without its last chunk, so that no client
// takes it for an answer, and the client's next try is told the failure.
//
// A client that goes away ends the work, unless it sent an Idempotency-Key: see Lasting.
//
// While a write waits for a slow reader, events gather in the sink, and only there.
class GenerationExchange final : public HttpExchange,
                                 public SinkReader,
                                 public std::enable_shared_from_this<GenerationExchange> {
 public:
  // What the exchange takes of the request.
  struct Asked {
    FormReader reader = nullptr;
    ReplyTerms terms = {};
    std::string idempotency_key;  // empty: none
    bool repeats = false;         // an SDK's retry
    // Instead of reading a body: replays the stream of this request, from an event on.
    struct Replay {
      std::string request_id;
      uint64_t from;  // counted from 0
    };
    std::optional<Replay> replay = std::nullopt;
    bool is_1_1 = true;
  };

  // `call` is admitted.
  GenerationExchange(ServiceContext& context, CallContext call, Asked asked,
                     std::shared_ptr<HttpReply> reply);

  std::shared_ptr<MemoryBudget> body_share() const override { return asked_.terms.body_share; }
  void Start(BodyBytes body) override;
  void Refuse(const absl::Status& status) override;
  void OnWritten() override;
  void OnBeat() override;
  void OnGone() override;
  void OnOver() override;

  void OnReady() override { Advance(); }

 private:
  struct FormNote;

  absl::StatusOr<AskedGeneration> Read(const std::deque<std::string>& body, CallMemory& memory,
                                       const CancelFlag& cancel);
  absl::StatusOr<AskedGeneration> ReadReplay();
  // Tells a form that begins its answer with the prompt what that is.
  absl::Status AddEcho(const v1::GenerationSpec& spec, AnswerForm& form, CallMemory& memory,
                       const CancelFlag& cancel);
  GenerationCall::Decoder DecoderOf(std::deque<std::string> body);
  void Advance();
  // These require mutex_ to be held.
  absl::Status UseLocked(int choice, const SinkEvent& event);
  absl::Status GatherLocked(const Delta& delta);
  absl::Status EncodeEndLocked(const Completion& completion, std::string& bytes);
  std::string EncodeErrorLocked(const CallEnd& end, HttpReply::End& after);
  void EndChoiceLocked(const GenerationCall::ChoiceEvent& end);
  void EndLocked(Completion completion, int choice);
  void NoteLocked(int choice, const SinkEvent& event);
  void AddUsageLocked(int choice, const Usage& usage);
  // Leaves out the events before those that a replay is to begin with.
  std::string SkipLocked(std::string events);
  // Frames a part of the body, with the status line before the first one.
  std::string BodyLocked(absl::string_view part);
  HttpAnswer AnswerLocked(int status, absl::string_view content_type) const;
  void SendLocked(std::string bytes, HttpReply::End end);

  ServiceContext& context_;
  CallContext call_;  // until Start or Refuse
  const Caller caller_;
  const std::string peer_;
  const Asked asked_;
  const std::shared_ptr<HttpReply> reply_;
  std::shared_ptr<GenerationCall> generation_;  // null until then

  std::mutex mutex_;
  CallMemory memory_;                   // for the answer that is gathered
  std::vector<std::string> headers_;    // for a good answer
  std::optional<AskedGeneration> pin_;  // to start after a good answer
  std::unique_ptr<AnswerForm> form_;    // null until the request was read
  AnswerFacts facts_;
  int choices_ = 1;    // that the request asks for
  int ended_ = 0;      // of them
  uint64_t skip_ = 0;  // events to leave out: see Asked::replay
  Usage usage_;        // of those
  PromptProgress progress_;
  absl::Status failure_;  // not OK if part of the answer is missing
  bool begun_ = false;    // the status line was sent
  bool refused_ = false;  // the request's bytes did not come whole
  bool writing_ = false;
  bool gone_ = false;
  bool finished_ = false;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_GENERATION_EXCHANGE_H_
