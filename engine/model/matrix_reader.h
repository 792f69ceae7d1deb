#ifndef ANNULUS_ENGINE_MODEL_MATRIX_READER_H_
#define ANNULUS_ENGINE_MODEL_MATRIX_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/tensor_source.h"
#include "kernels/base/tensor_view.h"

namespace annulus {

// One matrix [rows, cols] inside a tensor of the checkpoint. Row r is row first + r * step of a
// slice; a slice is the whole of a tensor of two dimensions, or element `slice` of the first of
// three. `transposed`: row r is that column of the slice instead.
struct StoredMatrix {
  std::string name;            // of the tensor
  std::vector<int64_t> shape;  // that the tensor must have
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t slice = 0;
  int64_t first = 0;
  int64_t step = 1;
  bool transposed = false;
};

// The same of a vector: elements first, first + step, .. of a slice, `size` of them.
struct StoredVector {
  std::string name;
  std::vector<int64_t> shape;
  int64_t size = 0;
  int64_t slice = 0;
  int64_t first = 0;
  int64_t step = 1;
};

// Reads matrices one by one from however the checkpoint stores them: f32, bf16 and f16 as they are;
// float8 times the float32 scales of NAME_scale_inv or NAME_scale (one for the tensor, one per row,
// or one per block of rows and columns); MXFP4 from NAME_blocks and NAME_scales, whose values
// e2m1 * 2^k are exact in bf16 (OCP Microscaling Formats 1.0). Memory: the stored part of one
// matrix and the matrix itself, kept for the next. Not thread-safe.
class MatrixReader {
 public:
  // `source` must outlive the reader. Blocks of float8 scales have the given size where a scale
  // tensor is neither a single number nor one per row.
  MatrixReader(const TensorSource& source, int64_t fp8_block_rows, int64_t fp8_block_cols)
      : source_(source), block_rows_(fp8_block_rows), block_cols_(fp8_block_cols) {}

  // Whether the checkpoint has the tensor in one of these forms.
  bool Has(const StoredMatrix& matrix) const;

  // Checks shapes and element types of all that Read will touch. Gives the dtype that holds the
  // elements exactly, or kBF16 for float8 (whose scaled values need float32 to be exact).
  // INVALID_ARGUMENT: a shape that is not the expected one. UNIMPLEMENTED: an element type that is
  // none of these.
  absl::StatusOr<DType> Check(const StoredMatrix& matrix) const;

  // The matrix, dense; valid until the next call. After Check. RESOURCE_EXHAUSTED without memory.
  absl::StatusOr<HostTensorView> Read(const StoredMatrix& matrix);

  // A vector widened to float32. After the shape was checked.
  absl::StatusOr<std::vector<float>> Read(const StoredVector& vector) const;

 private:
  class Buffer {
   public:
    // At least `bytes`, contents lost.
    absl::StatusOr<std::byte*> Get(size_t bytes);

   private:
    std::unique_ptr<std::byte[]> data_;
    size_t size_ = 0;
  };

  bool IsMxfp4(const StoredMatrix& matrix) const;
  std::string ScaleName(const std::string& name) const;
  absl::StatusOr<HostTensorView> ReadPlain(const StoredMatrix& matrix, const TensorInfo& info);
  absl::StatusOr<HostTensorView> ReadMxfp4(const StoredMatrix& matrix);
  absl::StatusOr<HostTensorView> Scale(const StoredMatrix& matrix, const HostTensorView& codes);

  const TensorSource& source_;
  const int64_t block_rows_;
  const int64_t block_cols_;
  Buffer stored_;
  Buffer gathered_;
  Buffer widened_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_MATRIX_READER_H_
