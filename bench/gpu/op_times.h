#ifndef ANNULUS_BENCH_GPU_OP_TIMES_H_
#define ANNULUS_BENCH_GPU_OP_TIMES_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "bench/report/row.h"
#include "kernels/registry.h"

namespace annulus {

// Times of single ops on a device that is not the host, each beside what bounds it.

struct OpTimesOptions {
  std::vector<int32_t> sequences = {16384, 32768, 65536, 131072};  // of prefill; at least one
  int32_t sparse_tokens = 65536;                                   // of block-sparse prefill
  int32_t decode_tokens = 131072;
  int heads = 32;
  int kv_heads = 8;
  int head_dim = 128;
  std::vector<double> densities = {0.5, 0.1, 0.05};
  std::vector<int64_t> linear_rows = {1, 16, 2048};
  int step_layers = 32;  // of a step that is launched
  int32_t step_tokens =
      1024;  // that it attends: few, so that launching takes longer than computing
  int64_t step_columns = 1024;  // of its products, likewise
  int64_t hidden = 4096;
  int64_t intermediate = 14336;
  size_t weight_bytes = size_t{256} << 20;  // of copies of a matrix that products read in turn
  size_t copied_bytes = size_t{1} << 30;
  double enough_seconds = 0.3;  // of one measurement, after one run that does not count
  bool prefill_only = false;    // nothing but prefill attention, of whole sequences and over lists
};

// Runs, in this order: a copy inside the device; decode attention over pages of bf16, fp8 and int8;
// linear layers in bf16, fp8 (inputs too), int8 and int4; the launches of a small decode step, one
// by one ("step") and as a graph ("step_graph"), by their number (size); causal prefill attention
// in bf16 of whole sequences, and of the first of them over pages of fp8 and int8; and over block
// lists in bf16. A kernel that fails ends all that comes behind it, so what is largest comes last.
//
// `seconds` of a row are the device's, by events around many runs in a row; `host_seconds` those
// from a call until the host knows that it is done (OpTimer). Rates are of `seconds`: FLOP/s of
// attended pairs, or bytes/s of what must be read, which `of_copy` compares with the copy
// (bytes read and written). Block-sparse rows have their time's ratio to dense and, as
// `ratio_bound`, what that may be: their density and a twentieth. Rows of other types than bf16
// have how many times as fast they are. Steps are launched alone, and `ratio_to_single` is of the
// host's seconds. Memory: the largest case's, freed after it, and twice `copied_bytes`.
absl::Status MeasureOps(Backend& backend, const OpTable& ops, const OpTimesOptions& options,
                        const std::function<void(const Row&)>& report);

}  // namespace annulus

#endif  // ANNULUS_BENCH_GPU_OP_TIMES_H_
