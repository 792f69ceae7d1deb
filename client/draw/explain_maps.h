#ifndef ANNULUS_CLIENT_DRAW_EXPLAIN_MAPS_H_
#define ANNULUS_CLIENT_DRAW_EXPLAIN_MAPS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "annulus/v1/attention.pb.h"

namespace annulus::client {

// Returns, as HTML, the part of the `explain` page about layers and heads: the density and coverage
// of each as colours that run from the smallest to the largest value, and the blocks that each
// chose, on axes in tokens. INTERNAL if the report holds an impossible layer, head or map.
absl::StatusOr<std::string> ExplainMaps(const v1::AttentionReport& report, int64_t prompt_tokens);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_DRAW_EXPLAIN_MAPS_H_
