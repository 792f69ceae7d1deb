#include "engine/model/experts/expert_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/model/weights/matrix_loader.h"
#include "kernels/base/check.h"
#include "kernels/base/device_error.h"
#include "kernels/base/format_bytes.h"
#include "kernels/base/status_macros.h"

namespace annulus {

int ExpertReaders(int threads) {
  constexpr int kMostReaders = 4;
  return std::clamp(threads, 1, kMostReaders);
}

ReadingBytes ExpertReadingBytes(const std::vector<ExpertPlace>& experts,
                                const MatrixReader& reader) {
  ReadingBytes bytes;
  for (const ExpertPlace& expert : experts) {
    for (const StoredMatrix& stored : expert.stored) bytes.Cover(LoadingBytes(stored, reader));
  }
  return bytes;
}

absl::StatusOr<std::optional<ExpertSlotSizes>> SizeExpertSlots(
    const std::vector<ExpertPlace>& experts, int chosen, int64_t limit, const OpTable& ops) {
  ANNULUS_CHECK(!experts.empty());  // ParseExperts
  ExpertSlotSizes sizes;
  for (const ExpertPlace& expert : experts) {
    size_t bytes = 0;
    for (size_t i = 0; i < kExpertMatrices; ++i) {
      const StoredMatrix& stored = expert.stored[i];
      const absl::StatusOr<size_t> matrix =
          ops.matrix_bytes(stored.rows, stored.cols, expert.dtypes[i]);
      if (!matrix.ok()) {
        return WithPrefix(absl::StrCat("tensor ", stored.name, ": "), matrix.status());
      }
      bytes += AlignedMatrix(*matrix);
    }
    sizes.slot_bytes = std::max(sizes.slot_bytes, bytes);
  }
  sizes.slots = static_cast<size_t>(limit) / sizes.slot_bytes;
  if (sizes.slots >= experts.size()) return std::nullopt;
  const auto least = 2 * static_cast<size_t>(chosen);
  if (sizes.slots >= least) return sizes;
  return absl::InvalidArgumentError(absl::StrCat(
      "expert-memory is ", FormatBytes(static_cast<size_t>(limit)), ", but this model needs ",
      FormatBytes(least * sizes.slot_bytes), " or more (", least, " experts of ",
      FormatBytes(sizes.slot_bytes), ", twice what a token needs of a layer); all ", experts.size(),
      " experts take ", FormatBytes(experts.size() * sizes.slot_bytes)));
}

}  // namespace annulus
