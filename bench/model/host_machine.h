#ifndef ANNULUS_BENCH_MODEL_HOST_MACHINE_H_
#define ANNULUS_BENCH_MODEL_HOST_MACHINE_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "bench/model/bench_machine.h"
#include "bench/model/forced_routing.h"
#include "bench/peak/peak_meter.h"

namespace annulus::bench {

// The host's processor with `threads` threads, and the ceilings that `meter` measures; `meter` must
// outlive the machine. `peak` is the ceiling for products; if absent, the fastest that applies.
// `routing`: the kernels are those of RegisterForcedKernels; if absent, those of
// RegisterCpuKernels. Errors as for CreateCpuBackend.
absl::StatusOr<std::unique_ptr<BenchMachine>> OpenHostMachine(
    const PeakMeter& meter, int threads, std::optional<PeakKind> peak,
    std::optional<ForcedRouting> routing = std::nullopt);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_HOST_MACHINE_H_
