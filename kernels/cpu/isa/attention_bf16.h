#ifndef ANNULUS_KERNELS_CPU_ISA_ATTENTION_BF16_H_
#define ANNULUS_KERNELS_CPU_ISA_ATTENTION_BF16_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa/paired_softmax.h"
#include "kernels/cpu/simd/kernels.h"

// Attention over paired bf16 pages (PageLayout) with the AVX-512 dot product of bf16 pairs.
//
// A tile is up to 6 rows by 64 keys. If all its rows see all its keys, its softmax is interleaved
// with the value products of the tile before, one vector per step (TileSoftmax): alone, the
// softmax's long chains of operations would leave the multipliers idle. All other tiles use masks
// (AttendPart). Both paths compute a row by the same operations in the same order, so a row's bits
// do not depend on its neighbours.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

#define ANNULUS_ISA_INLINE inline __attribute__((always_inline))

// A tile's weights, rounded to bf16: row r, slots 2 j and 2 j + 1 are in pairs[r][j].
struct alignas(64) TileWeights {
  uint32_t pairs[kTileRows][kTilePairs];
};

// A tile of rows that see all 64 keys.
struct alignas(64) WholeTile {
  float above[kTileRows * kKeyChunk];  // scores minus the row's maximum, as powers of two
  TileWeights rounded;                 // the weights whose sum is the denominator
  TileWeights scaled;                  // the same times the scales of the values, if there are any
  int row;
  int height;
  bool first;  // the rows' first tile: they have no maximum yet
};

// The weights that the values of a tile are multiplied by.
ANNULUS_ISA_INLINE const TileWeights& FactorsOf(const PairedChunk& chunk, const WholeTile& tile) {
  return chunk.scaled ? tile.scaled : tile.rounded;
}

// The `beside` of a ValueTile that has nothing to interleave with its products.
struct NoSteps {
  ANNULUS_ISA_INLINE void Step(int) const {}
  ANNULUS_ISA_INLINE void Done() const {}
};

// The `beside` of a ValueTile that also computes the next tile's softmax: turns its scores into
// weights and sums them, one vector per step. Takes at most kTilePairs steps.
class TileSoftmax {
 public:
  TileSoftmax(const AttentionBlock& block, const PairedChunk& chunk, WholeTile& tile)
      : chunk_(chunk),
        tile_(tile),
        sums_(block.sums + int64_t{tile.row} * kPanel),
        vectors_(tile.height * kTilePanels),
        steps_(vectors_ + tile.height) {}

  ANNULUS_ISA_INLINE void Step(int i) {
    if (i < vectors_) {
      WeighVector(i, Exp2InRange(_mm512_load_ps(tile_.above + i * kPanel)));
    } else if (i < steps_) {
      AddRow(i - vectors_);
    }
  }
  ANNULUS_ISA_INLINE void Done() { vectors_ = steps_ = 0; }

  // All steps at once: used if there is no product to interleave with, or some scores have weight
  // 0.
  __attribute__((noinline)) void StepAlone() {
    for (int i = 0; i < vectors_; ++i) {
      WeighVector(i, Exp2Weight(_mm512_load_ps(tile_.above + i * kPanel)));
    }
    for (int r = 0; r < tile_.height; ++r) AddRow(r);
  }

 private:
  ANNULUS_ISA_INLINE void WeighVector(int i, __m512 weight) {
    StoreWeights(tile_.rounded, i, weight);
    if (!chunk_.scaled) return;
    const float* const scales = chunk_.value_scales + i % kTilePanels * kPanel;
    StoreWeights(tile_.scaled, i, _mm512_mul_ps(weight, _mm512_load_ps(scales)));
  }
  ANNULUS_ISA_INLINE void StoreWeights(TileWeights& weights, int i, __m512 weight) {
    uint32_t* const pairs = weights.pairs[i / kTilePanels] + i % kTilePanels * (kPanel / 2);
    _mm256_store_si256((__m256i*)pairs, (__m256i)_mm512_cvtneps_pbh(weight));
  }
  ANNULUS_ISA_INLINE void AddRow(int r) {
    const uint32_t* const pairs = tile_.rounded.pairs[r];
    AddWeights(LoadPairs(pairs), LoadPairs(pairs + kPanel), sums_ + r * kPanel);
  }

  const PairedChunk& chunk_;
  WholeTile& tile_;
  float* const sums_;
  int vectors_;
  int steps_;
};
static_assert(kTileRows * (kTilePanels + 1) <= kTilePairs);

// s[r][p] = query row r . keys of panel p, as one chain over the pairs of the head dimension.
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
template <int kRows, int kVectors, class Beside>
ANNULUS_ISA_INLINE void ValueTile(const PairedChunk& chunk, float* o, int64_t stride,
                                  const uint32_t (*weights)[kTilePairs], int64_t column, int begin,
                                  int end, Beside& beside) {
  const uint32_t* const v = chunk.v + column;
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) sum[r][c] = _mm512_loadu_ps(o + r * stride + c * kPanel);
  }
  for (int j = begin; j < end; ++j) {
    beside.Step(j);
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
  beside.Done();
}

// Adds all columns: four vectors at a time, then the rest in parts that still keep many chains in
// flight.
template <int kRows, class Beside>
ANNULUS_ISA_INLINE void ValueTiles(const PairedChunk& chunk, float* o, int64_t stride,
                                   const uint32_t (*weights)[kTilePairs], int begin, int end,
                                   Beside& beside) {
  int64_t c = 0;
  for (; stride - c >= 6 * kPanel || stride - c == 4 * kPanel; c += 4 * kPanel) {
    ValueTile<kRows, 4>(chunk, o + c, stride, weights, c, begin, end, beside);
  }
  for (; stride - c >= 3 * kPanel; c += 3 * kPanel) {
    ValueTile<kRows, 3>(chunk, o + c, stride, weights, c, begin, end, beside);
  }
  if (stride - c == 2 * kPanel) {
    ValueTile<kRows, 2>(chunk, o + c, stride, weights, c, begin, end, beside);
  } else if (stride - c == kPanel) {
    ValueTile<kRows, 1>(chunk, o + c, stride, weights, c, begin, end, beside);
  }
}

// Adds one pair of slots to one row. Uses only the values in `keep` (0xffff: low slot, 0xffff0000:
// high slot); the other value is ignored, whatever it is.
inline void AddPair(float* o, int64_t stride, uint32_t weight, const uint32_t* v, uint32_t keep) {
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(keep));
  const __m512i wide = _mm512_set1_epi32(static_cast<int>(weight));
  for (int64_t c = 0; c < stride; c += kPanel) {
    const __m512i values = _mm512_and_si512(LoadPairs(v + c), mask);
    _mm512_storeu_ps(o + c, Dot(_mm512_loadu_ps(o + c), wide, values));
  }
}

// Attends a tile that needs masks, or in which some row's maximum may have to be raised.
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
  // Pairs that all rows see are added for all rows together; slots before and after them row by
  // row. Each row still adds its own keys in ascending order.
  const int64_t stride = block.v_stride;
  float* const o = block.o + row * stride;
  const int shared_begin = (all_begin + 1) / 2;
  const int shared_end = all_end / 2;
  const bool shared = shared_begin < shared_end;
  NoSteps no_steps;
  const auto add_row = [&](int r, int begin, int end) {
    float* const row_o = o + r * stride;
    const uint32_t(*row_weights)[kTilePairs] = weights.pairs + r;
    if (begin >= end) return;
    if (begin % 2 != 0) {
      AddPair(row_o, stride, weights.pairs[r][begin / 2], chunk.v + begin / 2 * stride,
              0xffff0000u);
    }
    ValueTiles<1>(chunk, row_o, stride, row_weights, (begin + 1) / 2, end / 2, no_steps);
    if (end % 2 != 0) {
      AddPair(row_o, stride, weights.pairs[r][end / 2], chunk.v + end / 2 * stride, 0xffffu);
    }
  };
  for (int r = 0; r < kRows; ++r) {
    add_row(r, slots[r].begin, shared ? 2 * shared_begin : slots[r].end);
  }
  if (!shared) return;
  ValueTiles<kRows>(chunk, o, stride, weights.pairs, shared_begin, shared_end, no_steps);
  for (int r = 0; r < kRows; ++r) add_row(r, 2 * shared_end, slots[r].end);
}

// Sets the maximum of rows that have none yet from their dot products, just as WeighPairedRow does.
template <int kRows, bool kCap>
ANNULUS_ISA_INLINE void SetMaxima(const AttentionBlock& block, const PairedChunk& chunk, int row,
                                  const __m512 (&s)[kRows][kTilePanels]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    __m512 largest = _mm512_set1_ps(-kInfinity);
#pragma GCC unroll 8
    for (int p = 0; p < kTilePanels; ++p) {
      const float* const factors = chunk.factors + p * kPanel;
      const __m512 score = Capped<kCap>(s[r][p], factors, block.soft_cap);
      const __m512 factor = kCap ? _mm512_set1_ps(1.44269504f) : _mm512_load_ps(factors);
      largest = _mm512_max_ps(_mm512_mul_ps(score, factor), largest);
    }
    const float maximum = _mm512_reduce_max_ps(largest);
    if (maximum > kNoMaximum) block.maximum[row + r] = __builtin_ceilf(maximum);
  }
}

// The result of scoring a tile.
enum class Scored {
  kInRange,      // every score has a weight other than 0
  kBelow,        // some scores are so low that their weight is 0
  kPassesSlack,  // some row's maximum may have to be raised: the scores cannot be used
};
template <int kRows, bool kCap>
__attribute__((noinline)) Scored ScoreWhole(const AttentionBlock& block, const PairedChunk& chunk,
                                            WholeTile& tile) {
  const int64_t pairs = block.k_pairs;
  __m512 s[kRows][kTilePanels];
  DotTile<kRows, kTilePanels>(chunk, block.query_pairs + tile.row * pairs, chunk.k, pairs, s);
  if (__builtin_expect(tile.first, 0)) SetMaxima<kRows, kCap>(block, chunk, tile.row, s);
  RangeCheck range;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const __m512 offset = _mm512_set1_ps(-block.maximum[tile.row + r]);
#pragma GCC unroll 8
    for (int p = 0; p < kTilePanels; ++p) {
      const float* const factors = chunk.factors + p * kPanel;
      const __m512 score = Capped<kCap>(s[r][p], factors, block.soft_cap);
      const __m512 factor = kCap ? _mm512_set1_ps(1.44269504f) : _mm512_load_ps(factors);
      s[r][p] = _mm512_fmadd_ps(score, factor, offset);
      range.Add(s[r][p]);
      _mm512_store_ps(tile.above + (r * kTilePanels + p) * kPanel, s[r][p]);
    }
  }
  if (__builtin_expect(range.AllInRange(), 1)) return Scored::kInRange;
  __mmask16 passing = 0;
  for (int i = 0; i < kRows * kTilePanels; ++i) {
    passing |= PassSlack(_mm512_load_ps(tile.above + i * kPanel));
  }
  return passing != 0 ? Scored::kPassesSlack : Scored::kBelow;
}

template <int kRows, class Beside>
__attribute__((noinline)) void AddWhole(const AttentionBlock& block, const PairedChunk& chunk,
                                        const WholeTile& tile, Beside& beside) {
  ValueTiles<kRows>(chunk, block.o + int64_t{tile.row} * block.v_stride, block.v_stride,
                    FactorsOf(chunk, tile).pairs, 0, kTilePairs, beside);
}

// The functions for tiles of one height.
struct TileParts {
  Scored (*score)(const AttentionBlock&, const PairedChunk&, WholeTile&);
  void (*add)(const AttentionBlock&, const PairedChunk&, const WholeTile&, TileSoftmax&);
  void (*add_alone)(const AttentionBlock&, const PairedChunk&, const WholeTile&, NoSteps&);
  void (*part)(const AttentionBlock&, int row, const PairedChunk&);
};
template <int kRows, bool kCap>
inline constexpr TileParts kTileParts = {&ScoreWhole<kRows, kCap>, &AddWhole<kRows, TileSoftmax>,
                                         &AddWhole<kRows, NoSteps>, &AttendPart<kRows, kCap>};
template <bool kCap>
inline constexpr const TileParts* kTilePartsOf[kTileRows + 1] = {nullptr,
                                                                 &kTileParts<1, kCap>,
                                                                 &kTileParts<2, kCap>,
                                                                 &kTileParts<3, kCap>,
                                                                 &kTileParts<4, kCap>,
                                                                 &kTileParts<5, kCap>,
                                                                 &kTileParts<6, kCap>};
static_assert(kTileRows == 6);

// Processes the tiles of one chunk in turn. A whole tile's values stay due until the next tile is
// scored, so that the product can be interleaved with that tile's softmax.
template <bool kCap>
class ChunkTiles {
 public:
  ChunkTiles(const AttentionBlock& block, const PairedChunk& chunk)
      : block_(block), chunk_(chunk) {}

  // Returns false, and changes nothing, if some row's maximum may have to be raised.
  bool Whole(int row, int height) {
    WholeTile& tile = due_ == &tiles_[0] ? tiles_[1] : tiles_[0];
    tile.row = row;
    tile.height = height;
    tile.first = HaveNoMaximum(row, height);
    const Scored scored = kTilePartsOf<kCap>[height] -> score(block_, chunk_, tile);
    if (scored == Scored::kPassesSlack) return false;
    TileSoftmax softmax(block_, chunk_, tile);
    if (due_ != nullptr && scored == Scored::kInRange) {
      kTilePartsOf<kCap>[due_->height] -> add(block_, chunk_, *due_, softmax);
    } else {
      AddDue();
      softmax.StepAlone();
    }
    due_ = &tile;
    return true;
  }

  void AddDue() {
    NoSteps no_steps;
    if (due_ != nullptr) {
      kTilePartsOf<kCap>[due_->height] -> add_alone(block_, chunk_, *due_, no_steps);
    }
    due_ = nullptr;
  }

 private:
  bool HaveNoMaximum(int row, int height) const {
    int r = 0;
    while (r < height && block_.maximum[row + r] == kNoMaximum) ++r;
    return r == height;
  }

  const AttentionBlock& block_;
  const PairedChunk& chunk_;
  WholeTile tiles_[2];
  WholeTile* due_ = nullptr;
};

template <bool kCap>
void AttendChunk(const AttentionBlock& block, const PairedChunk& chunk) {
  const int rows = block.position_count * block.group;
  ChunkTiles<kCap> tiles(block, chunk);
  for (int row = 0; row < rows;) {
    const int left = rows - row;
    // Two tiles of similar height are faster than a full one and a flat one. Few rows, which wait
    // for memory, fit a single low tile.
    const int height = left >= 2 * kTileRows ? kTileRows
                       : left >= kTileRows   ? (left + 1) / 2
                                             : left;
    if (height == kTileRows) Ask(chunk.ahead, chunk.asked_of_tile);
    const Sight sight = FindSight(block, row, height, chunk);
    const bool done = sight.none || (sight.whole && tiles.Whole(row, height));
    if (!done) kTilePartsOf<kCap>[height] -> part(block, row, chunk);
    row += height;
  }
  tiles.AddDue();
}

void AttendPairedChunk(const AttentionBlock& block, const AttentionKeys& keys) {
  PairedChunk chunk;
  MakeChunk(block, keys, &chunk);
  if (chunk.ahead != nullptr) {
    // Spread the prefetches over all tiles of rows, and within low tiles over their steps.
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

void AttendPairedKeys(const AttentionBlock& block, const AttentionKeys* chunks, int count) {
  for (int i = 0; i < count; ++i) AttendPairedChunk(block, chunks[i]);
}

#undef ANNULUS_ISA_INLINE

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_ATTENTION_BF16_H_
