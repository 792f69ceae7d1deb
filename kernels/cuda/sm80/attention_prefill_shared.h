#ifndef ANNULUS_KERNELS_CUDA_SM80_ATTENTION_PREFILL_SHARED_H_
#define ANNULUS_KERNELS_CUDA_SM80_ATTENTION_PREFILL_SHARED_H_

// The instances of prefill attention, and the shared memory of a block of each. See
// attention_prefill.h.
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/device.h"
#include "kernels/ops/attention.h"

namespace annulus::cuda {

// T: operand type of the products. kNarrow: pages hold 8-bit codes, which become T in shared
// memory. A block has kRowWarps warps; a warp has kRowTiles times 16 rows and all keys of a tile.
template <class T, bool kIsNarrow, int kHeadDim, int kWarpRowTiles, int kWarpsOfRows, int kTileKeys>
struct PrefillConfig {
  using Operand = T;
  static constexpr bool kNarrow = kIsNarrow;
  static constexpr int kDim = kHeadDim;
  static constexpr int kRowTiles = kWarpRowTiles;
  static constexpr int kRowWarps = kWarpsOfRows;
  static constexpr int kKeys = kTileKeys;
  static constexpr int kThreads = kWarp * kRowWarps;
  static constexpr int kRows = 16 * kRowTiles * kRowWarps;
  static constexpr int kElement = kNarrow ? 1 : 2;  // bytes in a page
  static_assert(kDim % 64 == 0 && kKeys % 16 == 0 && kRows * 4 >= kDim);
};

// Codes on their way into the tiles. A thread widens what it copied itself, so that no barrier is
// needed between the two. Scales are there for two tiles: a warp may still read those of one while
// those of the next arrive. Takes no room with 16-bit pages.
template <int kDim, int kKeys, bool kNarrow>
struct PrefillCodes {
  alignas(16) std::byte codes[kKeys * kDim];
  alignas(16) uint16_t key_scales[2][kKeys];
  alignas(16) uint16_t value_scales[2][kKeys];

  ANNULUS_DEVICE std::byte* Codes() { return codes; }
  ANNULUS_DEVICE uint16_t* KeyScales(int parity) { return key_scales[parity]; }
  ANNULUS_DEVICE uint16_t* ValueScales(int parity) { return value_scales[parity]; }
};
template <int kDim, int kKeys>
struct PrefillCodes<kDim, kKeys, false> {
  ANNULUS_DEVICE std::byte* Codes() { return nullptr; }
  ANNULUS_DEVICE uint16_t* KeyScales(int) { return nullptr; }
  ANNULUS_DEVICE uint16_t* ValueScales(int) { return nullptr; }
};

// Each row ends with 16 more bytes, so that the rows of an 8x8 matrix lie in different banks.
template <class C>
struct PrefillShared : PrefillCodes<C::kDim, C::kKeys, C::kNarrow> {
  alignas(16) uint16_t query[C::kRows][C::kDim + 8];
  alignas(16) uint16_t keys[C::kKeys][C::kDim + 8];
  alignas(16) uint16_t values[C::kKeys][C::kDim + 8];
  KvPageView views[C::kThreads];  // of pages to come

  // Whether a slot's value is infinite or NaN.
  ANNULUS_DEVICE uint16_t& Bad(int slot) { return values[slot][C::kDim]; }
  // Element d of one such value, in the room at the ends of queries.
  ANNULUS_DEVICE float& BadValue(int d) {
    return *reinterpret_cast<float*>(&query[d / 4][C::kDim + d % 4 * 2]);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ATTENTION_PREFILL_SHARED_H_
