#ifndef ANNULUS_ENGINE_SPARSE_DRAW_H_
#define ANNULUS_ENGINE_SPARSE_DRAW_H_

#include <cstdint>
#include <vector>

namespace annulus {

// SplitMix64 (Steele et al. 2014): maps each counter to one well-mixed number.
uint64_t Mix(uint64_t x);

// Draws `count` distinct numbers from [begin, end) (Floyd's method), ascending; all of them if
// there are fewer.
std::vector<int32_t> Draw(int32_t begin, int32_t end, int32_t count, uint64_t seed);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_DRAW_H_
