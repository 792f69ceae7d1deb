#ifndef ANNULUS_BENCH_GPU_OP_TIMES_H_
#define ANNULUS_BENCH_GPU_OP_TIMES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/report/row.h"
#include "kernels/registry.h"

namespace annulus::bench {

// Times single ops on a device other than the host, and compares each with its bound.

struct OpTimesOptions {
  std::vector<int32_t> sequences = {16384, 32768, 65536, 131072};  // for prefill; at least one
  int32_t sparse_tokens = 65536;                                   // for block-sparse prefill
  int32_t decode_tokens = 131072;
  int heads = 32;
  int kv_heads = 8;
  int head_dim = 128;
  std::vector<double> densities = {0.5, 0.1, 0.05};
  std::vector<int64_t> linear_rows = {1, 16, 2048};
  int step_layers = 32;  // of the step whose launches are timed
  // The tokens that it attends and the columns of its products: few, so that launching takes longer
  // than computing.
  int32_t step_tokens = 1024;
  int64_t step_columns = 1024;
  int64_t hidden = 4096;
  int64_t intermediate = 14336;
  // size of all copies of a matrix of each shape, which products read in turn
  size_t weight_bytes = size_t{256} << 20;
  size_t copied_bytes = size_t{1} << 30;
  double enough_seconds = 0.3;    // of one measurement, after one run that does not count
  std::vector<std::string> only;  // names of ops, as in their rows; empty: all but *_trial
  // Compared by ops of *_trial with the table; reads its weights and pages. Null: there is none,
  // and those ops give no rows.
  const OpTable* trial = nullptr;
  // Compared with `trial` by pairs_trial. Set where `trial` is.
  const OpTable* pairs = nullptr;
  // Compared with the table by wgmma_trial. Set where `trial` is.
  const OpTable* warpgroup_trial = nullptr;
  // Compared with the table by prefill_fp8_trial. Set where `trial` is.
  const OpTable* float8_trial = nullptr;
  // Whether kernels that are launched on a stream from now on may overlap, for overlap_trial and
  // step_trial. Set where `trial` is.
  std::function<void(Stream&, bool)> overlap;
  std::vector<int32_t> trial_sequences = {32768, 131072};  // of all three trials of prompts
  std::vector<int64_t> few_rows = {1, 8, 16};              // for gate_trial and down_trial
  std::vector<int64_t> trial_rows = {1, 17, 64, 127};      // for linear_trial
  std::vector<int64_t> layer_rows = {1, 16};               // for fp8_trial and overlap_trial
  std::vector<int64_t> wgmma_rows = {17, 64, 127};         // for wgmma_trial
  int64_t trial_hidden = 896;  // of the layer of linear_trial and wgmma_trial: Qwen2.5 0.5B
  int64_t trial_keys = 128;
  int64_t trial_intermediate = 4864;
};

// Runs these ops, in this order. The largest come last, because a failing kernel ends everything
// after it.
// - a copy inside the device;
// - decode attention over pages of bf16, fp8 and int8;
// - linear layers in bf16, fp8 (inputs too), int8 and int4;
// - the launches of a small decode step, one by one ("step") and as a graph ("step_graph"); their
//   number is the row's size;
// - causal prefill attention in bf16 of whole sequences, the first of them also over pages of fp8
//   and int8;
// - prefill attention in bf16 over block lists;
// - if `only` names it, "prefill_trial": causal prefill attention in bf16 by the table and by
//   `trial` in turn; "pairs_trial": the same by `trial` and by `pairs`; "linear_trial": the same of
//   the products of a small model's layer; "gate_trial" and "down_trial": of linear layers of few
//   rows in int4, int8, fp8 (inputs too) and bf16, to and from the intermediate columns;
//   "fp8_trial": of the norms and the gated product of a layer, timed with its products, which are
//   those of `trial` in both. In bf16 too, where they should take the same time; "overlap_trial":
//   of such a layer, by the table and by `trial`, without and with kernels that overlap;
//   "step_trial": of step_graph by the table, likewise. An error if bits differ.
//   "wgmma_trial": of what a small model's layer launches beside attention, by the table and by
//   `warpgroup_trial`, in bf16, fp8 (inputs too), int8 and int4. `other_bits` is the share of its
//   results with other bits; an error if values differ by more than rounding does;
// - if `only` names it, "prefill_fp8_trial": causal prefill attention over pages of bf16 and of fp8
//   by the table, and over those of fp8 by `float8_trial`, in turn. `error` is the root mean square
//   of what the last two differ by, relative to their output's. An error if it is above 1/8.
//
// `seconds` is the device's time, from events around many runs in a row; `host_seconds` is the time
// from a call until the host knows that it is done (OpTimer). Rates refer to `seconds`: FLOP/s of
// attended pairs, or bytes/s that must be read. Ratios:
// - `of_copy`: bytes/s over those of the copy, which counts bytes read and written.
// - `ratio_to_dense`: time over block lists, relative to dense attention. It should be below
//   `ratio_bound`, the density plus 0.05.
// - `speedup_over_bf16`: how many times faster than the same op in bf16.
// - `ratio_to_single`: host seconds of a step, relative to its launches one by one.
// - `ratio_to_old`: the trial's `seconds`, relative to `old_seconds`, those of the table.
//
// Steps run one at a time. Needs the memory of the largest case, freed after it, and twice
// `copied_bytes`.
absl::Status MeasureOps(Backend& backend, const OpTable& ops, const OpTimesOptions& options,
                        const std::function<void(const Row&)>& report);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_GPU_OP_TIMES_H_
