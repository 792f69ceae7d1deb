#include "engine/model/files/tensor_source.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {

int64_t TensorInfo::elements() const {
  int64_t product = 1;
  for (const int64_t dimension : shape) product *= dimension;
  return product;
}

std::string ShapeToString(std::span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape.begin(), shape.end(), ", "), "]");
}

absl::Status TensorSource::ReadRange(absl::string_view name, size_t offset,
                                     std::span<std::byte> destination) const {
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, Describe(name));
  if (offset == 0 && destination.size() == info.bytes()) return Read(name, destination);
  std::vector<std::byte> whole(info.bytes());
  ANNULUS_CHECK(offset <= whole.size() && destination.size() <= whole.size() - offset)
      << "tensor " << name;
  ANNULUS_RETURN_IF_ERROR(Read(name, whole));
  std::copy_n(whole.begin() + static_cast<int64_t>(offset), destination.size(),
              destination.begin());
  return absl::OkStatus();
}

size_t TensorSource::RangeMemory(absl::string_view name, size_t bytes) const {
  const absl::StatusOr<TensorInfo> info = Describe(name);
  return info.ok() && info->bytes() > bytes ? info->bytes() : 0;
}

absl::StatusOr<std::vector<float>> ReadAsFloat(const TensorSource& source, absl::string_view name) {
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source.Describe(name));
  if (info.dtype != DType::kF32 && info.dtype != DType::kBF16 && info.dtype != DType::kF16) {
    return absl::FailedPreconditionError(
        absl::StrCat("tensor ", name, " is ", DTypeName(info.dtype), "; allowed: f32, bf16, f16"));
  }
  std::vector<std::byte> bytes(info.bytes());
  ANNULUS_RETURN_IF_ERROR(source.Read(name, bytes));
  std::vector<float> values(static_cast<size_t>(info.elements()));
  ConvertToFloat(info.dtype, bytes.data(), values.data(), values.size());
  return values;
}

}  // namespace annulus
