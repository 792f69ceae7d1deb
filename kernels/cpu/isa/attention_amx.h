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
// product with the values.
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

// One tile's scores, and the weights computed from them.
struct alignas(64) AmxTile {
  float scores[kAmxBlockRows][kKeyChunk];
  uint32_t weights[kAmxBlockRows][kTilePairs];
};

struct alignas(64) AmxScratch {
  AmxTile tile;
  uint32_t values[kTilePairs][2 * kPanel];  // two panels of a chunk's values; unseen ones are 0
  float sums[kAmxRows][kPanel];
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

// sums += weights * values of 64 slots, for kPanels * 16 columns.
template <int kHalves, int kPanels>
ANNULUS_ISA_INLINE void AddPanels(const AmxTile& tile, const uint32_t* values, int64_t value_stride,
                                  float* sums, int64_t sums_stride, const Ahead& ahead) {
  LoadSums<kHalves, kPanels>(sums, sums_stride);
  for (int j = 0; j < kTilePairs; j += kAmxDepth) {
    MultiplyTiles<kHalves, kPanels>(&tile.weights[0][j], sizeof(tile.weights[0]),
                                    values + j * value_stride, value_stride * 4, kAmxRowBytes,
                                    ahead);
  }
  StoreSums<kHalves, kPanels>(sums, sums_stride);
}

// Adds the values of a tile from column c on: kPanelsAtOnce panels, or two or one if fewer are
// left. Returns the number of panels.
template <int kHalves>
ANNULUS_ISA_INLINE int AddWholePanels(const AttentionBlock& block, int row,
                                      const PairedChunk& chunk, int64_t c, const AmxTile& tile,
                                      const Ahead& ahead) {
  constexpr int kPanels = kPanelsAtOnce<kHalves>;
  const int64_t stride = block.v_stride;
  float* const o = block.o + row * stride + c;
  const int64_t left = (stride - c) / kPanel;
  if (left >= kPanels) {
    AddPanels<kHalves, kPanels>(tile, chunk.v + c, stride, o, stride, ahead);
    return kPanels;
  }
  if (kPanels > 2 && left >= 2) {
    AddPanels<kHalves, 2>(tile, chunk.v + c, stride, o, stride, ahead);
    return 2;
  }
  AddPanels<kHalves, 1>(tile, chunk.v + c, stride, o, stride, ahead);
  return 1;
}

template <int kHalves>
ANNULUS_ISA_INLINE void AddWhole(const AttentionBlock& block, int row, const PairedChunk& chunk,
                                 const AmxTile& tile, const Ahead& ahead) {
  for (int64_t c = 0; c < block.v_stride;) {
    c += kPanel * AddWholePanels<kHalves>(block, row, chunk, c, tile, ahead);
  }
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
  AddPanels<1, 1>(alone, scratch.values[0], 2 * kPanel, scratch.sums[0], kPanel, {});
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
        AddPanels<kHalves, 2>(scratch.tile, scratch.values[0], 2 * kPanel, o + c, stride, {});
      } else {
        AddPanels<kHalves, 1>(scratch.tile, scratch.values[0], 2 * kPanel, o + c, stride, {});
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

// Computes the softmax weights of a row that sees all 64 keys.
template <bool kCap>
ANNULUS_ISA_INLINE void WeighWholeRow(const AttentionBlock& block, int row,
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
  if (__builtin_expect(!range.AllInRange(), 0)) {
    if (block.maximum[row] == kNoMaximum) {
      return WeighFirstRow<kCap>(block, row, chunk, scores, pairs);
    }
    return WeighPairedRow<kCap>(block, row, chunk, scores, {0, kKeyChunk}, pairs);
  }
#pragma GCC unroll 8
  for (int p = 0; p < kTilePanels; ++p) t[p] = Exp2InRange(t[p]);
  KeepWeights(chunk, t, ~uint64_t{0}, pairs, block.sums + int64_t{row} * kPanel);
}

// For rows that see only part of the chunk, and for blocks too small for the pipeline below.
template <int kHalves, bool kCap>
__attribute__((noinline)) void AttendAmxRows(const AttentionBlock& block, int row, int rows,
                                             const PairedChunk& chunk, bool whole,
                                             AmxScratch& scratch) {
  AmxTile& tile = scratch.tile;
  const Ahead ahead = kHalves == 1 ? ShareLines(block, chunk, rows) : Ahead{};
  ScoreChunk<kHalves>(block, row, chunk, tile, ahead);
  if (kHalves == 1 && chunk.narrow != nullptr) chunk.widen_values(*chunk.narrow);
  if (whole) {
    for (int r = 0; r < rows; ++r) {
      WeighWholeRow<kCap>(block, row + r, chunk, tile.scores[r], tile.weights[r]);
      Ask(ahead.lines, ahead.row);
    }
    StoresBeforeTiles();
    AddWhole<kHalves>(block, row, chunk, tile, ahead);
    return;
  }
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

// Processes tiles whose rows all see the whole chunk, overlapping three of them: while vectors
// compute the softmax of one tile, the tile unit adds the values of the one before and computes the
// scores of the next. The two kinds of instructions are interleaved, so that both units stay busy
// and the data each writes has left the store buffer when the other reads it.
template <bool kCap>
class AmxPipeline {
 public:
  AmxPipeline(const AttentionBlock& block, const PairedChunk& chunk, AmxTile (&tiles)[2])
      : block_(block), chunk_(chunk), tiles_(tiles) {}

  void Push(int row, int rows) {
    if (scored_.rows == 0) {
      ScoreChunk<2>(block_, row, chunk_, tiles_[current_], {});
    } else {
      Step(row);
    }
    scored_ = {row, rows};
  }

  void Finish() {
    if (scored_.rows == 0) return;
    Step(-1);
    StoresBeforeTiles();
    AddWhole<2>(block_, weighed_.row, chunk_, tiles_[1 - current_], {});
  }

 private:
  struct Rows {
    int row = 0;
    int rows = 0;
  };

  // Computes the softmax of the scored tile, adds the values of the weighed one, and scores the
  // tile at `next` unless it is negative. Every tile has two pairs of score panels and `pairs`
  // pairs of value panels.
  __attribute__((noinline)) void Step(int next) {
    AmxTile& tile = tiles_[current_];
    AmxTile& other = tiles_[1 - current_];
    const int pairs = (block_.v_stride + 2 * kPanel - 1) / (2 * kPanel);
    const int adds = weighed_.rows > 0 ? pairs : 0;
    const int parts = adds + (next >= 0 ? 2 : 0);
    int part = 0;
    for (int r = 0; r < scored_.rows; ++r) {
      WeighWholeRow<kCap>(block_, scored_.row + r, chunk_, tile.scores[r], tile.weights[r]);
      for (; part * scored_.rows < (r + 1) * parts; ++part) {
        StoresBeforeTiles();
        if (part < adds) {
          AddWholePanels<2>(block_, weighed_.row, chunk_, int64_t{part} * 2 * kPanel, other, {});
        } else {
          ScorePanels<2, 2>(block_, next, chunk_, 2 * (part - adds), other, {});
        }
      }
    }
    weighed_ = scored_;
    current_ = 1 - current_;
  }

  const AttentionBlock& block_;
  const PairedChunk& chunk_;
  AmxTile (&tiles_)[2];
  int current_ = 0;  // the tile that holds scores
  Rows scored_;
  Rows weighed_;
};

template <bool kCap>
void AttendAmxChunk(const AttentionBlock& block, const PairedChunk& chunk, AmxTile (&tiles)[2],
                    AmxScratch& scratch) {
  const int rows = block.position_count * block.group;
  AmxPipeline<kCap> pipeline(block, chunk, tiles);
  for (int row = 0; row < rows; row += kAmxBlockRows) {
    const int count = static_cast<int>(Smaller(kAmxBlockRows, rows - row));
    const Sight sight = FindSight(block, row, count, chunk);
    if (sight.none) continue;
    if (count <= kAmxRows) {
      AttendAmxRows<1, kCap>(block, row, count, chunk, sight.whole, scratch);
    } else if (sight.whole) {
      pipeline.Push(row, count);
    } else {
      AttendAmxRows<2, kCap>(block, row, count, chunk, false, scratch);
    }
  }
  pipeline.Finish();
}

void AttendAmxKeys(const AttentionBlock& block, const AttentionKeys& keys) {
  AmxTile tiles[2];
  AmxScratch scratch;
  PairedChunk chunk;
  MakeChunk(block, keys, &chunk);
  if (block.soft_cap > 0) {
    AttendAmxChunk<true>(block, chunk, tiles, scratch);
  } else {
    AttendAmxChunk<false>(block, chunk, tiles, scratch);
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
