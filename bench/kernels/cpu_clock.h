#ifndef ANNULUS_BENCH_KERNELS_CPU_CLOCK_H_
#define ANNULUS_BENCH_KERNELS_CPU_CLOCK_H_

#include "absl/status/statusor.h"

namespace annulus::bench {

// CPU seconds that all threads of this process have spent computing. Unlike a wall clock, this does
// not advance while other programs on a shared machine run. They still affect it through the clock
// rate and the caches.
double ProcessCpuSeconds();

// What an op is compared with.
enum class Bound { kF32, kBF16, kI8, kAmxBF16, kAmxI8, kMemoryRead };

// Measures operations (or bytes) per second and thread, by ProcessCpuSeconds, with the loops of
// bench/peak on `threads` threads at a time, for about 30 ms each. FAILED_PRECONDITION if the
// processor lacks the instructions.
absl::StatusOr<double> MeasureBound(Bound bound, int threads);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_KERNELS_CPU_CLOCK_H_
