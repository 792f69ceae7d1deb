#ifndef ANNULUS_ENGINE_MODEL_FILES_SAFETENSORS_HEADER_H_
#define ANNULUS_ENGINE_MODEL_FILES_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/base/dtype.h"

namespace annulus {

// An element type of the safetensors format. Files may contain tensors of types that no kernel
// reads (token counters, masks); these are checked too and rejected only when read.
struct StoredType {
  absl::string_view name;      // as in the header: "BF16"
  int bits = 0;                // per element
  std::optional<DType> dtype;  // absent: unsupported; U8 is read as bytes, like I8
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

// Parses the JSON header of a safetensors file whose data section has `data_bytes` bytes. Checks
// everything: known types, non-negative integers, that shape x type equals the length of the byte
// range (without overflow), unique names, and that the ranges cover the data section without gaps
// or overlaps. So every returned range is inside the file, and the counts of TensorInfo cannot
// overflow. Tensors are sorted by name. Memory: a small multiple of the header's size. Errors are
// INVALID_ARGUMENT with file and tensor. Source: "Format" in the README of the safetensors
// repository.
absl::StatusOr<std::vector<StoredTensor>> ParseSafetensorsHeader(absl::string_view json,
                                                                 uint64_t data_bytes,
                                                                 absl::string_view file_name);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FILES_SAFETENSORS_HEADER_H_
