#ifndef ANNULUS_CLIENT_GENERATION_H_
#define ANNULUS_CLIENT_GENERATION_H_

#include <grpcpp/support/status.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "annulus/v1/inference.pb.h"
#include "client/connection.h"

namespace annulus {

// Sees a generation as it happens, on the thread that called StreamGenerate.
class GenerationObserver {
 public:
  virtual ~GenerationObserver() = default;
  virtual void OnQueued(const v1::Queued& queued) = 0;
  virtual void OnProgress(const v1::PromptProgress& progress) = 0;
  virtual void OnDelta(const v1::Delta& delta) = 0;
};

// All that arrived. After a failure, what had arrived before it.
struct Generation {
  grpc::Status status;
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<v1::TokenLogprob> logprobs;
  std::optional<v1::PromptProgress> progress;  // the latest
  std::optional<v1::Completion> completion;    // present if and only if the status is OK
};

// Tells the observer of an event, and adds it to `result`.
void AddEvent(v1::StreamGenerateResponse& event, GenerationObserver& observer, Generation& result);

// Runs one generation to its end. A stream that ends well but without a completion is INTERNAL.
Generation StreamGenerate(Connection& connection, const v1::GenerationSpec& spec,
                          GenerationObserver& observer);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_GENERATION_H_
