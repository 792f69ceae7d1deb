#ifndef ANNULUS_CLIENT_DRAW_AXIS_H_
#define ANNULUS_CLIENT_DRAW_AXIS_H_

#include <cstdint>
#include <vector>

namespace annulus {

// Round token counts at equal distances (1, 2 or 5 times a power of ten), ascending from 0 up to
// `tokens`, at most `intervals` of them behind the first. `intervals` is at least 1.
std::vector<int64_t> AxisTicks(int64_t tokens, int intervals);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_DRAW_AXIS_H_
