#ifndef ANNULUS_KERNELS_CPU_ISA_ATTENTION_AMX_H_
#define ANNULUS_KERNELS_CPU_ISA_ATTENTION_AMX_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa/amx_tiles.h"
#include "kernels/cpu/isa/paired_softmax.h"
#include "kernels/cpu/simd/kernels.h"

// Attention over paired bf16 pages with AMX tiles. TDPBF16PS multiplies 16 rows by 32 elements of
// depth by 16 columns; it can read a page's pairs directly. Up to 32 rows meet a chunk of 64 keys
// at a time: scores go through memory to the softmax on vectors, its weights through memory to the
// product with the values. The products with the values of up to kChunksTogether chunks follow one
// another, so that the tiles with the sums are loaded and stored once: storing a tile takes as long
// as a product.
//
// The three kinds of work follow one another, because overlapping them gains nothing: near tile
// instructions the processor multiplies vectors with one unit instead of two, and stores of tiles
// occupy the unit that permutes vectors (bench/results/kernels-by-hand.md).
//
// Each row of a tile is computed from that row alone, in an order that only the depth fixes. Every
// row of a tile takes part in all 64 keys; keys it does not see have weight 0, which adds nothing
// unless the value is infinite or NaN. Such values are looked for in chunks that some row sees only
// in part. If there are any, each of those rows is computed alone, with unseen values replaced by
// 0.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

#define ANNULUS_ISA_INLINE inline __attribute__((always_inline))

// Divides the lines to prefetch: a quarter of them during the softmax, which takes about that share
// of the time, the rest during the products.
ANNULUS_ISA_INLINE Ahead ShareLines(const AttentionBlock& block, const PairedChunk& chunk,
                                    int rows) {
  if (chunk.ahead == nullptr) return {};
  const int lines = chunk.ahead->lines[0] + chunk.ahead->lines[1];
  const int tiles = kTilePanels * (block.k_pairs + kAmxDepth - 1) / kAmxDepth +
                    block.v_stride / kPanel * (kTilePairs / kAmxDepth);
  Ahead ahead;
  ahead.lines = chunk.ahead;
  ahead.row = lines / 4 / rows;
  ahead.tile = (lines - ahead.row * rows + tiles - 1) / tiles;
  return ahead;
}

// One tile's scores, and the weights computed from them where they are used at once.
struct alignas(64) AmxTile {
  float scores[kAmxBlockRows][kKeyChunk];
  uint32_t weights[kAmxBlockRows][kTilePairs];
};

struct alignas(64) AmxScratch {
  AmxTile tile;
  uint32_t values[kTilePairs][2 * kPanel];  // two panels of a chunk's values; unseen ones are 0
  float sums[kAmxRows][kPanel];
  uint32_t weights[kChunksTogether][kAmxBlockRows][kTilePairs];  // of WeighedChunks
};

// scores[r][16 p ..] = query row r . keys of kPanels panels, starting at `panel`.
template <int kHalves, int kPanels>
ANNULUS_ISA_INLINE void ScorePanels(const AttentionBlock& block, int row, const PairedChunk& chunk,
                                    int panel, AmxTile& tile, const Ahead& ahead) {
  const int64_t pairs = block.k_pairs;
  const int64_t panel_bytes = pairs * kAmxRowBytes;
  const uint32_t* const query = block.query_pairs + row * pairs;
  const uint32_t* const keys = chunk.k + panel * pairs * kPanel;
  ZeroSums<kHalves, kPanels>();
  for (int64_t i = 0; i < pairs; i += kAmxDepth) {
    MultiplyTiles<kHalves, kPanels>(query + i, pairs * 4, keys + i * kPanel, kAmxRowBytes,
                                    panel_bytes, ahead);
  }
  StoreSums<kHalves, kPanels>(&tile.scores[0][panel * kPanel], kKeyChunk);
}

template <int kHalves>
ANNULUS_ISA_INLINE void ScoreChunk(const AttentionBlock& block, int row, const PairedChunk& chunk,
                                   AmxTile& tile, const Ahead& ahead) {
  constexpr int kPanels = kPanelsAtOnce<kHalves>;
  int panel = 0;
  for (; panel + kPanels <= chunk.panels; panel += kPanels) {
    ScorePanels<kHalves, kPanels>(block, row, chunk, panel, tile, ahead);
  }
  for (; panel < chunk.panels; ++panel) {
    ScorePanels<kHalves, 1>(block, row, chunk, panel, tile, ahead);
  }
}

// sums += weights * values of 64 slots, for kPanels * 16 columns of sums that are in tiles.
template <int kHalves, int kPanels>
ANNULUS_ISA_INLINE void MultiplyValues(const uint32_t (*weights)[kTilePairs],
                                       const uint32_t* values, int64_t value_stride,
                                       const Ahead& ahead) {
  for (int j = 0; j < kTilePairs; j += kAmxDepth) {
    MultiplyTiles<kHalves, kPanels>(weights[0] + j, sizeof(weights[0]), values + j * value_stride,
                                    value_stride * 4, kAmxRowBytes, ahead);
  }
}

// The same for sums in memory.
template <int kHalves, int kPanels>
ANNULUS_ISA_INLINE void AddPanels(const AmxTile& tile, const uint32_t* values, int64_t value_stride,
                                  float* sums, int64_t sums_stride) {
  LoadSums<kHalves, kPanels>(sums, sums_stride);
  MultiplyValues<kHalves, kPanels>(tile.weights, values, value_stride, {});
  StoreSums<kHalves, kPanels>(sums, sums_stride);
}

// The weights of a tile's rows for chunks that all of them see entirely, whose values are yet to be
// added.
struct WeighedChunks {
  struct Chunk {
    const uint32_t* v;
    const uint32_t (*weights)[kTilePairs];
  };
  Chunk chunks[kChunksTogether];
  int count = 0;

  void Push(const PairedChunk& chunk, const uint32_t (*weights)[kTilePairs]) {
    chunks[count++] = {chunk.v, weights};
  }
};

template <int kHalves, int kPanels>
ANNULUS_ISA_INLINE void AddWholePanels(const AttentionBlock& block, int row,
                                       const WeighedChunks& weighed, int64_t c,
                                       const Ahead& ahead) {
  const int64_t stride = block.v_stride;
  float* const o = block.o + row * stride + c;
  LoadSums<kHalves, kPanels>(o, stride);
  for (int i = 0; i < weighed.count; ++i) {
    const WeighedChunks::Chunk& chunk = weighed.chunks[i];
    MultiplyValues<kHalves, kPanels>(chunk.weights, chunk.v + c, stride, ahead);
  }
  StoreSums<kHalves, kPanels>(o, stride);
}

// Adds the values of a tile: kPanelsAtOnce panels at a time, then two and one.
template <int kHalves>
ANNULUS_ISA_INLINE void AddWhole(const AttentionBlock& block, int row, WeighedChunks& weighed,
                                 const Ahead& ahead) {
  if (weighed.count == 0) return;
  constexpr int kPanels = kPanelsAtOnce<kHalves>;
  StoresBeforeTiles();
  int64_t c = 0;
  for (; c + kPanels * kPanel <= block.v_stride; c += kPanels * kPanel) {
    AddWholePanels<kHalves, kPanels>(block, row, weighed, c, ahead);
  }
  if (kPanels > 2 && c + 2 * kPanel <= block.v_stride) {
    AddWholePanels<kHalves, 2>(block, row, weighed, c, ahead);
    c += 2 * kPanel;
  }
  if (c < block.v_stride) AddWholePanels<kHalves, 1>(block, row, weighed, c, ahead);
  weighed.count = 0;
}

// Copies `vectors` panels of a chunk's values from column c on, replacing slots outside `slots` by
// 0. Returns whether all copied values are finite.
inline bool CopyValues(const AttentionBlock& block, const PairedChunk& chunk, int64_t c,
                       int vectors, Slots slots, AmxScratch& scratch) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __mmask32 special = 0;
  for (int j = 0; j < kTilePairs; ++j) {
    const bool low = slots.begin <= 2 * j && 2 * j < slots.end;
    const bool high = slots.begin <= 2 * j + 1 && 2 * j + 1 < slots.end;
    const uint32_t keep = (low ? 0xffffu : 0) | (high ? 0xffff0000u : 0);
    for (int p = 0; p < vectors; ++p) {
      __m512i values = _mm512_setzero_si512();
      if (keep != 0) {
        values = _mm512_and_si512(
            _mm512_set1_epi32(static_cast<int>(keep)),
            _mm512_loadu_si512(chunk.v + j * int64_t{block.v_stride} + c + p * kPanel));
      }
      special |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(values, exponent), exponent);
      _mm512_store_si512(&scratch.values[j][p * kPanel], values);
    }
  }
  return special == 0;
}

// Adds one row's values of one panel, using a tile that holds no other row.
inline void AddRowAlone(const AttentionBlock& block, int row, int r, const PairedChunk& chunk,
                        int64_t c, Slots slots, AmxScratch& scratch) {
  CopyValues(block, chunk, c, 1, slots, scratch);
  float* const o = block.o + int64_t{row + r} * block.v_stride + c;
  AmxTile alone;
  __builtin_memset(alone.weights, 0, sizeof(alone.weights));
  __builtin_memcpy(alone.weights[0], scratch.tile.weights[r], sizeof(alone.weights[0]));
  __builtin_memset(scratch.sums, 0, sizeof(scratch.sums));
  __builtin_memcpy(scratch.sums[0], o, sizeof(scratch.sums[0]));
  StoresBeforeTiles();
  AddPanels<1, 1>(alone, scratch.values[0], 2 * kPanel, scratch.sums[0], kPanel);
  __builtin_memcpy(o, scratch.sums[0], sizeof(scratch.sums[0]));
}

template <int kHalves>
inline void AddPartValues(const AttentionBlock& block, int row, int rows, const PairedChunk& chunk,
                          const Slots* slots, AmxScratch& scratch) {
  Slots any = {kKeyChunk, 0};
  for (int r = 0; r < rows; ++r) {
    if (slots[r].begin >= slots[r].end) continue;
    any.begin = static_cast<int>(Smaller(any.begin, slots[r].begin));
    any.end = static_cast<int>(Larger(any.end, slots[r].end));
  }
  const int64_t stride = block.v_stride;
  float* const o = block.o + row * stride;
  for (int64_t c = 0; c < stride;) {
    const int panels = c + 2 * kPanel <= stride ? 2 : 1;
    if (CopyValues(block, chunk, c, panels, any, scratch)) {
      StoresBeforeTiles();
      if (panels == 2) {
        AddPanels<kHalves, 2>(scratch.tile, scratch.values[0], 2 * kPanel, o + c, stride);
      } else {
        AddPanels<kHalves, 1>(scratch.tile, scratch.values[0], 2 * kPanel, o + c, stride);
      }
    } else {
      for (int r = 0; r < rows; ++r) {
        for (int p = 0; p < panels; ++p) {
          AddRowAlone(block, row, r, chunk, c + p * kPanel, slots[r], scratch);
        }
      }
    }
    c += panels * kPanel;
  }
}

// Adds 64 rounded weights to a row's sums, in the order of AddWeights, whose dot products take
// twice as long.
ANNULUS_ISA_INLINE void AddRoundedWeights(__m512i low, __m512i high, float* sums) {
  const __m512i odd = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  __m512 sum = _mm512_loadu_ps(sums);
  sum = _mm512_add_ps(sum, _mm512_castsi512_ps(_mm512_and_si512(low, odd)));
  sum = _mm512_add_ps(sum, _mm512_castsi512_ps(_mm512_slli_epi32(low, 16)));
  sum = _mm512_add_ps(sum, _mm512_castsi512_ps(_mm512_and_si512(high, odd)));
  sum = _mm512_add_ps(sum, _mm512_castsi512_ps(_mm512_slli_epi32(high, 16)));
  _mm512_storeu_ps(sums, sum);
}

// KeepWeights for a row that sees all 64 keys.
ANNULUS_ISA_INLINE void KeepWholeRow(const PairedChunk& chunk, const __m512* p, uint32_t* pairs,
                                     float* sums) {
  __m512i low = RoundPairs(p[0], p[1]);
  __m512i high = RoundPairs(p[2], p[3]);
  AddRoundedWeights(low, high, sums);
  if (chunk.scaled) {
    __m512 scaled[kTilePanels];
#pragma GCC unroll 8
    for (int i = 0; i < kTilePanels; ++i) {
      scaled[i] = _mm512_mul_ps(p[i], _mm512_load_ps(chunk.value_scales + i * kPanel));
    }
    low = RoundPairs(scaled[0], scaled[1]);
    high = RoundPairs(scaled[2], scaled[3]);
  }
  _mm512_store_si512(pairs, low);
  _mm512_store_si512(pairs + kPanel, high);
}

// Exp2InRange of four t, given them in sixteenths, with the same bits. Four at a time, since the
// processor looks ahead over few instructions; the power of two by VSCALEFPS, which takes one
// instruction less.
ANNULUS_ISA_INLINE void FourPowers(const __m512* in_sixteenths, __m512* t) {
  constexpr int kRemainder = 4 << 4 | _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const __m512 powers = _mm512_load_ps(kPowers.of);
  const __m512 slopes = _mm512_load_ps(kSlopes.of);
  __m512 f[4];
  __m512 line[4];
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) f[i] = _mm512_reduce_ps(t[i], kRemainder);
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    line[i] = _mm512_permutexvar_ps(_mm512_castps_si512(in_sixteenths[i]), slopes);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    const __m512i index = _mm512_castps_si512(in_sixteenths[i]);
    line[i] = _mm512_fmadd_ps(line[i], f[i], _mm512_permutexvar_ps(index, powers));
  }
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    // The table's powers have the factor 2^-kDepth.
    const __m512 exponent = _mm512_sub_ps(in_sixteenths[i], _mm512_set1_ps(kSixteenths));
    t[i] = _mm512_scalef_ps(line[i], exponent);
  }
}

// Computes the softmax weights of kRows rows that see all 64 keys. Returns false, and changes
// nothing, if some weight is 0 or some maximum may have to be raised.
template <int kRows, bool kCap>
ANNULUS_ISA_INLINE bool WeighInRange(const AttentionBlock& block, int row, const PairedChunk& chunk,
                                     const float* scores, uint32_t* pairs) {
  constexpr int kVectors = kRows * kTilePanels;
  __m512 t[kVectors];
  __m512 in_sixteenths[kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    const __m512 offset = _mm512_set1_ps(-block.maximum[row + i / kTilePanels]);
    const float* const factors = chunk.factors + i % kTilePanels * kPanel;
    const __m512 score = Capped<kCap>(_mm512_load_ps(scores + i * kPanel), factors, block.soft_cap);
    const __m512 factor = kCap ? _mm512_set1_ps(1.44269504f) : _mm512_load_ps(factors);
    t[i] = _mm512_fmadd_ps(score, factor, offset);
  }
  RangeCheck range;
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    in_sixteenths[i] = InSixteenths(t[i]);
    range.Add(t[i]);
  }
  if (__builtin_expect(!range.AllInRange(), 0)) return false;
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; i += kTilePanels) FourPowers(in_sixteenths + i, t + i);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    KeepWholeRow(chunk, t + r * kTilePanels, pairs + r * kTilePairs,
                 block.sums + int64_t{row + r} * kPanel);
  }
  return true;
}
static_assert(kTilePanels == 4);

// For a row of which WeighInRange returns false.
template <bool kCap>
inline void WeighOutOfRange(const AttentionBlock& block, int row, const PairedChunk& chunk,
                            const float* scores, uint32_t* pairs) {
  if (block.maximum[row] == kNoMaximum) {
    return WeighFirstRow<kCap>(block, row, chunk, scores, pairs);
  }
  WeighPairedRow<kCap>(block, row, chunk, scores, {0, kKeyChunk}, pairs);
}

// The weights of a tile whose rows all see the whole chunk, from its scores. Values of chunks
// before it are added first if a maximum may be raised, which scales the sums.
template <int kHalves, bool kCap>
ANNULUS_ISA_INLINE void WeighTile(const AttentionBlock& block, int row, int rows,
                                  const PairedChunk& chunk, const AmxTile& tile,
                                  WeighedChunks& before, uint32_t (*weights)[kTilePairs]) {
  int r = 0;
  for (; r + 2 <= rows; r += 2) {
    if (WeighInRange<2, kCap>(block, row + r, chunk, tile.scores[r], weights[r])) continue;
    AddWhole<kHalves>(block, row, before, {});
    for (int i = r; i < r + 2; ++i) {
      WeighOutOfRange<kCap>(block, row + i, chunk, tile.scores[i], weights[i]);
    }
  }
  if (r == rows || WeighInRange<1, kCap>(block, row + r, chunk, tile.scores[r], weights[r])) return;
  AddWhole<kHalves>(block, row, before, {});
  WeighOutOfRange<kCap>(block, row + r, chunk, tile.scores[r], weights[r]);
}

// For rows that see only part of the chunk.
template <int kHalves, bool kCap>
__attribute__((noinline)) void AttendPartRows(const AttentionBlock& block, int row, int rows,
                                              const PairedChunk& chunk, AmxScratch& scratch) {
  AmxTile& tile = scratch.tile;
  Slots slots[kAmxBlockRows];
  for (int r = 0; r < rows; ++r) {
    slots[r] = FindSlots(block, block.row_positions[row + r], chunk);
    if (slots[r].begin < slots[r].end) {
      WeighPairedRow<kCap>(block, row + r, chunk, tile.scores[r], slots[r], tile.weights[r]);
    } else {
      __builtin_memset(tile.weights[r], 0, sizeof(tile.weights[r]));
    }
  }
  AddPartValues<kHalves>(block, row, rows, chunk, slots, scratch);
}

// WeighInRange for a row of a block that prefetches. Fewer instructions would be slower there,
// since memory is asked for between them.
template <bool kCap>
ANNULUS_ISA_INLINE bool WeighFewInRange(const AttentionBlock& block, int row,
                                        const PairedChunk& chunk, const float* scores,
                                        uint32_t* pairs) {
  const __m512 offset = _mm512_set1_ps(-block.maximum[row]);
  __m512 t[kTilePanels];
  RangeCheck range;
#pragma GCC unroll 8
  for (int p = 0; p < kTilePanels; ++p) {
    const float* const factors = chunk.factors + p * kPanel;
    const __m512 score = Capped<kCap>(_mm512_load_ps(scores + p * kPanel), factors, block.soft_cap);
    const __m512 factor = kCap ? _mm512_set1_ps(1.44269504f) : _mm512_load_ps(factors);
    t[p] = _mm512_fmadd_ps(score, factor, offset);
    range.Add(t[p]);
  }
  if (__builtin_expect(!range.AllInRange(), 0)) return false;
#pragma GCC unroll 8
  for (int p = 0; p < kTilePanels; ++p) t[p] = Exp2InRange(t[p]);
  KeepWeights(chunk, t, ~uint64_t{0}, pairs, block.sums + int64_t{row} * kPanel);
  return true;
}

// For blocks of one tile, which prefetch.
template <bool kCap>
void AttendFewRows(const AttentionBlock& block, int rows, const PairedChunk& chunk,
                   AmxScratch& scratch) {
  const Sight sight = FindSight(block, 0, rows, chunk);
  if (sight.none) return;
  AmxTile& tile = scratch.tile;
  const Ahead ahead = ShareLines(block, chunk, rows);
  ScoreChunk<1>(block, 0, chunk, tile, ahead);
  if (chunk.narrow != nullptr) chunk.widen_values(*chunk.narrow);
  if (!sight.whole) return AttendPartRows<1, kCap>(block, 0, rows, chunk, scratch);
  for (int r = 0; r < rows; ++r) {
    if (!WeighFewInRange<kCap>(block, r, chunk, tile.scores[r], tile.weights[r])) {
      WeighOutOfRange<kCap>(block, r, chunk, tile.scores[r], tile.weights[r]);
    }
    Ask(ahead.lines, ahead.row);
  }
  WeighedChunks weighed;
  weighed.Push(chunk, tile.weights);
  AddWhole<1>(block, 0, weighed, ahead);
}

// For one tile of a larger block, with all chunks.
template <int kHalves, bool kCap>
__attribute__((noinline)) void AttendTile(const AttentionBlock& block, int row, int rows,
                                          const PairedChunk* chunks, int count,
                                          AmxScratch& scratch) {
  WeighedChunks weighed;
  for (int i = 0; i < count; ++i) {
    const PairedChunk& chunk = chunks[i];
    const Sight sight = FindSight(block, row, rows, chunk);
    if (sight.none) continue;
    ScoreChunk<kHalves>(block, row, chunk, scratch.tile, {});
    if (sight.whole) {
      WeighTile<kHalves, kCap>(block, row, rows, chunk, scratch.tile, weighed, scratch.weights[i]);
      weighed.Push(chunk, scratch.weights[i]);
    } else {
      AddWhole<kHalves>(block, row, weighed, {});
      AttendPartRows<kHalves, kCap>(block, row, rows, chunk, scratch);
    }
  }
  AddWhole<kHalves>(block, row, weighed, {});
}

template <bool kCap>
void AttendAmxChunks(const AttentionBlock& block, const PairedChunk* chunks, int count,
                     AmxScratch& scratch) {
  const int rows = block.position_count * block.group;
  if (rows <= kAmxRows) {
    for (int i = 0; i < count; ++i) AttendFewRows<kCap>(block, rows, chunks[i], scratch);
    return;
  }
  for (int row = 0; row < rows; row += kAmxBlockRows) {
    const int height = static_cast<int>(Smaller(kAmxBlockRows, rows - row));
    if (height <= kAmxRows) {
      AttendTile<1, kCap>(block, row, height, chunks, count, scratch);
    } else {
      AttendTile<2, kCap>(block, row, height, chunks, count, scratch);
    }
  }
}

void AttendAmxKeys(const AttentionBlock& block, const AttentionKeys* keys, int count) {
  AmxScratch scratch;
  PairedChunk chunks[kChunksTogether];
  for (int i = 0; i < count; ++i) MakeChunk(block, keys[i], &chunks[i]);
  if (block.soft_cap > 0) {
    AttendAmxChunks<true>(block, chunks, count, scratch);
  } else {
    AttendAmxChunks<false>(block, chunks, count, scratch);
  }
}

// The tile configuration belongs to the thread: set here, released by FinishAmxSpan.
void ConfigureAmx(const AttentionBlock& block) {
  const int rows = block.position_count * block.group;
  _tile_loadconfig(rows < kAmxRows ? &kFewRowsConfigs.config[rows] : &kAmxConfig);
}

void BeginAmxSpan(const AttentionBlock& block) {
  BeginPairedSpan(block);
  ConfigureAmx(block);
}

void FinishAmxSpan(const AttentionBlock& block) {
  _tile_release();
  FinishPairedSpan(block);
}

#undef ANNULUS_ISA_INLINE

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_ATTENTION_AMX_H_
