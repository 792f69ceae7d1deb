#ifndef ANNULUS_ENGINE_MEMORY_PLAN_H_
#define ANNULUS_ENGINE_MEMORY_PLAN_H_

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api/load.h"
#include "engine/request/evidence_memory.h"
#include "engine/runner/rank_set.h"

namespace annulus {

// What the process takes of the host's memory beside weights and ranks, in bytes.
struct HostUse {
  size_t program = 0;
  size_t kv_host = 0;  // EngineOptions::kv_host_bytes
  size_t pinned = 0;   // PageStores::BufferBytes
  size_t memory = 0;   // EngineOptions::host_memory_bytes
  EvidenceShape evidence = {};
  int64_t max_context = 0;  // ModelInfo::max_context
};

// The room for evidence if all ranks together have so many bytes of keys and values: prompts are no
// longer than these hold, and than the context. As long as one request finds room, at most
// kMostEvidenceRoom and a 64th of the keys and values, to which it should add little.
inline constexpr size_t kMostEvidenceRoom = size_t{64} << 20;
inline constexpr size_t kKvBytesForEvidenceByte = 64;
EvidenceRoom EvidenceRoomOf(const RankModel& model, const HostUse& host, size_t kv_bytes,
                            int max_running);

// Host memory of the process without the weights, after loading them.
size_t ProgramBytes(const RankModel& model, const Backend& backend);

// What ranks would take of their devices, now that weights are loaded, and the tiers of the host;
// without ranks in this process, only what is free. RESOURCE_EXHAUSTED if the ranks are on a device
// and the host has no room for the tiers; errors of asking a device for its free memory.
absl::StatusOr<MemoryPlan> PlanMemory(const RankModel& model, const RankSetOptions& ranks,
                                      const HostUse& host, Backend& backend);

// RESOURCE_EXHAUSTED if the plan needs more than is free. The message has all the numbers, what to
// do, and the most that --kv-memory may be for all `ranks`, however many share the device. The
// error satisfies IsOfDevice if the plan would fit without other users of the device. The backend
// checks each allocation by itself, but the system gives host memory only when it is first written,
// and others use the device too, so a plan that cannot fit as a whole is refused now.
absl::Status CheckPlan(const MemoryPlan& plan, int ranks);

// Bytes of keys and values of all ranks if --kv-memory is not given: a quarter of the memory; for
// devices with memory of their own, less by as much as would not fit there.
absl::StatusOr<size_t> DefaultKvMemory(const RankModel& model, RankSetOptions ranks,
                                       Backend& backend);

// What is left of `bytes` when `taken` are taken: never less than 0.
inline size_t BytesLeft(size_t bytes, size_t taken) { return bytes - std::min(bytes, taken); }

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_PLAN_H_
