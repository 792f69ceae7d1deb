#ifndef ANNULUS_CLIENT_DRAW_AXIS_H_
#define ANNULUS_CLIENT_DRAW_AXIS_H_

#include <cstdint>
#include <vector>

namespace annulus::client {

// Returns round token counts for an axis: 0, step, 2 * step, ... up to `tokens`, at most
// `intervals` + 1 of them. The step is 1, 2 or 5 times a power of ten. `intervals` >= 1.
std::vector<int64_t> AxisTicks(int64_t tokens, int intervals);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_DRAW_AXIS_H_
