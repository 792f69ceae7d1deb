#ifndef ANNULUS_KERNELS_CUDA_TRIAL_H_
#define ANNULUS_KERNELS_CUDA_TRIAL_H_

#include <optional>

#include "kernels/registry.h"

namespace annulus::cuda {

// Ways of computing that no GPU has shown to be faster yet. They give the bits of the old ways, so
// speed alone decides: gpu-lab times both by turns, and the slower one is deleted. No other program
// links this, so a daemon cannot run them. Today:
// - units of prefill attention start in sections of kv heads (tuning/unit_order.h);
// - of bf16 pages and 65 to 128 columns they are computed in pairs, by clusters of two blocks that
//   copy their tiles once (sm90/attention_pairs.h): only PairsTrialOf;
// - products of 17 to 127 rows with few outputs split their depth over clusters of blocks
//   (sm90/linear_cluster.h);
// - a norm or a gated product is kept back until the op after it. If that is a product with
//   Activations::kFp8 that reads the rows, one kernel makes them with their codes
//   (sm90/coded_rows.h);
// - products of up to 16 rows keep their inputs in shared memory, and split their depth over
//   clusters (sm90/few_rows_cluster.h);
// - with every table, where LetKernelsOverlap says so: kernels of decoding begin before the one in
//   front has ended (common/overlap.h).

// `table` with these ways, named after it ("cuda/sm90-trial"). Reads the weights and pages of
// `table`. nullopt if there is nothing new for it: today for all but "cuda/sm90".
std::optional<OpTable> TrialOf(const OpTable& table);
// That table with attention in pairs ("cuda/sm90-trial-pairs"), which has to be faster than in
// sections alone.
std::optional<OpTable> PairsTrialOf(const OpTable& table);

// Whether kernels that are launched on `stream` from now on may overlap, as far as they can:
// products of up to 16 rows, norms, gated products, rope, rounding, keys into pages, attention of
// few rows, merges. At first they may not. The stream must be of a GPU of compute capability 9.0.
void LetKernelsOverlap(Stream& stream, bool overlap);

// The same with another way for products of 17 to 127 rows, and nothing else: by wgmma, those of
// the same inputs in one launch (sm90/linear_warpgroups.h). Named "cuda/sm90-warpgroups". In the
// emulation it has the bits of the old way; on a GPU gpu-lab counts those that differ.
std::optional<OpTable> WarpgroupTrialOf(const OpTable& table);

// `table` with prefill attention over fp8_e4m3 pages by products of e4m3
// (sm90/float8_attention.h), named after it ("cuda/sm90-fp8"). On trial too, but it rounds more
// than the table does, so speed alone does not decide: see `--attention-math` in bench/QUALITY.md.
// Of what tables promise about bits it keeps that the same op over the same pages gives the same
// bits; they differ from those of other tables and of decoding. nullopt for all but "cuda/sm90".
std::optional<OpTable> Float8TrialOf(const OpTable& table);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TRIAL_H_
