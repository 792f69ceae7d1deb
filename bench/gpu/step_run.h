#ifndef ANNULUS_BENCH_GPU_STEP_RUN_H_
#define ANNULUS_BENCH_GPU_STEP_RUN_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/gpu/op_inputs.h"

namespace annulus::bench {

// The launches of a small decode step: of one row, for each of `step_layers` layers a norm and a
// product four times, attention of `step_tokens` tokens, a gated product. Every run goes on with
// what the run before left in the row. Not thread-safe.
class StepRun {
 public:
  // Fills what the ops read; runs of equal options begin alike. Everything must outlive this
  // object.
  static absl::StatusOr<StepRun> Create(Backend& backend, const OpTable& ops, OpInputs& inputs,
                                        const OpTimesOptions& options);

  // Enqueues the launches one by one.
  absl::Status Run(Stream& stream);
  // Lets the stream hold them back, as a graph.
  absl::Status RunHeld(Stream& stream);

  // What they leave.
  std::vector<DeviceBuffer*> outputs() { return {&row_, &other_, &sequence_.o}; }

 private:
  StepRun(const OpTable& ops, OpInputs& inputs, const OpTimesOptions& options)
      : ops_(ops), inputs_(inputs), options_(options) {}

  const OpTable& ops_;
  OpInputs& inputs_;
  const OpTimesOptions& options_;
  Sequence sequence_;
  PackedMatrix weight_;
  DeviceBuffer row_;
  DeviceBuffer other_;  // two rows: what products write, and the weights of norms
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_GPU_STEP_RUN_H_
