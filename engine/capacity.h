#ifndef ANNULUS_ENGINE_CAPACITY_H_
#define ANNULUS_ENGINE_CAPACITY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api.h"

namespace annulus {

// What to plan for: every dtype of weights with every dtype of keys and values on every number of
// ranks.
struct CapacityQuestion {
  EngineOptions options;  // all else; its model may also be a config.json alone
  std::vector<std::optional<DType>> weights_dtypes;  // absent: as the model is stored
  std::vector<DType> kv_dtypes;
  std::vector<int> ranks;
  // Of the host's memory, that the process will take beside the engine and what it takes now.
  size_t services_bytes = 0;
};

struct CapacityCase {
  DType weights_dtype = DType::kF32;  // of the layers' matrices, or of most of them
  DType kv_dtype = DType::kF32;
  int ranks = 1;
  // Of one device; `kv` is all that the rest leaves, or what EngineOptions::kv_memory_bytes says.
  // Where needed() is more than `free`, it does not fit.
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

// Which contexts fit such devices, without loading the model: for a machine that is not there yet,
// too (see kernels/planned_backend.h). For dense attention: policies that choose by
// content keep summaries too. `machine` has as many devices as there may be ranks, or one that all
// share. Errors are those of CreateEngine before it reads weights; where only some dtypes are
// impossible, `missing` says so.
absl::StatusOr<CapacityTable> PlanCapacity(const CapacityQuestion& question, Backend& machine,
                                           const KernelRegistry& kernels);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_CAPACITY_H_
