#ifndef ANNULUS_CLIENT_DRAW_EXPLAIN_MAPS_H_
#define ANNULUS_CLIENT_DRAW_EXPLAIN_MAPS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "annulus/v1/attention.pb.h"

namespace annulus {

// The part of the page of `explain` about layers and heads, as HTML: density and coverage of each
// as colours that run from the smallest to the largest there is, and the blocks that each chose, on
// axes in tokens. INTERNAL if the server tells of a layer, a head or a map that cannot be.
absl::StatusOr<std::string> ExplainMaps(const v1::AttentionReport& report, int64_t prompt_tokens);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_DRAW_EXPLAIN_MAPS_H_
