#ifndef ANNULUS_ENGINE_MODEL_SAFETENSORS_HEADER_H_
#define ANNULUS_ENGINE_MODEL_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/base/dtype.h"

namespace annulus {

// An element type of the safetensors format. Files may hold tensors of types that no kernel reads
// (token counters, masks); they are checked like the others and refused only when asked for.
struct StoredType {
  absl::string_view name;      // as the header spells it: "BF16"
  int bits = 0;                // of one element
  std::optional<DType> dtype;  // absent: not one of ours; U8 is read as bytes, like I8
};

struct StoredTensor {
  std::string name;
  const StoredType* type = nullptr;  // static storage
  std::vector<int64_t> shape;        // at most kMostDimensions, each >= 0
  uint64_t begin = 0;                // bytes from the start of the data section
  uint64_t end = 0;
};

inline constexpr uint64_t kMostHeaderBytes = 100'000'000;
inline constexpr size_t kMostDimensions = 8;

// Reads the JSON header of a safetensors file whose data section has `data_bytes` bytes, and checks
// all of it: known types, whole non-negative numbers, shape x type = length of the byte range by
// checked arithmetic, no name twice, and ranges that cover the data section from its first byte to
// its last without holes or overlaps. So every range that comes back lies inside the file, and the
// counts of TensorInfo cannot overflow. Tensors are in ascending order of name. Memory: at most a
// small multiple of the header's own size. Errors are INVALID_ARGUMENT with file and tensor.
// Source: the format's description in the safetensors repository, README, "Format".
absl::StatusOr<std::vector<StoredTensor>> ParseSafetensorsHeader(absl::string_view json,
                                                                 uint64_t data_bytes,
                                                                 absl::string_view file_name);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_SAFETENSORS_HEADER_H_
