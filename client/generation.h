#ifndef ANNULUS_CLIENT_GENERATION_H_
#define ANNULUS_CLIENT_GENERATION_H_

#include <grpcpp/support/status.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "annulus/v1/inference.pb.h"
#include "client/connection.h"

namespace annulus::client {

// Receives the events of a generation as they arrive, on the thread that called StreamGenerate.
class GenerationObserver {
 public:
  virtual ~GenerationObserver() = default;
  virtual void OnQueued(const v1::Queued& queued) = 0;
  virtual void OnProgress(const v1::PromptProgress& progress) = 0;
  virtual void OnDelta(const v1::Delta& delta) = 0;
};

// Everything the server sent about one generation; if it failed, everything before the failure.
struct Generation {
  grpc::Status status;
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<v1::TokenLogprob> logprobs;
  std::vector<v1::TokenLogprob> prompt_logprobs;
  std::optional<v1::PromptProgress> progress;  // the latest
  std::optional<v1::Completion> completion;    // present once it has ended with status OK
};

// Passes an event to the observer and adds it to `result`. May move from `event`.
void AddEvent(v1::StreamGenerateResponse& event, GenerationObserver& observer, Generation& result);

// Runs one generation to its end. The status is INTERNAL if the stream ends with OK but without a
// completion.
Generation StreamGenerate(Connection& connection, const v1::GenerationSpec& spec,
                          GenerationObserver& observer);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_GENERATION_H_
