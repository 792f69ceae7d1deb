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

// Token ids of a text, and whatever making them takes: most where the text has no spaces, at which
// tokenizers cut it.
size_t TokenizeWork(absl::string_view text);

// A conversation's text by a chat template, and its ids. What the template computes on the way is
// not counted: RenderLimits bounds it.
size_t ChatWork(const v1::Messages& messages);

// The text of `ids`, moved into an answer. How long it will be shows in its pieces; one of more
// than `most_bytes` is RESOURCE_EXHAUSTED, as an answer that is too long.
absl::StatusOr<size_t> DetokenizeWork(const Engine& engine, std::span<const int32_t> ids,
                                      bool skip_special, size_t most_bytes,
                                      const CancelFlag& cancel);

}  // namespace annulus

#endif  // ANNULUS_SERVER_WORK_COST_H_
