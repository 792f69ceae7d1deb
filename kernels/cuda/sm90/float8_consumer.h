#ifndef ANNULUS_KERNELS_CUDA_SM90_FLOAT8_CONSUMER_H_
#define ANNULUS_KERNELS_CUDA_SM90_FLOAT8_CONSUMER_H_

// The consumers of float8_attention.cu. Rows and columns of a thread are those of
// attention_consumer.h.
#include "kernels/cuda/sm90/attention_consumer.h"
#include "kernels/cuda/sm90/float8_shared.h"

namespace annulus::cuda {

// A row whose largest magnitude is below this counts as zeros, as in RoundToFloat8.
inline constexpr float kLeastQuery = 0x1p-100f;

// Loads this warp's 16 queries into its warpgroup's panel as codes, and their scales: those of
// RoundToFloat8, but 1 for a row of zeros.
template <class C>
ANNULUS_DEVICE void LoadQueryCodes(const AttentionArguments& a, const AttentionUnit& unit,
                                   const AttentionItemView& item, Float8Shared<C>& shared) {
  constexpr int kBatch = 8;
  constexpr int kFours = C::kDim / 4;  // lanes of a row
  constexpr int kLoads = 16 * kFours / kWarp;
  static_assert(kLoads % kBatch == 0 && kFours <= kWarp);
  const int first_row = WarpIndex() % 4 * 16;
  const int r = ConsumerOf() * C::kConsumerRows + first_row + Lane() % 16;
  const float* const own = r < unit.row_count ? QueryOf(a, unit, item, r) : nullptr;
  const int k_dim = a.layout.k_dim;
  const bool wide = Ballot(k_dim % 4 != 0 || reinterpret_cast<uintptr_t>(own) % 16 != 0) == 0;
#pragma unroll 1
  for (int begin = 0; begin < kLoads; begin += kBatch) {
    float fours[kBatch][4];
    if (wide) {
      LoadQueries<C, true>(own, k_dim, begin, fours);
    } else {
      LoadQueries<C, false>(own, k_dim, begin, fours);
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const float(&four)[4] = fours[b];
      uint32_t largest = 0;  // of the magnitudes' bits: NaN is above infinity
#pragma unroll
      for (int e = 0; e < 4; ++e) largest = Larger(largest, BitsOf(four[e]) & 0x7fffffffu);
#pragma unroll
      for (int mask = 1; mask < kFours; mask *= 2) {
        largest = Larger(largest, ShuffleXor(largest, mask));
      }
      const bool finite = largest < 0x7f800000u;
      const bool coded = finite && FloatOf(largest) >= kLeastQuery;
      const float factor = coded ? 448 / FloatOf(largest) : 0;
      const int row = first_row + ((begin + b) * kWarp + Lane()) / kFours;
      const int column = Lane() % kFours * 4;
      const uint32_t codes =
          PackCodes(four[0] * factor, four[1] * factor, four[2] * factor, four[3] * factor);
      std::byte* const panel = shared.query[ConsumerOf()][0];
      *reinterpret_cast<uint32_t*>(panel + PanelOffset(row, column / 16) + column % 16) =
          coded ? codes : 0;
      if (column == 0) {
        shared.query_scales[ConsumerOf()][row] = coded    ? FloatOf(largest) / 448
                                                 : finite ? 1
                                                          : FloatOf(0x7fc00000u);
      }
    }
  }
}

// The scale of the query of half h of this thread.
template <class C>
ANNULUS_DEVICE float QueryScale(const Float8Shared<C>& shared, int h) {
  return shared.query_scales[ConsumerOf()][RowOf<C>(h) % C::kConsumerRows];
}

// Starts scores = query times key, asynchronously.
template <class C>
ANNULUS_DEVICE void StartCodeScores(const Float8Shared<C>& shared, int stage,
                                    float (&scores)[C::kScores]) {
  const uint64_t queries = PanelMatrix(shared.query[ConsumerOf()][0], kOnePanel);
  const uint64_t keys = PanelMatrix(shared.keys[stage][0], kOnePanel);
  SettleRegisters(scores);
  WgmmaFence();
#pragma unroll
  for (int k = 0; k < C::kDim; k += C::kDepth) {
    MultiplyShared(Float8E4M3{}, scores, FurtherMatrix(queries, k), FurtherMatrix(keys, k), k > 0);
  }
  WgmmaCommit();
}

// Starts part = weights times columns number `index` of values, asynchronously.
template <class C>
ANNULUS_DEVICE void StartPart(const Float8Shared<C>& shared, int stage, int index,
                              const uint32_t (&weights)[C::kKeys / C::kDepth][4],
                              float (&part)[C::kPartColumns / 2]) {
  const uint64_t columns =
      PanelMatrix(shared.columns[stage] + index * C::kPartColumns * kPanelRowBytes, kOnePanel);
  SettleRegisters(part);
  WgmmaFence();
#pragma unroll
  for (int k = 0; k < C::kKeys / C::kDepth; ++k) {
    MultiplyRegisters(Float8E4M3{}, part, weights[k], FurtherMatrix(columns, k * C::kDepth), k > 0);
  }
  WgmmaCommit();
}

// Adds a part to the output, once its products have been waited for.
template <class C>
ANNULUS_DEVICE void AddPart(int index, float (&part)[C::kPartColumns / 2], const float (&carry)[2],
                            ConsumerRows<C>& rows) {
  SettleRegisters(part);
#pragma unroll
  for (int i = 0; i < C::kPartColumns / 2; ++i) {
    rows.o[index * C::kPartColumns / 2 + i] += part[i] * carry[i % 4 / 2];
  }
}

// The factors that turn the scores of this thread's rows, after ChangeScores, to units of log 2.
template <class C>
ANNULUS_DEVICE void FactorsOf(const AttentionArguments& a, const Float8Shared<C>& shared,
                              float (&factors)[2]) {
  const bool changed = a.soft_cap > 0 || a.scale <= 0;  // then PrepareScores has used them
#pragma unroll
  for (int h = 0; h < 2; ++h) factors[h] = changed ? 1 : FactorOf(a) * QueryScale<C>(shared, h);
}

// Of tiles with notes: ChangeScores, after what only codes need.
template <class C>
ANNULUS_DEVICE void ChangeCodeScores(const AttentionArguments& a, const Float8Shared<C>& shared,
                                     const TileNotes<C>& notes, float (&scores)[C::kScores],
                                     const ConsumerRows<C>& rows) {
  if ((notes.special & kChangedScores) != 0) {
    const float scales[2] = {QueryScale<C>(shared, 0), QueryScale<C>(shared, 1)};
#pragma unroll
    for (int i = 0; i < C::kScores; ++i) scores[i] *= scales[i % 4 / 2];
  }
  ChangeScores<C>(a, notes, scores, rows);
}

// Makes those columns NaN in which a row sees a NaN, for a tile in which transposers have put 0 in
// its place. This is rare, so only a load of two columns is unrolled.
template <class C>
ANNULUS_DEVICE void AddMarkedCodes(const AttentionArguments& a, int box_slots,
                                   const TileNotes<C>& notes, ConsumerRows<C>& rows) {
  const PageLayout& layout = a.layout;
  const float nan = FloatOf(0x7fc00000u);
#pragma unroll 1
  for (int key = 0; key < C::kKeys; ++key) {
    const int32_t position = notes.position[key];
    if (position < 0) continue;
    const std::byte* const value =
        notes.values[key / box_slots] + int64_t{key % box_slots} * layout.v_stride;
    const bool sees[2] = {Sees(rows, 0, a.window, position), Sees(rows, 1, a.window, position)};
#pragma unroll
    for (int n = 0; n < C::kDim / 8; ++n) {
      if (8 * n >= layout.v_stride) break;
      const uint32_t pair = reinterpret_cast<const uint16_t*>(value)[4 * n + Lane() % 4];
      const uint32_t beyond = BeyondFinite8(DType::kF8E4M3, pair);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (sees[i / 2] && (beyond >> (i % 2 * 8 + 7) & 1u) != 0) rows.o[4 * n + i] = nan;
      }
    }
  }
}

// How a tile enters its rows: scores are to become weights 2^(score * factor - from), and its
// output is to be multiplied by `carry`.
struct TileFactors {
  float from[2];
  float carry[2];
};

// Makes the factors of a tile, and moves the bases of rows whose scores exceed them by more than
// C::kBaseSlack. `before` is the carry of the tile before, whose output is not added yet.
template <class C>
ANNULUS_DEVICE void MeetTile(const float (&scores)[C::kScores], const float (&factors)[2],
                             ConsumerRows<C>& rows, TileFactors& tile, float (&before)[2]) {
  float top[2];
  float rescale[2];
  TopScores<C>(scores, top);
  bool moved = false;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool none = top[h] == -FloatOf(0x7f800000u);  // all weights are 0
    const float most = top[h] * factors[h];
    tile.from[h] = none ? 0 : most - C::kHeadroom;
    const bool raise = !none && most > rows.base[h] + C::kBaseSlack;
    rescale[h] = raise ? Exp2(rows.base[h] - most) : 1;
    if (raise) rows.base[h] = most;
    tile.carry[h] = none ? 0 : Exp2(most - rows.base[h]);
    moved |= raise;
  }
  if (Usual(Ballot(moved) == 0)) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    rows.sum[h] *= rescale[h];
    before[h] *= rescale[h];
  }
#pragma unroll
  for (int i = 0; i < C::kDim / 2; ++i) rows.o[i] *= rescale[i % 4 / 2];
}

// Turns the scores of a tile into weights, in place, and adds them to the rows' sums.
template <class C>
ANNULUS_DEVICE void WeighTile(const float (&factors)[2], const TileFactors& tile,
                              float (&scores)[C::kScores], ConsumerRows<C>& rows) {
  float parts[2][2] = {};
#pragma unroll
  for (int i = 0; i < C::kScores; ++i) {
    const int h = i % 4 / 2;
    scores[i] = Exp2(scores[i] * factors[h] - tile.from[h]);
    parts[h][i % 2] += scores[i];
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    rows.sum[h] += (parts[h][0] + parts[h][1]) * tile.carry[h];
  }
}

// Packs weights into operands, with the keys in the order of Float8Shared::columns.
template <class C>
ANNULUS_DEVICE void PackCodeWeights(const float (&weights)[C::kScores],
                                    uint32_t (&packed)[C::kKeys / C::kDepth][4]) {
#pragma unroll
  for (int i = 0; i < C::kKeys / 16; ++i) {  // 16 keys each
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float* const low = &weights[8 * i + 2 * h];
      packed[i / 2][i % 2 * 2 + h] = PackCodes(low[0], low[1], low[4], low[5]);
    }
  }
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_FLOAT8_CONSUMER_H_
