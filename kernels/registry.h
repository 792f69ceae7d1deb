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
#include "kernels/ops/gated_block.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/sampling.h"
#include "kernels/ops/streams.h"

namespace annulus {

// All ops of one implementation. Only a table's own ops can read its packed weights and its pages.
// Every op runs on the stream's device, in the stream's order. Pointers in Params are device
// addresses and spans are host arrays, unless stated otherwise. Thread-safe: ops keep no state
// outside the stream.
struct OpTable {
  std::string name;  // "cpu/reference", "cpu/avx2", ..

  // Whether a row's bits depend on neither the other rows nor the way rows are split into items, in
  // attention (kernels/ops/attention.h) and in linear layers of many rows.
  bool row_invariant = true;

  // Size in bytes of one layer's part of a page: a multiple of 64.
  size_t (*kv_page_bytes)(const KvPageShape&) = nullptr;

  // Size in bytes of a packed [out, in] matrix of `dtype`, for pack_rows to fill. INVALID_ARGUMENT
  // for an impossible shape or a dtype that this table does not support.
  absl::StatusOr<size_t> (*matrix_bytes)(int64_t out, int64_t in, DType dtype) = nullptr;

  // Packs rows [first_row, first_row + source.rows) of a checkpoint's matrix, converting from
  // source.dtype. first_row is a multiple of kPackRows; so is source.rows, except at the end of the
  // matrix. Rows are quantised to exactly the bytes that QuantizeRow gives; the rounding error is
  // added to `error` unless it is null. Threads may pack different rows of one matrix concurrently.
  // INVALID_ARGUMENT if the target is quantised and a weight is infinite or NaN.
  absl::Status (*pack_rows)(PackedMatrix&, int64_t first_row, const HostTensorView& source,
                            QuantizationError* error) = nullptr;

  absl::Status (*linear)(Stream&, const LinearParams&) = nullptr;
  // At least one product of the same input: see Linears(). Null if the table gains nothing from
  // running them together.
  absl::Status (*linears)(Stream&, std::span<const LinearParams>) = nullptr;
  absl::Status (*embed)(Stream&, const EmbedParams&) = nullptr;
  absl::Status (*norm)(Stream&, const NormParams&) = nullptr;
  absl::Status (*gated_mul)(Stream&, const GatedMulParams&) = nullptr;
  // A gated block as one op, for at least `gated_block_rows` rows. Null if the table gains nothing
  // from it. Callers then issue its ops one by one, and so they do with fewer rows.
  absl::Status (*gated_block)(Stream&, const GatedBlockParams&) = nullptr;
  int64_t gated_block_rows = 1;
  absl::Status (*scale)(Stream&, const ScaleParams&) = nullptr;
  absl::Status (*soft_cap)(Stream&, const SoftCapParams&) = nullptr;
  absl::Status (*rope_table)(Stream&, const RopeTableParams&) = nullptr;
  absl::Status (*rope)(Stream&, const RopeParams&) = nullptr;
  absl::Status (*kv_append)(Stream&, const KvAppendParams&) = nullptr;
  absl::Status (*kv_read)(Stream&, const KvReadParams&) = nullptr;
  absl::Status (*attention)(Stream&, const AttentionParams&) = nullptr;
  // Null if the implementation lacks them; the engine then selects blocks without scoring keys.
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
  absl::Status (*predict_streams)(Stream&, const PredictStreamsParams&) = nullptr;
  absl::Status (*correct_streams)(Stream&, const CorrectStreamsParams&) = nullptr;
  absl::Status (*match_magnitude)(Stream&, const MatchMagnitudeParams&) = nullptr;
  absl::Status (*cut_off)(Stream&, const CutOffParams&) = nullptr;
  // Null if the implementation lacks it; the host then samples.
  absl::Status (*sample)(Stream&, const SampleParams&) = nullptr;
};

// Allocates a matrix for pack_rows to fill. Errors as for matrix_bytes and Allocate.
absl::StatusOr<PackedMatrix> CreateMatrix(const OpTable& ops, Backend& backend, int64_t out,
                                          int64_t in, DType dtype);

// CreateMatrix, then pack_rows over all of `source`.
absl::StatusOr<PackedMatrix> PackMatrix(const OpTable& ops, Backend& backend,
                                        const HostTensorView& source, DType dtype,
                                        QuantizationError* error = nullptr);

// Computes several products of the same input, or of its first rows (same data, stride and
// columns). The results are those of one `linear` after the other. No product may read what another
// one writes. Each may have its own weight dtype and activations. If the table has `linears`, it
// prepares the input once for all similar products and spreads all outputs over its threads
// together.
absl::Status Linears(const OpTable& ops, Stream& stream, std::span<const LinearParams> parts);

// Collects one projection's matrices and biases (null: none) of all experts and copies their
// addresses to the device; blocks until the stream is done. There is at least one matrix, all have
// the same shape and dtype, and there are as many biases as matrices. RESOURCE_EXHAUSTED if the
// device has no memory for the addresses.
absl::StatusOr<ExpertMatrices> ListExperts(Backend& backend, Stream& stream,
                                           std::vector<const PackedMatrix*> matrices,
                                           std::vector<const float*> biases);

// What a model requires of its kernels.
struct KernelRequirements {
  std::string backend = "cpu";
  std::string implementation;  // an OpTable's name; if empty, the fastest that fits
  DType weights_dtype = DType::kF32;
  Activations activations = Activations::kFloat;
  DType kv_dtype = DType::kF32;
  int k_dim = 0;
  int v_dim = 0;
};

// One implementation and what it supports.
struct KernelEntry {
  OpTable ops;
  std::string backend;  // "cpu"
  int priority = 0;     // of the entries that fit, the one with the highest wins
  bool available = true;
  std::string unavailable_reason;  // if not available: what this machine lacks
  std::vector<DType> weights_dtypes;
  std::vector<Activations> activations = {Activations::kFloat};
  std::vector<DType> kv_dtypes;
  int max_head_dim = 0;
  int head_dim_multiple = 1;
};

// The implementations compiled into this binary. Thread-safe once filled: Register is called only
// at start-up.
class KernelRegistry {
 public:
  void Register(KernelEntry entry);

  // Returns the table to use, valid as long as the registry. If none fits, FAILED_PRECONDITION with
  // what was required, what each implementation supports and what it is missing.
  absl::StatusOr<const OpTable*> Select(const KernelRequirements& required) const;

  // All tables of `backend` that this machine can run, fastest first.
  std::vector<const OpTable*> Available(const std::string& backend) const;

 private:
  std::deque<KernelEntry> entries_;  // a deque, so that tables handed out never move
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_REGISTRY_H_
