#ifndef ANNULUS_ENGINE_SAMPLING_PHILOX_H_
#define ANNULUS_ENGINE_SAMPLING_PHILOX_H_

// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (SC 2011): a keyed bijection of a 128-bit counter. It has no state,
// so the number drawn for a position does not depend on anything else that runs.

#include <array>
#include <cstdint>

namespace annulus {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1), a multiple of 2^-53. A pure function of its arguments.
double UniformAt(uint64_t seed, uint64_t position);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SAMPLING_PHILOX_H_
