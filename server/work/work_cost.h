#ifndef ANNULUS_SERVER_WORK_WORK_COST_H_
#define ANNULUS_SERVER_WORK_WORK_COST_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"
#include "engine/api.h"

namespace annulus::server {

// Upper bounds of the heap memory that the work for a request needs at its peak, in addition to the
// request. In bytes.

// For passing a conversation to the model's chat template. Engine::ApplyChatTemplate asks for the
// memory of its output itself.
size_t MessagesWork(const v1::Messages& messages);

// For a conversation with a model without a template: its joined contents and their ids.
size_t JoinedWork(const v1::Messages& messages);

// For the text of `ids`, which is moved into an answer. Detokenizes piece by piece to learn its
// length. OUT_OF_RANGE (AnswerTooLargeError) if the text is longer than `most_bytes`.
absl::StatusOr<size_t> DetokenizeWork(const Engine& engine, std::span<const int32_t> ids,
                                      bool skip_special, size_t most_bytes,
                                      const CancelFlag& cancel);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_WORK_WORK_COST_H_
