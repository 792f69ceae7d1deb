#ifndef ANNULUS_ENGINE_MODEL_EXPERTS_EXPERT_MEMORY_H_
#define ANNULUS_ENGINE_MODEL_EXPERTS_EXPERT_MEMORY_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/files/tensor_source.h"
#include "engine/model/weights/matrix_reader.h"
#include "kernels/base/dtype.h"
#include "kernels/registry.h"

namespace annulus {

struct GatedWeights;

// How many of a model's experts LoadWeights keeps in memory. The others stay in `source` and are
// read when a step needs them: see ExpertCache.
struct ExpertMemory {
  int64_t limit = 0;  // bytes; 0: all experts are in memory
  // What experts are read from; not null if there is a limit. Kept as long as the weights.
  std::shared_ptr<const TensorSource> source;
  // How long a step may wait while no expert arrives.
  std::chrono::milliseconds longest_wait{0};
};

// The matrices of an expert, in the order of the arrays below: gate, up and down.
inline constexpr size_t kExpertMatrices = 3;

// One expert of a model: where its matrices are in the checkpoint, and what they become in memory.
struct ExpertPlace {
  std::array<StoredMatrix, kExpertMatrices> stored;
  std::array<DType, kExpertMatrices> dtypes = {};
  // The expert in its layer's ExpertsWeights: it has the biases, and matrices without storage.
  const GatedWeights* weights = nullptr;
};

// Slots of equal size, each for the packed matrices of any one expert, one after the other.
struct ExpertSlotSizes {
  size_t slot_bytes = 0;
  size_t slots = 0;

  size_t bytes() const { return slot_bytes * slots; }
};

// How many threads read experts where the process has so many threads. More would only wait for the
// same disk, or take processors from ranks.
int ExpertReaders(int threads);

// What a thread takes that reads any of these experts. Call after MatrixReader::Check.
ReadingBytes ExpertReadingBytes(const std::vector<ExpertPlace>& experts,
                                const MatrixReader& reader);

// How many slots `limit` bytes hold; nothing if there is room for all experts, of which there is at
// least one. `chosen`: experts that a row of one layer needs. INVALID_ARGUMENT, with the numbers,
// if the limit is below 2 * chosen experts. Otherwise the errors of OpTable::matrix_bytes.
absl::StatusOr<std::optional<ExpertSlotSizes>> SizeExpertSlots(
    const std::vector<ExpertPlace>& experts, int chosen, int64_t limit, const OpTable& ops);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_EXPERTS_EXPERT_MEMORY_H_
