#ifndef ANNULUS_KERNELS_CUDA_SM90_ATTENTION_SHARED_H_
#define ANNULUS_KERNELS_CUDA_SM90_ATTENTION_SHARED_H_

// What the producer and the consumers of attention_kernel.h share: sizes, shared memory, and the
// tiles of a unit.
#include <type_traits>

#include "kernels/cuda/common/hopper.h"
#include "kernels/cuda/common/wgmma.h"
#include "kernels/cuda/sm80/attention_rows.h"
#include "kernels/cuda/sm90/attention.h"

namespace annulus::cuda {

// T: operand type. kCodes: whether pages hold 8-bit codes, which are widened to operands in shared
// memory: int8 to bf16, fp8 to f16, in which they are exact; otherwise they hold operands. A panel
// is 64 columns of a tile, stored together in shared memory as rows of 128 bytes. One copy writes a
// panel (of codes: 128 columns), and one product reads it.
template <class T, int kHeadDim, bool kCodes>
struct HopperConfig {
  using Operand = T;
  static constexpr bool kNarrow = kCodes;
  static constexpr bool kScaled = kCodes && std::is_same_v<T, BFloat16>;  // int8: keys have scales
  static constexpr int kDim = kHeadDim;
  static constexpr int kPanels = kDim / kPanelColumns;
  static constexpr int kCopyColumns = kNarrow ? kCodeColumns : kPanelColumns;
  static constexpr int kCopyPanels = (kDim + kCopyColumns - 1) / kCopyColumns;
  static constexpr int kKeys = HopperKeys(kDim);  // per tile
  static constexpr int kBlocks = 1;               // that share their tiles: see attention_pairs.cu
  static constexpr int kConsumers = 2;
  static constexpr int kConsumerRows = 64;
  static constexpr int kConsumerThreads = kConsumers * kWarpgroup;
  static constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
  static constexpr int kStages = 2;
  // Keys and values of a tile take turns in the stages of codes. With 256 columns there is no room
  // for a third stage.
  static constexpr int kCodeStages = kDim > 128 ? 2 : 3;
  static constexpr int kWideners = 3;  // warps
  // Number of tiles whose notes are kept. Consumers look at the notes of tile t for the last time
  // after they have released the keys of tile t, and the values of tile t - 1, but before they
  // release the keys of tile t + 1. The producer writes the notes of tile t + 3 once the keys of
  // tile t + 1 have been released. With codes it writes those of tile t + 5 once the values of tile
  // t + 2 have been widened, thus after those of tile t have been released. With 2 stages of codes
  // it writes those of tile t + 4 once the keys of tile t + 3 have been widened, thus after those
  // of tile t + 1 have been released.
  static constexpr int kNotes = kNarrow && kCodeStages == 3 ? 5 : 4;
  static constexpr int kScores = kKeys / 2;  // per thread
  // Weights are 2^(score - base + kHeadroom), and a base moves only if a score exceeds it by more
  // than kBaseSlack. f16 has 2^16 at most, no numbers below 2^-24, and few bits below 2^-14; many
  // keys may weigh less each than that, but enough together.
  static constexpr int kBaseSlack = std::is_same_v<T, Float16> ? 3 : 8;
  static constexpr int kHeadroom = std::is_same_v<T, Float16> ? 12 : 0;
  static_assert(kDim % kPanelColumns == 0 && kDim <= 256);
  static_assert(kConsumers * kConsumerRows == kHopperRows);
  static_assert(kNotes >= kStages + 1 && kCodeStages <= 3);
};

// What makes a tile take the consumers' slow path: some row does not see some key; scores need
// more than a positive factor.
inline constexpr int32_t kHiddenKeys = 1;
inline constexpr int32_t kChangedScores = 2;

// The producer's notes about a tile, which may consist of parts of several pages.
template <class C>
struct TileNotes {
  alignas(16) int32_t position[C::kKeys];  // -1: no key; the data there may be anything
  const std::byte* values[C::kKeys / 16];  // per box: the address of its first value in the page
  int32_t special;                         // kHiddenKeys, kChangedScores
  // Written by consumers. Not 0: the key's value is not all finite; for int8, the bits of its
  // scale.
  uint16_t bad[C::kKeys];
};

// Only for 8-bit pages: tiles of codes as they arrive, one piece (keys or values) per stage.
template <class C, bool kNarrow = C::kNarrow>
struct CodePanels {};
template <class C>
struct CodePanels<C, true> {
  alignas(1024) std::byte stages[C::kCodeStages][C::kCopyPanels][C::kKeys * kPanelRowBytes];
};
// Only for 8-bit pages: the barriers of those stages, and the bf16 scales of int8, kept like notes.
template <class C, bool kNarrow = C::kNarrow>
struct CodeNotes {};
template <class C>
struct CodeNotes<C, true> {
  alignas(16) uint16_t key_scales[C::kNotes][C::kKeys];
  alignas(16) uint16_t value_scales[C::kNotes][C::kKeys];
  PhaseBarrier full[C::kCodeStages];
  PhaseBarrier free[C::kCodeStages];
};

template <class C>
struct HopperShared {
  alignas(1024) std::byte query[C::kConsumers][C::kPanels][C::kConsumerRows * kPanelRowBytes];
  alignas(1024) std::byte keys[C::kStages][C::kPanels][C::kKeys * kPanelRowBytes];
  alignas(1024) std::byte values[C::kStages][C::kPanels][C::kKeys * kPanelRowBytes];
  CodePanels<C> codes;
  TileNotes<C> notes[C::kNotes];
  CodeNotes<C> code_notes;
  PhaseBarrier keys_full[C::kStages];
  PhaseBarrier keys_free[C::kStages];
  PhaseBarrier values_full[C::kStages];
  PhaseBarrier values_free[C::kStages];
  // the limit per block of compute capability 9.0
  static constexpr size_t kMostBytes = size_t{227} << 10;
};

// The stage of item number n when items take turns in kStages stages, and the parity of its phase.
template <int kStages>
ANNULUS_DEVICE int StageOf(uint32_t n) {
  return static_cast<int>(n % kStages);
}
template <int kStages>
ANNULUS_DEVICE int ParityOf(uint32_t n) {
  return static_cast<int>(n / kStages % 2);
}

// Numbers of barriers for some of the warps (SyncSome).
inline constexpr int kQueryReady = 1;  // and kQueryReady + 1, one per consumer
inline constexpr int kValuesCleared = 3;

// The query of row r of the unit.
ANNULUS_DEVICE const float* QueryOf(const AttentionArguments& a, const AttentionUnit& unit,
                                    const AttentionItemView& item, int r) {
  const int row = unit.row_begin + r;
  const int head = unit.kv_head * a.group + row % a.group;
  return item.query + row / a.group * item.query_stride + int64_t{head} * a.layout.k_dim;
}

// The boxes of a unit: box b is part b % per_page of page b / per_page.
struct BoxRange {
  int begin;
  int end;
};

ANNULUS_DEVICE int LowestPosition(const AttentionArguments& a, const AttentionUnit& unit,
                                  const AttentionItemView& item) {
  return item.positions[unit.row_begin / a.group];
}
ANNULUS_DEVICE int HighestPosition(const AttentionArguments& a, const AttentionUnit& unit,
                                   const AttentionItemView& item) {
  return item.positions[(unit.row_begin + unit.row_count - 1) / a.group];
}

// Leaves out boxes at both ends that no row sees; the plan has left out whole pages only.
ANNULUS_DEVICE BoxRange BoxesOf(const HopperAttentionArguments& h, const AttentionUnit& unit,
                                const AttentionItemView& item) {
  const AttentionArguments& a = h.attention;
  const int pages = unit.page_end - unit.page_begin;
  if (pages == 0) return {0, 0};
  const int per_page = a.layout.page_tokens / h.box_slots;
  int begin = 0;
  if (a.window > 0) {
    const int64_t behind = int64_t{LowestPosition(a, unit, item)} - a.window + 1 -
                           PageOf(item, unit.page_begin).first_position;
    const int64_t slots = Smaller<int64_t>(behind, a.layout.page_tokens);
    const int whole_slots = h.box_slots * h.whole_boxes;
    if (slots > 0) begin = static_cast<int>(slots) / whole_slots * h.whole_boxes;
  }
  const KvPageView& last = PageOf(item, unit.page_end - 1);
  const int64_t seen = int64_t{HighestPosition(a, unit, item)} - last.first_position + 1;
  const int64_t slots = Larger<int64_t>(Smaller<int64_t>(seen, last.tokens), 0);
  const int end =
      (pages - 1) * per_page + (static_cast<int>(slots) + h.box_slots - 1) / h.box_slots;
  return {begin, Larger(begin, end)};
}

template <class C>
ANNULUS_DEVICE int TilesOf(const HopperAttentionArguments& h, const AttentionUnit& unit,
                           const AttentionItemView& item) {
  const int boxes = C::kKeys / h.box_slots;
  const BoxRange range = BoxesOf(h, unit, item);
  return (range.end - range.begin + boxes - 1) / boxes;
}

// Units are sorted longest first. Every other round assigns them to blocks in reverse order, so
// that no block gets the longest unit of every round.
ANNULUS_DEVICE int64_t UnitOfRound(int round) {
  const int64_t block = round % 2 == 0 ? BlockX() : GridX() - 1 - BlockX();
  return round * GridX() + block;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_ATTENTION_SHARED_H_
