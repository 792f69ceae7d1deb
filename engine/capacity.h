#ifndef ANNULUS_ENGINE_CAPACITY_H_
#define ANNULUS_ENGINE_CAPACITY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api.h"

namespace annulus {

// What to plan for: every combination of a weights dtype, a key/value dtype and a number of ranks.
struct CapacityQuestion {
  EngineOptions options;  // all else; its model may also be a config.json alone
  std::vector<std::optional<DType>> weights_dtypes;  // absent: as the model is stored
  // Absent: as EngineOptions::kv_dtype says. What comes to the same is planned once.
  std::vector<std::optional<DType>> kv_dtypes;
  std::vector<int> ranks;
  // Host memory that the process will take besides the engine and besides what it takes now.
  size_t services_bytes = 0;
};

struct CapacityCase {
  DType weights_dtype = DType::kF32;  // of the layers' matrices, or of most of them
  DType kv_dtype = DType::kF32;
  int ranks = 1;
  // For one device; `kv` is all that the rest leaves, or EngineOptions::kv_memory_bytes. If
  // needed() is more than `free`, the case does not fit.
  MemoryPlan plan;
  int64_t kv_bytes_per_token = 0;  // of layers that keep every token
  // The longest prompt and answer of one request whose keys and values fit, whatever context the
  // model has, up to 2^31 - 1. 0: no page fits.
  int64_t tokens = 0;
};

struct CapacityTable {
  std::string description;  // of the model, for people
  int64_t parameters = 0;
  int64_t context = 0;               // tokens; EngineOptions::max_context if that is less
  std::vector<CapacityCase> cases;   // in the order of the question's lists, ranks innermost
  std::vector<std::string> missing;  // dtypes that were left out, and why
};

// Finds which contexts fit the machine, without loading the model. The machine need not exist (see
// kernels/planned_backend.h). Holds for dense attention: policies that choose by content also keep
// summaries. `machine` has as many devices as the most ranks, or one that all ranks share. Returns
// the errors that CreateEngine returns before it reads weights; if only some dtypes are impossible,
// `missing` names them.
absl::StatusOr<CapacityTable> PlanCapacity(const CapacityQuestion& question, Backend& machine,
                                           const KernelRegistry& kernels);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_CAPACITY_H_
