#ifndef ANNULUS_BENCH_GPU_TRIAL_TIMES_H_
#define ANNULUS_BENCH_GPU_TRIAL_TIMES_H_

#include "absl/status/status.h"
#include "bench/gpu/op_lab.h"

namespace annulus::bench {

// Times the ops of *_trial that the options name: MeasureOps says which there are. `lab` is open.
absl::Status MeasureTrials(OpLab& lab);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_GPU_TRIAL_TIMES_H_
