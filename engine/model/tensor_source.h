#ifndef ANNULUS_ENGINE_MODEL_TENSOR_SOURCE_H_
#define ANNULUS_ENGINE_MODEL_TENSOR_SOURCE_H_

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

// What a tensor is, without its bytes. Dense and row-major; shape {} is one element. A source makes
// only infos whose element and byte counts fit int64_t, so the counts below cannot overflow.
struct TensorInfo {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // every dimension >= 0

  int64_t elements() const;
  size_t bytes() const { return static_cast<size_t>(elements()) * DTypeSize(dtype); }
};

// "[4096, 128]": for messages.
std::string ShapeToString(std::span<const int64_t> shape);

// Named tensors of a model: a checkpoint's files, or weights that are computed. Nothing is handed
// out by pointer: the bytes come by copy, one tensor at a time, so a file that changes under us can
// only make a read fail, and no tensor stays in memory longer than its packing takes.
// Thread-safe: all methods are const and keep no state.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // All tensors, in ascending order of their names.
  virtual std::vector<std::string> Names() const = 0;

  virtual bool Has(absl::string_view name) const = 0;

  // NOT_FOUND: no such tensor. FAILED_PRECONDITION: its element type is none of ours.
  virtual absl::StatusOr<TensorInfo> Describe(absl::string_view name) const = 0;

  // Writes the tensor's elements, in its own dtype and the machine's byte order, to `destination`,
  // which holds exactly Describe(name)->bytes() bytes. DATA_LOSS: the file behind it was truncated
  // or replaced since it was opened. On error the destination's content is undefined.
  virtual absl::Status Read(absl::string_view name, std::span<std::byte> destination) const = 0;

  // Bytes [offset, offset + destination.size()) of what Read writes; they must lie inside it. This
  // one reads the whole tensor first: a source with large tensors does better.
  virtual absl::Status ReadRange(absl::string_view name, size_t offset,
                                 std::span<std::byte> destination) const;
};

// The tensor's elements widened to float32 (exact for kF32, kBF16 and kF16; other element types are
// FAILED_PRECONDITION). For small tensors: norms, biases, tests.
absl::StatusOr<std::vector<float>> ReadAsFloat(const TensorSource& source, absl::string_view name);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_TENSOR_SOURCE_H_
