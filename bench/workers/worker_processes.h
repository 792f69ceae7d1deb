#ifndef ANNULUS_BENCH_WORKERS_WORKER_PROCESSES_H_
#define ANNULUS_BENCH_WORKERS_WORKER_PROCESSES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/model/bench_workers.h"
#include "engine/api.h"
#include "kernels/backend.h"
#include "kernels/registry.h"

// Rings of several processes for measurements: this program starts itself as the workers. Ranks and
// control messages travel as between annulusd and annulusd --join on one machine.

namespace annulus::bench {

// Loads the library by which ranks of several processes exchange data. Call it before other threads
// start: it sets variables of the environment. FAILED_PRECONDITION: it is missing, with the package
// to install.
absl::Status LoadWire();

// Starts `processes` processes of this program with `arguments`, and "--join HOST:PORT" after them;
// each must call ServeAsWorker with that address. If one ends before the engine, no engine waits
// for it. The errors of LoadWire; UNAVAILABLE if there is no port, or a process cannot be started.
absl::StatusOr<std::unique_ptr<BenchWorkers>> StartWorkerProcesses(
    int processes, const std::vector<std::string>& arguments);

// Hosts one rank for the bench at `coordinator` until its engine ends. Returns the errors of
// CreateWorker, DialCoordinator and Worker::Serve.
absl::Status ServeAsWorker(const std::string& coordinator, const EngineOptions& options,
                           Backend& backend, const KernelRegistry& kernels);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_WORKERS_WORKER_PROCESSES_H_
