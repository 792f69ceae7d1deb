#ifndef ANNULUS_SERVER_HTTP_OPENAI_COMPLETIONS_REQUEST_H_
#define ANNULUS_SERVER_HTTP_OPENAI_COMPLETIONS_REQUEST_H_

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "annulus/v1/inference.pb.h"
#include "server/http/attached_documents.h"
#include "server/http/json/json_reader.h"

namespace annulus::server {

// A request of POST /v1/chat/completions or /v1/completions: what to generate, and how to answer.
struct OpenAiRequest {
  v1::GenerationSpec spec;
  std::vector<AttachedDocument> documents = {};
  bool stream = false;
  bool include_usage = false;     // a stream ends with the usage
  bool continuous_usage = false;  // every chunk of it has the usage so far
  bool echo = false;              // the answer begins with the prompt
  int choices = 1;                // answers to give: `n`
  // Of chat.
  std::optional<bool> logprobs;
  std::optional<int32_t> top_logprobs;
  bool has_max_completion_tokens = false;  // that name was used for max_tokens
  std::string reasoning_effort;

  std::string response_format;  // its type; empty: not given
  std::string output_field;     // which field gave spec.output; empty: none

  // Of a prompt that is an array.
  int prompts = 0;
  // Of /tokenize.
  std::optional<bool> add_special;
};

// What a body of these forms may have. Both check the fields that this layer alone knows; all
// others are checked by GenerationCall, as over gRPC.
absl::Status ReadChatRequest(const std::deque<std::string>& body, OpenAiRequest& request,
                             CallMemory& memory, const CancelFlag& cancel);
absl::Status ReadCompletionRequest(const std::deque<std::string>& body, OpenAiRequest& request,
                                   CallMemory& memory, const CancelFlag& cancel);

// The same for POST /tokenize and /detokenize, as vLLM has them. The ids to detokenize are the
// spec's token_ids.
absl::Status ReadTokenizeRequest(const std::deque<std::string>& body, OpenAiRequest& request,
                                 CallMemory& memory, const CancelFlag& cancel);
absl::Status ReadDetokenizeRequest(const std::deque<std::string>& body, OpenAiRequest& request,
                                   CallMemory& memory, const CancelFlag& cancel);

// Replaces the name of a GenerationSpec field in an error by the one of the request:
// "spec.sampling.top_p" becomes "top_p".
absl::Status PlaceOpenAiField(absl::Status status, const OpenAiRequest& request);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_OPENAI_COMPLETIONS_REQUEST_H_
