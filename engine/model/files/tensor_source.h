#ifndef ANNULUS_ENGINE_MODEL_FILES_TENSOR_SOURCE_H_
#define ANNULUS_ENGINE_MODEL_FILES_TENSOR_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/base/dtype.h"

namespace annulus {

// Describes a tensor, without its data. Dense and row-major; shape {} is a single element. Sources
// only create infos whose element and byte counts fit int64_t, so the methods below cannot
// overflow.
struct TensorInfo {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // every dimension >= 0

  int64_t elements() const;
  size_t bytes() const { return static_cast<size_t>(elements()) * DTypeSize(dtype); }
};

// Formats a shape for messages: "[4096, 128]".
std::string ShapeToString(std::span<const int64_t> shape);

// Named tensors of a model: the files of a checkpoint, or computed weights. Data is copied, one
// tensor at a time, never returned by pointer. So a file that changes can only make a read fail,
// and a tensor stays in memory only while it is packed. Thread-safe: all methods are const and keep
// no state.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // All tensors, in ascending order of name.
  virtual std::vector<std::string> Names() const = 0;

  virtual bool Has(absl::string_view name) const = 0;

  // NOT_FOUND: no such tensor. FAILED_PRECONDITION: unsupported element type.
  virtual absl::StatusOr<TensorInfo> Describe(absl::string_view name) const = 0;

  // Writes the tensor's elements, in its own dtype and native byte order, to `destination`, whose
  // size must be Describe(name)->bytes(). DATA_LOSS: the file was truncated or replaced since it
  // was opened. After an error the content of `destination` is undefined.
  virtual absl::Status Read(absl::string_view name, std::span<std::byte> destination) const = 0;

  // Reads bytes [offset, offset + destination.size()) of what Read writes; they must be inside it.
  // The default reads the whole tensor; sources with large tensors should override it.
  virtual absl::Status ReadRange(absl::string_view name, size_t offset,
                                 std::span<std::byte> destination) const;

  // The most memory that ReadRange takes for so many bytes while it runs, besides the destination.
  // The default is that of the default ReadRange. 0 if there is no such tensor.
  virtual size_t RangeMemory(absl::string_view name, size_t bytes) const;
};

// Reads a tensor and widens its elements to float32, exactly. FAILED_PRECONDITION for element types
// other than kF32, kBF16 and kF16. For small tensors: norms, biases, tests.
absl::StatusOr<std::vector<float>> ReadAsFloat(const TensorSource& source, absl::string_view name);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FILES_TENSOR_SOURCE_H_
