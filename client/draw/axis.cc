#include "client/draw/axis.h"

#include <algorithm>

namespace annulus::client {

std::vector<int64_t> AxisTicks(int64_t tokens, int intervals) {
  constexpr int64_t kMost = int64_t{1} << 60;  // steps stay far from overflow
  tokens = std::clamp<int64_t>(tokens, 0, kMost);
  int64_t step = 1;
  while (tokens / step > intervals) {
    int64_t leading = step;
    while (leading >= 10) leading /= 10;
    step = leading == 2 ? step / 2 * 5 : step * 2;  // 1, 2, 5, 10, ..
  }
  std::vector<int64_t> ticks;
  for (int64_t tick = 0; tick <= tokens; tick += step) ticks.push_back(tick);
  return ticks;
}

}  // namespace annulus::client
