#ifndef ANNULUS_KERNELS_CPU_SIMD_KERNELS_H_
#define ANNULUS_KERNELS_CPU_SIMD_KERNELS_H_

#include <cstdint>

#include "kernels/ops/norm_rule.h"

// The inner kernels that are compiled once per instruction set (isa/*.h, isa/*.cc), as a table of
// plain functions over plain structs. The drivers around them (simd/*.cc) are compiled once, for
// the baseline machine. They check arguments, split the work over threads, and call through the
// table.
//
// This header and all of isa/* must not use inline functions of the standard library, Abseil or the
// rest of the project. The linker keeps one copy of such a function for the whole program. If a
// unit compiled with -mavx512f emitted it, that copy could be used by callers on a machine without
// AVX-512.

namespace annulus::cpu {

// Columns that share one vector of storage, in packed weights and in pages (keys).
inline constexpr int kPanel = 16;
// The most rows and output columns of one linear task.
inline constexpr int kLinearRows = 96;
inline constexpr int kLinearColumns = 64;
// Keys between two updates of a row's running maximum. Such a chunk starts at a slot of the page
// that is a multiple of this.
inline constexpr int kKeyChunk = 64;
// The most chunks that an inner kernel takes at a time.
inline constexpr int kChunksTogether = 4;
// Rows per register tile.
inline constexpr int kTileRows = 6;

// Storage types. Tables below that are indexed by storage type have one entry for each, in this
// order (that of DType).
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
inline constexpr int kStorageTypes = 3;  // float, Bf16, F16
// The 8-bit types of pages, in the order of DType.
struct E4M3 {
  uint8_t bits;
};
struct E5M2 {
  uint8_t bits;
};
inline constexpr int kNarrowTypes = 3;  // E4M3, E5M2, int8_t
inline constexpr int kGatedRows = 4;    // kinds of gated activations, as in elementwise.h

// Number of weight types; tables indexed by it are in the order of DType.
inline constexpr int kWeightTypes = 11;

// output[r, c] = sum_k input[r, k] * weight(c, k) (+ bias[c]) (+ output[r, c]). weight_layout.h
// describes the layout of the weights.
struct LinearTask {
  const float* input;
  int64_t input_stride;
  int rows;            // 1..kLinearRows
  const void* panels;  // columns / 16 panels, rounded up
  int64_t panel_bytes;
  int64_t scales;     // bytes from a panel's start to its scales
  int64_t group;      // inputs per scale; 0: all
  int64_t depth;      // in_features
  int columns;        // 1..kLinearColumns
  const float* bias;  // [columns] or null
  float* output;
  int64_t output_stride;
  bool accumulate;
};

// The rows of one query block that read one kv head, and their running softmax over one span. There
// are `position_count` positions by `group` query heads, position-major: row = position * group +
// head.
struct AttentionBlock {
  const float* query;  // for the first position and the group's first head
  int64_t query_stride;
  const int32_t* positions;  // [position_count], ascending
  int position_count;
  int group;
  int k_dim;
  int v_stride;  // v_dim rounded up to kPanel
  int k_pairs;   // pairs of a key, including padding
  float scale;
  float soft_cap;  // 0: none
  int64_t window;  // 0: none

  float* o;        // [rows][v_stride], sums of weight * value
  float* sums;     // [rows][kPanel], sums of weights by slot % 16
  float* maximum;  // [rows]
  float* lse;      // [rows], written by finish
  // Paired kernels only. `begin` writes these, unless `queries_ready`: an earlier span has written
  // them.
  bool queries_ready;
  uint32_t* query_pairs;   // [rows][k_pairs], the queries as bf16
  int32_t* row_positions;  // [rows]
};

// Memory that will be read next: lines[i] cache lines of kLineBytes, starting at first[i]. Blocks
// of few rows wait for memory, so their kernels prefetch a few lines at a time while they compute
// (isa/fetch.h). Prefetching all at once would fill the processor's miss buffers and leave memory
// idle afterwards.
inline constexpr int64_t kLineBytes = 64;
struct FetchAhead {
  const char* first[2];
  int lines[2];
};

// A block's queries and results lie in short pieces, one per position, too short for the hardware
// prefetcher to find the next. Kernels prefetch those of the same heads this many positions ahead.
inline constexpr int kPositionsAhead = 2;

struct NarrowKeys;

// Slots [begin, end) among the up to kKeyChunk slots that `k` and `v` hold, for one kv head of one
// page. PageLayout gives their layout.
struct AttentionKeys {
  const void* k;
  const void* v;
  // [slots], only for paired int8 keys, whose bf16 form leaves the scale out; else null
  const Bf16* k_scales;
  const Bf16* v_scales;    // likewise for values
  int64_t first_position;  // of slot 0
  FetchAhead* ahead;       // what to prefetch meanwhile; null: nothing
  // If not null, the values are not widened yet. Once the keys have been used,
  // widen_values(*narrow) writes the values to `v`, which is the same memory as `k`
  // (PairedAttention::staged_rows).
  const NarrowKeys* narrow;
  void (*widen_values)(const NarrowKeys&);
  int slots;  // number of slots in k and v; a multiple of kPanel, at most kKeyChunk
  int begin;
  int end;
};

// A request to widen slots [begin, end) of an 8-bit page for one kv head: to float32, or to bf16 if
// the page is paired. The order is kept; slot `begin` becomes slot 0.
struct NarrowKeys {
  const void* k;         // the head's keys, as in AttentionKeys
  const void* v;         // the head's values
  const Bf16* k_scales;  // [page_tokens]; int8 only
  const Bf16* v_scales;
  int begin;  // multiples of kPanel
  int end;
  FetchAhead* ahead;  // as in AttentionKeys
  int k_dim;          // of the storage; an even number if the page is paired
  int v_stride;
  void* wide_k;  // [(end - begin) * k_dim]
  void* wide_v;  // [(end - begin) * v_stride]
};

// sums[row][panel][lane] = sum over d of query[row][d][lane] * (element d of the key in the panel's
// slot `lane`), for one kv head. The 16 lanes of a row are 16 different queries, each multiplied
// with the key of its own slot. Data is in the page's byte order. Does not apply the scales of
// int8.
struct LaneDots {
  // [rows][depth][16] float32; if paired, [rows][depth][16] pairs of bf16 in the order of the keys.
  const void* query;
  const void* keys;  // [panels][depth][16] in storage; if paired, pairs
  int rows;
  int panels;
  int64_t depth;  // k_dim of the page; if paired, half of it
  float* sums;
};

// scores[head][page] = max over the page's summaries of the sum over d of max(query_d * least_d,
// query_d * greatest_d), for the query heads of one kv head.
struct SummaryBounds {
  const float* query;  // [heads][k_dim]
  const float* least;  // of the first summary
  const float* greatest;
  int64_t stride;  // between two summaries
  int64_t pages;
  int parts;  // summaries per page
  int heads;
  int k_dim;
  float* scores;
  int64_t score_stride;  // between two heads
};

// Attention over paired pages: see isa/attention_bf16.h and isa/attention_amx.h. On AMX, `begin`
// configures the thread's tiles for the block's rows and `finish` releases them. So a thread may
// work on several blocks at a time only if they have equally many rows, and then calls `keys` for
// all of them before the first `finish`. Some rows of a block may go on as a block of their own, in
// place: after `resume`, and only if they are at most `exact_rows`.
struct PairedAttention {
  int k_multiple;    // pages pad k_dim with 0 to a multiple of this
  int row_multiple;  // o and query_pairs have room for rows up to a multiple of this
  int exact_rows;    // blocks of at most this many rows touch no row after them
  // Blocks of at most this many rows widen the values of 8-bit pages only after using the keys,
  // which keeps less data in flight and in the first-level cache.
  int staged_rows;
  int chunks;  // the most that `keys` takes at a time, 1..kChunksTogether
  void (*begin)(const AttentionBlock&);
  void (*resume)(const AttentionBlock&);  // null: nothing to do
  // Of bf16 pairs, `count` chunks in the order in which they are summed. Chunks after the first
  // have neither `ahead` nor `narrow`.
  void (*keys)(const AttentionBlock&, const AttentionKeys* chunks, int count);
  void (*finish)(const AttentionBlock&);
  void (*widen_keys[kNarrowTypes])(const NarrowKeys&);
  void (*widen_values[kNarrowTypes])(const NarrowKeys&);
  void (*lane_dots[1 + kNarrowTypes])(const LaneDots&);  // bf16, then the narrow types
};

// Rows to merge: (o, lse) = (o, lse) (+) (from_o, from_lse). The bits of a row do not depend on the
// others.
struct MergedRows {
  float* o;          // [rows] of v_dim values
  int64_t o_stride;  // floats from one row to the next
  float* lse;        // [rows]
  const float* from_o;
  int64_t from_stride;  // may be 0
  const float* from_lse;
  int64_t rows;
  int64_t v_dim;
};

// A row of NormParams: its own weight [cols], a bias or null.
struct NormedRow {
  const float* input;
  const float* weight;
  const float* bias;
  NormRule norm;
  float* output;
  int64_t cols;
  bool accumulate;
};

struct SimdKernels {
  void (*linear[kWeightTypes])(const LinearTask&);

  void (*attention_begin)(const AttentionBlock&);  // resets the running softmax
  void (*attention_keys[kStorageTypes])(const AttentionBlock&, const AttentionKeys&);
  void (*widen_keys[kNarrowTypes])(const NarrowKeys&);
  void (*lane_dots[kStorageTypes + kNarrowTypes])(const LaneDots&);
  void (*bound_summaries)(const SummaryBounds&);
  void (*attention_finish)(const AttentionBlock&);  // turns o into the weighted mean and writes lse
  // If not null, bf16 and 8-bit pages are paired.
  const PairedAttention* paired;
  void (*merge_rows)(const MergedRows&);

  void (*norm_row)(const NormedRow&);
  // Indexed by Activation.
  void (*gated_mul_row[kGatedRows])(const float* gate, const float* up, float* output, int64_t cols,
                                    float alpha, float limit);
  void (*soft_cap_row)(float* values, float cap, int64_t count);
  void (*scale_row)(float* values, float factor, int64_t count);
  void (*add_scaled_row)(const float* input, float factor, float* output, int64_t count);
  // Adds `rows` more values to each column; row r is at values + r * stride. `largest` becomes the
  // largest value so far, `total` the sum of exp(value - largest) so far.
  void (*add_exp_sums)(const float* values, int64_t rows, int64_t stride, int64_t columns,
                       float* largest, float* total);
  void (*rope_table_row)(int32_t position, const float* inverse_frequencies, float scale,
                         float* cosine, float* sine, int64_t pairs);
  // Rotates one head in place.
  void (*rope_head)(float* values, const float* cosine, const float* sine, int64_t pairs);

  // Convert `count` elements between float32 and storage as kernels/base/dtype.h specifies.
  void (*narrow[kStorageTypes])(const float* source, void* destination, int64_t count);
  void (*widen[kStorageTypes])(const void* source, float* destination, int64_t count);
};

// Call these only if the processor has the instructions.
const SimdKernels& Avx2Kernels();
const SimdKernels& Avx512Kernels();
const SimdKernels& Avx512Bf16Kernels();
const SimdKernels& NeonKernels();
// Also needs the tile registers to have been granted to the process (x86_features.h).
const PairedAttention& AmxAttentionKernels();

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_KERNELS_H_
