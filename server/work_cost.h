#ifndef ANNULUS_SERVER_WORK_COST_H_
#define ANNULUS_SERVER_WORK_COST_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"
#include "engine/api.h"

namespace annulus {

// Upper bounds of the heap that the work for a request takes at its peak, beside the request.

// A conversation on its way to the model's chat template. What comes of it there is asked for while
// it is made: Engine::ApplyChatTemplate.
size_t MessagesWork(const v1::Messages& messages);

// A conversation for a model without a template: its contents joined, and their ids.
size_t JoinedWork(const v1::Messages& messages);

// The text of `ids`, moved into an answer. How long it will be shows in its pieces; one of more
// than `most_bytes` is RESOURCE_EXHAUSTED, as an answer that is too long.
absl::StatusOr<size_t> DetokenizeWork(const Engine& engine, std::span<const int32_t> ids,
                                      bool skip_special, size_t most_bytes,
                                      const CancelFlag& cancel);

}  // namespace annulus

#endif  // ANNULUS_SERVER_WORK_COST_H_
