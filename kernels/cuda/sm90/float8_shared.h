#ifndef ANNULUS_KERNELS_CUDA_SM90_FLOAT8_SHARED_H_
#define ANNULUS_KERNELS_CUDA_SM90_FLOAT8_SHARED_H_

// What the warps of float8_attention.cu share.
#include "kernels/cuda/sm90/attention_shared.h"
#include "kernels/cuda/sm90/float8_attention.h"

namespace annulus::cuda {

// The HopperConfig of e4m3 operands. To the producer these pages are like those of 16 bits: its
// copies go to where products read keys, but for that values are on their way to a transposer. A
// panel is a whole row of up to 128 codes.
template <int kHeadDim>
struct Float8Config {
  using Operand = Float8E4M3;
  static constexpr bool kNarrow = false;
  static constexpr bool kScaled = false;
  static constexpr int kDim = kHeadDim;
  static constexpr int kPanels = 1;
  static constexpr int kCopyColumns = kCodeColumns;
  static constexpr int kCopyPanels = 1;
  static constexpr int kKeys = HopperKeys(kDim);
  static constexpr int kDepth = 32;  // of one product
  static constexpr int kConsumers = 2;
  static constexpr int kConsumerRows = 64;
  static constexpr int kConsumerThreads = kConsumers * kWarpgroup;
  static constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
  static constexpr int kStages = 2;
  static constexpr int kTransposers = 3;  // warps
  // As in HopperConfig. Transposers read the notes of tile t until they have written its columns;
  // consumers need these before they release the keys of tile t + 1, and only then the producer
  // writes the notes of tile t + 3.
  static constexpr int kNotes = 4;
  static constexpr int kScores = kKeys / 2;  // per thread
  static constexpr int kPartColumns = 64;    // of the output, from one product after the other
  static constexpr int kParts = kDim / kPartColumns;
  static constexpr int kHeadroom = 8;  // the largest weight of a row and tile is 2^8, of 448
  // The output's base moves only for a score that exceeds it by so much: float32 has room.
  static constexpr int kBaseSlack = 32;
  static_assert(kKeys == kPanelRowBytes);  // a column of values is one row of a panel
  static_assert(kDim <= kMostFloat8Dim && kDim % kPartColumns == 0);
  static_assert(kConsumers * kConsumerRows == kHopperRows);
};

// `keys` are those of a tile; `values` are on their way to `columns`. There column d of the values
// is row d: depth of a product runs along rows on both sides (for types of 8 bits it cannot be
// otherwise). The keys of 16 codes are permuted as a thread has their weights: byte 4 t + e of a
// chunk is key 2 t + e % 2 + 8 (e / 2) of its 16 (FlashAttention-3, section 3.3). The order of keys
// does not matter to a sum over them.
template <class C>
struct Float8Shared : HopperShared<C> {
  alignas(1024) std::byte columns[C::kStages][C::kDim * kPanelRowBytes];
  float query_scales[C::kConsumers][C::kConsumerRows];
  PhaseBarrier columns_full[C::kStages];
  PhaseBarrier columns_free[C::kStages];
  // Of each transposer, for tiles that hide keys: whether it has found a value of a key that is
  // NaN, and put 0 in its place.
  int32_t marked[C::kStages][C::kTransposers];
};

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_FLOAT8_SHARED_H_
