#ifndef ANNULUS_KERNELS_CPU_ISA_ATTENTION_BF16_H_
#define ANNULUS_KERNELS_CPU_ISA_ATTENTION_BF16_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa_paired_softmax.h"
#include "kernels/cpu/simd_kernels.h"

// Attention over paired bf16 pages (PageLayout) with the AVX-512 dot product of bf16 pairs.
//
// A tile is up to 6 rows by 64 keys. Where all of its rows see all of its keys the scores stay in
// registers until they are weights (AttendWhole); else they pass through memory and masks
// (AttendPart). Both compute a row's numbers by the same operations in the same order, so a row's
// bits do not depend on its neighbours.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd_kernels.h

#define ANNULUS_ISA_INLINE inline __attribute__((always_inline))

// The weights of a tile, rounded: row r, slots 2 j and 2 j + 1 at pairs[r][j].
struct alignas(64) TileWeights {
  uint32_t pairs[kTileRows][kTilePairs];
};

// s[r][p] = query row r . keys of panel p, one chain over the pairs of the head dimension.
template <int kRows, int kPanels>
ANNULUS_ISA_INLINE void DotTile(const PairedChunk& chunk, const uint32_t* query, const uint32_t* k,
                                int64_t pairs, __m512 (&s)[kRows][kPanels]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) s[r][p] = _mm512_setzero_ps();
  }
  for (int64_t i = 0; i < pairs; ++i) {
    __m512i keys[kPanels];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      keys[p] = LoadPairs(k + (p * pairs + i) * kPanel);
    }
    if constexpr (kRows < kTileRows) Ask(chunk.ahead, chunk.asked);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i q = _mm512_set1_epi32(static_cast<int>(query[r * pairs + i]));
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) s[r][p] = Dot(s[r][p], q, keys[p]);
    }
  }
}

// o[r][c] += sum over pairs [begin, end) of weights * values, for kVectors * 16 columns.
template <int kRows, int kVectors>
ANNULUS_ISA_INLINE void ValueTile(const PairedChunk& chunk, float* o, int64_t stride,
                                  const uint32_t (*weights)[kTilePairs], int64_t column, int begin,
                                  int end) {
  const uint32_t* const v = chunk.v + column;
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) sum[r][c] = _mm512_loadu_ps(o + r * stride + c * kPanel);
  }
  for (int j = begin; j < end; ++j) {
    __m512i values[kVectors];
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      values[c] = LoadPairs(v + j * stride + c * kPanel);
    }
    if constexpr (kRows < kTileRows) Ask(chunk.ahead, chunk.asked);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i weight = _mm512_set1_epi32(static_cast<int>(weights[r][j]));
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) sum[r][c] = Dot(sum[r][c], weight, values[c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) _mm512_storeu_ps(o + r * stride + c * kPanel, sum[r][c]);
  }
}

// All columns: four vectors at a time, and what is left in parts that keep many chains in flight.
template <int kRows>
ANNULUS_ISA_INLINE void ValueTiles(const PairedChunk& chunk, float* o, int64_t stride,
                                   const uint32_t (*weights)[kTilePairs], int begin, int end) {
  int64_t c = 0;
  for (; stride - c >= 6 * kPanel || stride - c == 4 * kPanel; c += 4 * kPanel) {
    ValueTile<kRows, 4>(chunk, o + c, stride, weights, c, begin, end);
  }
  for (; stride - c >= 3 * kPanel; c += 3 * kPanel) {
    ValueTile<kRows, 3>(chunk, o + c, stride, weights, c, begin, end);
  }
  if (stride - c == 2 * kPanel) {
    ValueTile<kRows, 2>(chunk, o + c, stride, weights, c, begin, end);
  } else if (stride - c == kPanel) {
    ValueTile<kRows, 1>(chunk, o + c, stride, weights, c, begin, end);
  }
}

// One pair of slots for one row, of which only those in `keep` (0xffff low, 0xffff0000 high) are
// seen: the other's value is not used, whatever it is.
inline void AddPair(float* o, int64_t stride, uint32_t weight, const uint32_t* v, uint32_t keep) {
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(keep));
  const __m512i wide = _mm512_set1_epi32(static_cast<int>(weight));
  for (int64_t c = 0; c < stride; c += kPanel) {
    const __m512i values = _mm512_and_si512(LoadPairs(v + c), mask);
    _mm512_storeu_ps(o + c, Dot(_mm512_loadu_ps(o + c), wide, values));
  }
}

// A tile with masks, or one whose maximum may have to be raised.
template <int kRows, bool kCap>
__attribute__((noinline)) void AttendPart(const AttentionBlock& block, int row,
                                          const PairedChunk& chunk) {
  const int64_t pairs = block.k_pairs;
  const uint32_t* const query = block.query_pairs + row * pairs;
  alignas(64) float scores[kRows][kKeyChunk];
  for (int panel = 0; panel < kTilePanels;) {
    if (chunk.panels == kTilePanels) {
      __m512 s[kRows][kTilePanels];
      DotTile<kRows, kTilePanels>(chunk, query, chunk.k, pairs, s);
      for (int r = 0; r < kRows; ++r) {
        for (int p = 0; p < kTilePanels; ++p) _mm512_store_ps(scores[r] + p * kPanel, s[r][p]);
      }
      break;
    }
    __m512 s[kRows][1] = {};
    if (panel < chunk.panels)
      DotTile<kRows, 1>(chunk, query, chunk.k + panel * pairs * kPanel, pairs, s);
    for (int r = 0; r < kRows; ++r) _mm512_store_ps(scores[r] + panel * kPanel, s[r][0]);
    ++panel;
  }
  TileWeights weights;
  Slots slots[kRows];
  int all_begin = 0;
  int all_end = kKeyChunk;
  for (int r = 0; r < kRows; ++r) {
    slots[r] = FindSlots(block, block.row_positions[row + r], chunk);
    all_begin = static_cast<int>(Larger(all_begin, slots[r].begin));
    all_end = static_cast<int>(Smaller(all_end, slots[r].end));
    if (slots[r].begin < slots[r].end) {
      WeighPairedRow<kCap>(block, row + r, chunk, scores[r], slots[r], weights.pairs[r]);
    }
  }
  // Whole pairs that all rows see are added together, what lies before and after row by row: each
  // row's order over its own keys stays ascending.
  const int64_t stride = block.v_stride;
  float* const o = block.o + row * stride;
  const int shared_begin = (all_begin + 1) / 2;
  const int shared_end = all_end / 2;
  const bool shared = shared_begin < shared_end;
  const auto add_row = [&](int r, int begin, int end) {
    float* const row_o = o + r * stride;
    const uint32_t(*row_weights)[kTilePairs] = weights.pairs + r;
    if (begin >= end) return;
    if (begin % 2 != 0) {
      AddPair(row_o, stride, weights.pairs[r][begin / 2], chunk.v + begin / 2 * stride,
              0xffff0000u);
    }
    ValueTiles<1>(chunk, row_o, stride, row_weights, (begin + 1) / 2, end / 2);
    if (end % 2 != 0) {
      AddPair(row_o, stride, weights.pairs[r][end / 2], chunk.v + end / 2 * stride, 0xffffu);
    }
  };
  for (int r = 0; r < kRows; ++r) {
    add_row(r, slots[r].begin, shared ? 2 * shared_begin : slots[r].end);
  }
  if (!shared) return;
  ValueTiles<kRows>(chunk, o, stride, weights.pairs, shared_begin, shared_end);
  for (int r = 0; r < kRows; ++r) add_row(r, 2 * shared_end, slots[r].end);
}

// The weights of a tile whose rows see all 64 keys. False, and nothing is changed, where a maximum
// may have to be raised.
template <int kRows, bool kCap>
__attribute__((noinline)) bool WeighWhole(const AttentionBlock& block, int row,
                                          const PairedChunk& chunk, TileWeights& weights) {
  const int64_t pairs = block.k_pairs;
  __m512 s[kRows][kTilePanels];
  DotTile<kRows, kTilePanels>(chunk, block.query_pairs + row * pairs, chunk.k, pairs, s);
  __m512 excess = _mm512_set1_ps(-kInfinity);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const __m512 offset = _mm512_set1_ps(-block.maximum[row + r]);
#pragma GCC unroll 8
    for (int p = 0; p < kTilePanels; ++p) {
      const float* const factors = chunk.factors + p * kPanel;
      const __m512 score = Capped<kCap>(s[r][p], factors, block.soft_cap);
      const __m512 factor = kCap ? _mm512_set1_ps(1.44269504f) : _mm512_load_ps(factors);
      s[r][p] = _mm512_fmadd_ps(score, factor, offset);
      excess = _mm512_max_ps(s[r][p], excess);  // where s is NaN, the old one
    }
  }
  if (__builtin_expect(_mm512_cmp_ps_mask(excess, _mm512_set1_ps(kSlack), _CMP_GT_OQ) != 0, 0)) {
    return false;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kTilePanels; ++p) s[r][p] = Exp2Weight(s[r][p]);
    KeepWeights(chunk, s[r], ~uint64_t{0}, weights.pairs[r],
                block.sums + int64_t{row + r} * kPanel);
  }
  return true;
}

template <int kRows>
__attribute__((noinline)) void AddWhole(const AttentionBlock& block, int row,
                                        const PairedChunk& chunk, const TileWeights& weights) {
  ValueTiles<kRows>(chunk, block.o + int64_t{row} * block.v_stride, block.v_stride, weights.pairs,
                    0, kTilePairs);
}

// The parts of a tile of one height.
struct TileParts {
  bool (*weigh)(const AttentionBlock&, int row, const PairedChunk&, TileWeights&);
  void (*add)(const AttentionBlock&, int row, const PairedChunk&, const TileWeights&);
  void (*part)(const AttentionBlock&, int row, const PairedChunk&);
};
template <int kRows, bool kCap>
inline constexpr TileParts kTileParts = {&WeighWhole<kRows, kCap>, &AddWhole<kRows>,
                                         &AttendPart<kRows, kCap>};
template <bool kCap>
inline constexpr const TileParts* kTilePartsOf[kTileRows + 1] = {nullptr,
                                                                 &kTileParts<1, kCap>,
                                                                 &kTileParts<2, kCap>,
                                                                 &kTileParts<3, kCap>,
                                                                 &kTileParts<4, kCap>,
                                                                 &kTileParts<5, kCap>,
                                                                 &kTileParts<6, kCap>};
static_assert(kTileRows == 6);

// A tile's values are added after the next one's weights are found: the end of a softmax is a long
// chain of operations, and the values that are due meanwhile do not wait for it.
template <bool kCap>
void AttendChunk(const AttentionBlock& block, const PairedChunk& chunk) {
  const int rows = block.position_count * block.group;
  TileWeights weights[2];
  int turn = 0;
  int due_row = 0;
  const TileParts* due = nullptr;
  const auto add_due = [&](int which) {
    if (due != nullptr) due->add(block, due_row, chunk, weights[which]);
    due = nullptr;
  };
  for (int row = 0; row < rows;) {
    const int left = rows - row;
    // Two tiles of like height are faster than a full one and a flat one, and few rows, which wait
    // for memory, are not in a full one.
    const int height = left >= 2 * kTileRows ? kTileRows
                       : left >= kTileRows   ? (left + 1) / 2
                                             : left;
    if (height == kTileRows) Ask(chunk.ahead, chunk.asked_of_tile);
    const TileParts& parts = *kTilePartsOf<kCap>[height];
    const Sight sight = FindSight(block, row, height, chunk);
    if (sight.whole && parts.weigh(block, row, chunk, weights[turn])) {
      add_due(1 - turn);
      due = &parts;
      due_row = row;
      turn = 1 - turn;
    } else if (!sight.none) {
      parts.part(block, row, chunk);
    }
    row += height;
  }
  add_due(1 - turn);
}

void AttendPairedKeys(const AttentionBlock& block, const AttentionKeys& keys) {
  PairedChunk chunk;
  MakeChunk(block, keys, &chunk);
  if (chunk.ahead != nullptr) {
    // Spread over all tiles of rows, and in low tiles over their steps.
    const int tiles = (block.position_count * block.group + kTileRows - 1) / kTileRows;
    const int vectors = kTilePanels * kPanel;
    const int steps = block.k_pairs + (block.v_stride + vectors - 1) / vectors * kTilePairs;
    const int lines = chunk.ahead->lines[0] + chunk.ahead->lines[1];
    chunk.asked = (lines + tiles * steps - 1) / (tiles * steps);
    chunk.asked_of_tile = (lines + tiles - 1) / tiles;
  }
  if (block.soft_cap > 0) {
    AttendChunk<true>(block, chunk);
  } else {
    AttendChunk<false>(block, chunk);
  }
}

#undef ANNULUS_ISA_INLINE

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_ATTENTION_BF16_H_
