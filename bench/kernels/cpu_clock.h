#ifndef ANNULUS_BENCH_KERNELS_CPU_CLOCK_H_
#define ANNULUS_BENCH_KERNELS_CPU_CLOCK_H_

#include "absl/status/statusor.h"

namespace annulus {

// Seconds that all threads of this process have spent computing. On a machine that others share
// this stands still while they run, where a wall clock goes on; what remains of them is the clock
// rate and the caches.
double ProcessCpuSeconds();

// What an op is compared with.
enum class Bound { kF32, kBF16, kI8, kAmxBF16, kAmxI8, kMemoryRead };

// Operations (or bytes) per second and thread, by ProcessCpuSeconds: the loops of bench/peak on
// `threads` threads at a time, for about 30 ms each. FAILED_PRECONDITION where the processor lacks
// the instructions.
absl::StatusOr<double> MeasureBound(Bound bound, int threads);

}  // namespace annulus

#endif  // ANNULUS_BENCH_KERNELS_CPU_CLOCK_H_
