#ifndef ANNULUS_ENGINE_ENGINE_SEAMS_H_
#define ANNULUS_ENGINE_ENGINE_SEAMS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api.h"
#include "engine/base/clock.h"

namespace annulus {

class Carrier;
class DiskCalls;
class RankPort;

// What tests and measurements replace in an engine. Everything must outlive it.
struct EngineSeams {
  // Everything the engine decides by time goes by this clock: deadlines, times to live, paces,
  // timeouts of ranks and disks, and what steps are expected to take. So all times in a RequestSpec
  // are the clock's. A device's library still waits by the machine's clock.
  const Clock* clock = &Clock::Real();
  DiskCalls* disk_calls = nullptr;  // for kv_disk; null: the system's
  bool through_bytes = false;       // encode and decode every plan and result
  EngineWorkers workers = {};       // who hosts ranks elsewhere
  // Opens what carries messages to ranks in other processes. Null: UCX.
  std::function<absl::StatusOr<std::unique_ptr<Carrier>>()> open_carrier = nullptr;
  // What the engine sees of its ranks. Null: the ranks themselves.
  std::function<std::unique_ptr<RankPort>(std::unique_ptr<RankPort>)> wrap_ranks = nullptr;
  // Returns the tokens that the request's answer begins with, whatever the logits say; ids of the
  // model's vocabulary. Submit calls it, on any thread. Null: none.
  std::function<std::vector<int32_t>(const RequestSpec& spec)> force_answer = nullptr;
};

// CreateEngine with `seams`.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWith(const EngineSeams& seams,
                                                         const EngineOptions& options,
                                                         Backend& backend,
                                                         const KernelRegistry& kernels);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_ENGINE_SEAMS_H_
