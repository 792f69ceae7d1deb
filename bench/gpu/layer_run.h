#ifndef ANNULUS_BENCH_GPU_LAYER_RUN_H_
#define ANNULUS_BENCH_GPU_LAYER_RUN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry.h"

namespace annulus::bench {

// The matrices of a dense layer, all of one dtype: copies of each shape, which products read in
// turn. [out, in], with h columns of residuals, k of keys and w in between.
struct LayerMatrices {
  std::vector<PackedMatrix> query;  // [h, h], also those of the output
  std::vector<PackedMatrix> key;    // [k, h], also those of values
  std::vector<PackedMatrix> wide;   // [w, h], gate and up
  std::vector<PackedMatrix> down;   // [h, w]
};

// What a dense layer launches beside attention, for some rows: a norm, q, k and v, the output's
// product of q, a norm, gate and up, their gated product, down. Nothing is added to what it reads,
// so every run computes the same. Weights of fp8 take inputs of fp8. Not thread-safe.
class LayerRun {
 public:
  // Allocates what the ops write. `residual`: [rows, h], read by all runs; `weight`: [h] of both
  // norms. Everything must outlive this object.
  static absl::StatusOr<LayerRun> Create(Backend& backend, const LayerMatrices& matrices,
                                         int64_t rows, const float* residual, const float* weight);

  // Enqueues the ops of a table that can read the matrices.
  absl::Status Run(const OpTable& ops, Stream& stream);

  // What the ops leave.
  std::vector<DeviceBuffer*> outputs();
  double flops() const;

 private:
  LayerRun(const LayerMatrices& matrices, int64_t rows, const float* residual, const float* weight)
      : matrices_(matrices), rows_(rows), residual_(residual), weight_(weight) {}
  MatrixView View(DeviceBuffer& buffer, int64_t columns) const;
  LinearParams Product(const std::vector<PackedMatrix>& weights, DeviceBuffer& input,
                       DeviceBuffer& output);
  absl::Status Norm(const OpTable& ops, Stream& stream, const float* input);

  const LayerMatrices& matrices_;
  const int64_t rows_;
  const float* const residual_;
  const float* const weight_;
  size_t next_ = 0;  // of the matrices of a shape, modulo their number
  DeviceBuffer normed_, query_, key_, value_, attended_, gate_, up_, result_;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_GPU_LAYER_RUN_H_
