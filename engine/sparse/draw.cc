#include "engine/sparse/draw.h"

#include <algorithm>

namespace annulus {

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::vector<int32_t> Draw(int32_t begin, int32_t end, int32_t count, uint64_t seed) {
  std::vector<int32_t> drawn;
  const int32_t size = std::max(0, end - begin);
  count = std::min(count, size);
  for (int32_t top = size - count; top < size; ++top) {
    const auto pick = static_cast<int32_t>(Mix(seed + static_cast<uint64_t>(top)) %
                                           (static_cast<uint64_t>(top) + 1));
    const auto place = std::lower_bound(drawn.begin(), drawn.end(), begin + pick);
    if (place == drawn.end() || *place != begin + pick) {
      drawn.insert(place, begin + pick);
    } else {
      drawn.push_back(begin + top);  // larger than all drawn so far
    }
  }
  return drawn;
}

}  // namespace annulus
