#ifndef ANNULUS_BENCH_MODEL_BENCH_WORKERS_H_
#define ANNULUS_BENCH_MODEL_BENCH_WORKERS_H_

#include "absl/status/status.h"
#include "engine/api.h"

namespace annulus::bench {

// Processes that host ranks of an engine here, one rank each. They end once the engine has; the
// destructor waits for them.
class BenchWorkers {
 public:
  virtual ~BenchWorkers() = default;

  // What the engine needs to know of them; it must end before this object.
  virtual EngineWorkers engine_workers() = 0;

  // OK while all of them run. UNAVAILABLE: one has ended; what it said is on standard error.
  virtual absl::Status Check() = 0;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_BENCH_WORKERS_H_
