#ifndef ANNULUS_KERNELS_REGISTRY_H_
#define ANNULUS_KERNELS_REGISTRY_H_

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/base/quantize.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/block_masses.h"
#include "kernels/ops/block_scores.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/experts.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/sampling.h"

namespace annulus {

// All ops of one implementation. A table is consistent in itself: its packed weights and its page
// bytes are read by its own ops only. Every op works on the stream's device, in the stream's order;
// pointers in Params are addresses of that device and spans are host arrays unless stated.
// Thread-safe: ops keep no state beyond the stream.
struct OpTable {
  std::string name;  // "cpu/reference", "cpu/avx2", ..

  // Whether attention gives a row the same bits whatever rows are beside it and however they were
  // cut into items, as kernels/ops/attention.h says; and so for linear layers of many rows.
  bool row_invariant = true;

  // Bytes of one layer's part of a page, a multiple of 64.
  size_t (*kv_page_bytes)(const KvPageShape&) = nullptr;

  // Bytes of an [out, in] matrix of `dtype`, to be filled by pack_rows. INVALID_ARGUMENT for an
  // impossible shape or a dtype that the table lacks.
  absl::StatusOr<size_t> (*matrix_bytes)(int64_t out, int64_t in, DType dtype) = nullptr;

  // Packs rows [first_row, first_row + source.rows) of a checkpoint's matrix, converting from
  // source.dtype; first_row is a multiple of kPackRows, and source.rows too unless the matrix ends
  // there. A row quantised here has the bytes that QuantizeRow gives; `error` (null: not wanted)
  // gains what that loses. Threads may fill different rows of one matrix. INVALID_ARGUMENT where
  // the target is quantised and a weight is infinite or NaN.
  absl::Status (*pack_rows)(PackedMatrix&, int64_t first_row, const HostTensorView& source,
                            QuantizationError* error) = nullptr;

  absl::Status (*linear)(Stream&, const LinearParams&) = nullptr;
  // Products of one input, at least one: see Linears. Null where they gain nothing by being
  // together.
  absl::Status (*linears)(Stream&, std::span<const LinearParams>) = nullptr;
  absl::Status (*embed)(Stream&, const EmbedParams&) = nullptr;
  absl::Status (*rms_norm)(Stream&, const RmsNormParams&) = nullptr;
  absl::Status (*gated_mul)(Stream&, const GatedMulParams&) = nullptr;
  absl::Status (*scale)(Stream&, const ScaleParams&) = nullptr;
  absl::Status (*soft_cap)(Stream&, const SoftCapParams&) = nullptr;
  absl::Status (*rope_table)(Stream&, const RopeTableParams&) = nullptr;
  absl::Status (*rope)(Stream&, const RopeParams&) = nullptr;
  absl::Status (*kv_append)(Stream&, const KvAppendParams&) = nullptr;
  absl::Status (*kv_read)(Stream&, const KvReadParams&) = nullptr;
  absl::Status (*attention)(Stream&, const AttentionParams&) = nullptr;
  // Null where the implementation lacks them: attention is then chosen without looking at content.
  absl::Status (*block_scores)(Stream&, const BlockScoresParams&) = nullptr;
  absl::Status (*score_sums)(Stream&, const ScoreSumsParams&) = nullptr;
  absl::Status (*block_masses)(Stream&, const BlockMassesParams&) = nullptr;
  absl::Status (*key_summary)(Stream&, const KeySummaryParams&) = nullptr;
  absl::Status (*summary_scores)(Stream&, const SummaryScoresParams&) = nullptr;
  absl::Status (*row_means)(Stream&, const RowMeansParams&) = nullptr;
  absl::Status (*merge_state)(Stream&, const MergeStateParams&) = nullptr;
  absl::Status (*merge_sink)(Stream&, const MergeSinkParams&) = nullptr;
  absl::Status (*route)(Stream&, const RouteParams&) = nullptr;
  absl::Status (*expert_linear)(Stream&, const ExpertLinearParams&) = nullptr;
  absl::Status (*add_choices)(Stream&, const AddChoicesParams&) = nullptr;
  absl::Status (*gather_rows)(Stream&, const GatherRowsParams&) = nullptr;
  absl::Status (*scatter_add)(Stream&, const ScatterAddParams&) = nullptr;
  // Null where the implementation lacks it: the host then chooses tokens.
  absl::Status (*sample)(Stream&, const SampleParams&) = nullptr;
};

// A matrix to fill, in memory of its own: matrix_bytes, then Allocate.
absl::StatusOr<PackedMatrix> CreateMatrix(const OpTable& ops, Backend& backend, int64_t out,
                                          int64_t in, DType dtype);

// CreateMatrix, then pack_rows over all of `source`.
absl::StatusOr<PackedMatrix> PackMatrix(const OpTable& ops, Backend& backend,
                                        const HostTensorView& source, DType dtype,
                                        QuantizationError* error = nullptr);

// Several products of the same input, or of its first rows (the same data, stride and columns),
// with the results of one `linear` after the other; none reads what another writes. Each may have
// weights and activations of its own type. A table that can packs the input once for all that are
// alike, and shares all outputs among its threads.
absl::Status Linears(const OpTable& ops, Stream& stream, std::span<const LinearParams> parts);

// Lists one projection's matrices and biases (null: none) of every expert, and copies their
// addresses to the device; waits for the stream. There is at least one matrix, all have one shape
// and dtype, and there are as many biases. RESOURCE_EXHAUSTED where the device has no memory for
// the addresses.
absl::StatusOr<ExpertMatrices> ListExperts(Backend& backend, Stream& stream,
                                           std::vector<const PackedMatrix*> matrices,
                                           std::vector<const float*> biases);

// What a model needs of its kernels.
struct KernelRequirements {
  std::string backend = "cpu";
  std::string implementation;  // empty: the fastest that fits; else an OpTable name
  DType weights_dtype = DType::kF32;
  Activations activations = Activations::kFloat;
  DType kv_dtype = DType::kF32;
  int k_dim = 0;
  int v_dim = 0;
};

// One implementation and the ranges it serves.
struct KernelEntry {
  OpTable ops;
  std::string backend;  // "cpu"
  int priority = 0;     // the highest that fits wins
  bool available = true;
  std::string unavailable_reason;  // when not available: what this machine lacks
  std::vector<DType> weights_dtypes;
  std::vector<Activations> activations = {Activations::kFloat};
  std::vector<DType> kv_dtypes;
  int max_head_dim = 0;
  int head_dim_multiple = 1;
};

// The implementations compiled into this binary. Filled once at start, then read-only and
// thread-safe.
class KernelRegistry {
 public:
  void Register(KernelEntry entry);

  // The table to use, valid as long as the registry. Where nothing fits, FAILED_PRECONDITION says
  // what was required, what each implementation supports and what it misses.
  absl::StatusOr<const OpTable*> Select(const KernelRequirements& required) const;

  // Every table of `backend` that this machine can run, fastest first.
  std::vector<const OpTable*> Available(const std::string& backend) const;

 private:
  std::deque<KernelEntry> entries_;  // a deque: tables handed out never move
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_REGISTRY_H_
