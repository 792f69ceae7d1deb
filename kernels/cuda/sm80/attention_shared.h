#ifndef ANNULUS_KERNELS_CUDA_SM80_ATTENTION_SHARED_H_
#define ANNULUS_KERNELS_CUDA_SM80_ATTENTION_SHARED_H_

// The instances of attention over pages, and the shared memory of a block of each. See
// attention_kernel.h.
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/device.h"

namespace annulus::cuda {

// T: operand type of the products. kNarrow: pages hold 8-bit codes. A block has kRowWarps by
// kKeyWarps warps; a warp has kRowTiles times 16 rows and kKeys / kKeyWarps keys of a tile.
template <class T, bool kIsNarrow, int kHeadDim, int kWarpRowTiles, int kWarpsOfRows,
          int kWarpsOfKeys, int kTileKeys>
struct AttentionConfig {
  using Operand = T;
  static constexpr bool kNarrow = kIsNarrow;
  static constexpr int kDim = kHeadDim;
  static constexpr int kRowTiles = kWarpRowTiles;
  static constexpr int kRowWarps = kWarpsOfRows;
  static constexpr int kKeyWarps = kWarpsOfKeys;
  static constexpr int kKeys = kTileKeys;
  static constexpr int kThreads = kWarp * kRowWarps * kKeyWarps;
  static constexpr int kRows = 16 * kRowTiles * kRowWarps;
  static constexpr int kWarpKeys = kKeys / kKeyWarps;
  static constexpr int kElement = kNarrow ? 1 : 2;
  static constexpr int kStages = 2;
  static_assert(kDim % 32 == 0 && kWarpKeys % 16 == 0);
};

// The int8 scales of a block's tiles. Takes no room with 16-bit operands.
template <int kStages, int kKeys, bool kNarrow>
struct TileScales {
  alignas(16) uint16_t keys_of[kStages][kKeys];
  alignas(16) uint16_t values_of[kStages][kKeys];

  ANNULUS_DEVICE uint16_t* OfKeys(int stage) { return keys_of[stage]; }
  ANNULUS_DEVICE uint16_t* OfValues(int stage) { return values_of[stage]; }
  ANNULUS_DEVICE const uint16_t* OfKeys(int stage) const { return keys_of[stage]; }
  ANNULUS_DEVICE const uint16_t* OfValues(int stage) const { return values_of[stage]; }
};
template <int kStages, int kKeys>
struct TileScales<kStages, kKeys, false> {
  ANNULUS_DEVICE uint16_t* OfKeys(int) const { return nullptr; }
  ANNULUS_DEVICE uint16_t* OfValues(int) const { return nullptr; }
};

// Each row ends with 16 unused bytes, so that the rows of an 8x8 matrix lie in different banks.
// With 256 dimensions, 16 bits, 64 rows and 32 keys this takes 99 KiB: all that some GPUs allow per
// block.
template <class C>
struct AttentionShared : TileScales<C::kStages, C::kKeys, C::kNarrow> {
  alignas(16) uint16_t query[C::kRows][C::kDim + 8];
  alignas(16) std::byte keys[C::kStages][C::kKeys][C::kDim * C::kElement + 16];
  alignas(16) std::byte values[C::kStages][C::kKeys][C::kDim * C::kElement + 16];

  // Whether a slot's value is infinite or NaN; stored after the value.
  ANNULUS_DEVICE std::byte& Bad(int stage, int slot) {
    return values[stage][slot][C::kDim * C::kElement];
  }
  // Room for one such value; overlaps the keys, whose scores have been computed by then.
  ANNULUS_DEVICE float* BadValue(int stage) {
    static_assert(sizeof(keys[0]) >= C::kDim * sizeof(float));
    return reinterpret_cast<float*>(&keys[stage]);
  }
};

// What the warps of a block with kKeyWarps > 1 exchange; overlaps the tiles.
template <class C>
struct AttentionExchange {
  float o[C::kKeyWarps][C::kRows][C::kDim];
  float maximum[C::kKeyWarps][C::kRows];
  float sum[C::kKeyWarps][C::kRows];
};

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ATTENTION_SHARED_H_
