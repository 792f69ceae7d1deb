#ifndef ANNULUS_ENGINE_SPARSE_DRAW_H_
#define ANNULUS_ENGINE_SPARSE_DRAW_H_

#include <cstdint>
#include <vector>

namespace annulus {

// SplitMix64 (Steele et al. 2014): one well-mixed number for each counter.
uint64_t Mix(uint64_t x);

// Draws `count` of [begin, end) without repetition (Floyd's method), ascending; all, where there
// are fewer.
std::vector<int32_t> Draw(int32_t begin, int32_t end, int32_t count, uint64_t seed);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_DRAW_H_
