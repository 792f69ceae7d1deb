#ifndef ANNULUS_KERNELS_CPU_SIMD_KERNELS_H_
#define ANNULUS_KERNELS_CPU_SIMD_KERNELS_H_

#include <cstdint>

// The inner kernels that are compiled once per instruction set (isa_*.h, isa_*.cc), as a table of
// plain functions over plain structs. The drivers around them (simd_*.cc) are compiled once, for
// the baseline machine: they check, split the work over threads, and call through the table.
//
// This header and all of isa_* use no inline function of the standard library, Abseil or the rest
// of the project. Such a function has one copy in the whole program; were it emitted in a unit
// compiled with -mavx512f, the linker could choose that copy for callers on a machine without it.

namespace annulus::cpu {

// Columns that share one vector of storage, both in packed weights and in pages (keys).
inline constexpr int kPanel = 16;
// One task of a linear: at most so many rows and output columns.
inline constexpr int kLinearRows = 96;
inline constexpr int kLinearColumns = 64;
// Keys between two updates of a row's running maximum, at multiples of this slot in a page.
inline constexpr int kKeyChunk = 64;
// Rows of one register tile.
inline constexpr int kTileRows = 6;

// Storage types; the tables below have one entry for each, in this order (that of DType).
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
inline constexpr int kGatedRows = 3;    // kinds of gated activations, as in elementwise.h

// Types of weights: one entry each, in the order of DType.
inline constexpr int kWeightTypes = 11;

// output[r, c] = sum_k input[r, k] * weight(c, k) (+ bias[c]) (+ output[r, c]); weights as
// weight_layout.h describes them.
struct LinearTask {
  const float* input;
  int64_t input_stride;
  int rows;            // 1..kLinearRows
  const void* panels;  // of columns / 16, rounded up
  int64_t panel_bytes;
  int64_t scales;     // bytes from a panel's start to its scales
  int64_t group;      // inputs of one scale; 0: all
  int64_t depth;      // in_features
  int columns;        // 1..kLinearColumns
  const float* bias;  // [columns] or null
  float* output;
  int64_t output_stride;
  bool accumulate;
};

// The rows of one query block that read one kv head: `positions` positions by `group` query heads,
// position-major (row = position * group + head), and their running softmax over one span.
struct AttentionBlock {
  const float* query;  // of the first position and the group's first head
  int64_t query_stride;
  const int32_t* positions;  // [position_count], ascending
  int position_count;
  int group;
  int k_dim;
  int v_stride;  // v_dim rounded up to kPanel
  int k_pairs;   // of a key with its padding
  float scale;
  float soft_cap;  // 0: none
  int64_t window;  // 0: none

  float* o;        // [rows][v_stride], sums of weight * value
  float* sums;     // [rows][kPanel], sums of weights by slot % 16
  float* maximum;  // [rows]
  float* lse;      // [rows], written by finish
  // Paired kernels only, written by begin unless `queries_ready` (from an earlier span):
  bool queries_ready;
  uint32_t* query_pairs;   // [rows][k_pairs], the queries as bf16
  int32_t* row_positions;  // [rows]
};

// Memory that will be read next: lines[i] lines of kLineBytes from first[i] on. Few rows wait for
// memory, so their kernels ask for a few lines at a time while they compute (isa_fetch.h): all
// at once would fill the buffers of the processor and leave it idle afterwards.
inline constexpr int64_t kLineBytes = 64;
struct FetchAhead {
  const char* first[2];
  int lines[2];
};

// Queries and results of a block lie in pieces of one group's heads, too short for a processor to
// foresee where the next one is: they are asked for so many positions ahead, of the same heads.
inline constexpr int kPositionsAhead = 2;

struct NarrowKeys;

// Slots [begin, end) of up to kKeyChunk slots of a page, of one kv head. `k` and `v` are as
// PageLayout says.
struct AttentionKeys {
  const void* k;
  const void* v;
  const Bf16* k_scales;    // [slots] of paired int8 keys, which are bf16 without it; else null
  const Bf16* v_scales;    // likewise
  int64_t first_position;  // of slot 0
  FetchAhead* ahead;       // what to ask for meanwhile; null: nothing
  // Where not null, `v` is where `k` is: once the keys are used, widen_values(*narrow) puts the
  // values there (PairedAttention::staged_rows).
  const NarrowKeys* narrow;
  void (*widen_values)(const NarrowKeys&);
  int slots;  // that k and v hold; a multiple of kPanel, at most kKeyChunk
  int begin;
  int end;
};

// Slots [begin, end) of a page of an 8-bit type, of one kv head, to be widened in the same order:
// slot `begin` becomes slot 0. To float32, or where the page is paired to bf16.
struct NarrowKeys {
  const void* k;         // of the head, as in AttentionKeys
  const void* v;         // of the head
  const Bf16* k_scales;  // [page_tokens]; int8 only
  const Bf16* v_scales;
  int begin;  // multiples of kPanel
  int end;
  FetchAhead* ahead;  // as in AttentionKeys
  int k_dim;          // of storage: even where the page is paired
  int v_stride;
  void* wide_k;  // [(end - begin) * k_dim]
  void* wide_v;  // [(end - begin) * v_stride]
};

// sums[row][panel][lane] = sum over d of query[row][d][lane] * key d of the panel's slot `lane`,
// for the 16 slots of each panel of one kv head, in the page's own order of bytes: the 16 lanes of
// a row are 16 queries. Scales of int8 are left out.
struct LaneDots {
  // [rows][depth][16] float32; paired: [rows][depth][16] pairs of bf16, as keys lie.
  const void* query;
  const void* keys;  // [panels][depth][16] in storage; paired: pairs of them
  int rows;
  int panels;
  int64_t depth;  // k_dim of the page; paired: half of it
  float* sums;
};

// scores[head][page] = max over the page's summaries of the sum over d of max(query_d * least_d,
// query_d * greatest_d), for the query heads of one kv head.
struct SummaryBounds {
  const float* query;  // [heads][k_dim]
  const float* least;  // of the first summary
  const float* greatest;
  int64_t stride;  // from one summary to the next
  int64_t pages;
  int parts;  // summaries of a page
  int heads;
  int k_dim;
  float* scores;
  int64_t score_stride;  // from one head to the next
};

// Attention over paired pages: see isa_attention_bf16.h and isa_attention_amx.h. From the first
// begin to the first finish a thread works on blocks of equally many rows alone.
struct PairedAttention {
  int k_multiple;    // pages pad k_dim with 0 to a multiple of this
  int row_multiple;  // a block's o and query_pairs have room for rows up to a multiple of this
  // Blocks of so many rows or fewer widen the values of 8-bit pages after they have used the keys:
  // less is in flight and in the first-level cache.
  int staged_rows;
  void (*begin)(const AttentionBlock&);
  void (*keys)(const AttentionBlock&, const AttentionKeys&);  // bf16
  void (*finish)(const AttentionBlock&);
  void (*widen_keys[kNarrowTypes])(const NarrowKeys&);
  void (*widen_values[kNarrowTypes])(const NarrowKeys&);
  void (*lane_dots[1 + kNarrowTypes])(const LaneDots&);  // bf16, then the narrow types
};

struct SimdKernels {
  void (*linear[kWeightTypes])(const LinearTask&);

  void (*attention_begin)(const AttentionBlock&);  // empties the running softmax
  void (*attention_keys[kStorageTypes])(const AttentionBlock&, const AttentionKeys&);
  void (*widen_keys[kNarrowTypes])(const NarrowKeys&);
  void (*lane_dots[kStorageTypes + kNarrowTypes])(const LaneDots&);
  void (*bound_summaries)(const SummaryBounds&);
  void (*attention_finish)(const AttentionBlock&);  // o becomes the weighted mean; writes lse
  // Where not null, bf16 and 8-bit pages are paired.
  const PairedAttention* paired;
  // (o, lse) = (o, lse) (+) (from_o, from_lse) of one row.
  void (*merge_row)(float* o, float* lse, const float* from_o, float from_lse, int64_t v_dim);

  void (*rms_norm_row)(const float* input, const float* weight, float epsilon, float* output,
                       int64_t cols, bool accumulate);
  // [Activation]
  void (*gated_mul_row[kGatedRows])(const float* gate, const float* up, float* output, int64_t cols,
                                    float alpha, float limit);
  void (*soft_cap_row)(float* values, float cap, int64_t count);
  void (*scale_row)(float* values, float factor, int64_t count);
  void (*add_scaled_row)(const float* input, float factor, float* output, int64_t count);
  // Takes `rows` more values of each column, those of row r at values + r * stride: `largest`
  // becomes the largest so far, `total` the sum of exp(value - largest) so far.
  void (*add_exp_sums)(const float* values, int64_t rows, int64_t stride, int64_t columns,
                       float* largest, float* total);
  void (*rope_table_row)(int32_t position, const float* inverse_frequencies, float scale,
                         float* cosine, float* sine, int64_t pairs);
  // Rotates one head in place.
  void (*rope_head)(float* values, const float* cosine, const float* sine, int64_t pairs);

  // Conversions of `count` elements between float32 and storage; as kernels/base/dtype.h says.
  void (*narrow[kStorageTypes])(const float* source, void* destination, int64_t count);
  void (*widen[kStorageTypes])(const void* source, float* destination, int64_t count);
};

// Only to be called where the processor has the instructions.
const SimdKernels& Avx2Kernels();
const SimdKernels& Avx512Kernels();
const SimdKernels& Avx512Bf16Kernels();
const SimdKernels& NeonKernels();
// Only where the process was granted the tile registers too (x86_features.h).
const PairedAttention& AmxAttentionKernels();

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_KERNELS_H_
