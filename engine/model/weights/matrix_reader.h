#ifndef ANNULUS_ENGINE_MODEL_WEIGHTS_MATRIX_READER_H_
#define ANNULUS_ENGINE_MODEL_WEIGHTS_MATRIX_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/files/tensor_source.h"
#include "kernels/base/tensor_view.h"

namespace annulus {

// How a tensor orders the rows of queries or keys. Rope turns row i of a head together with row i +
// rotated / 2 here; in files of some families those two are neighbours.
struct HeadOrder {
  int64_t rows = 0;     // of each head; 0: the order is the same
  int64_t rotated = 0;  // rows at the beginning of each head that rope turns; even

  // The stored place of a row.
  int64_t Stored(int64_t row) const {
    const int64_t place = rows == 0 ? 0 : row % rows;
    if (rows == 0 || place >= rotated) return row;
    return row - place + place % (rotated / 2) * 2 + place / (rotated / 2);
  }
};

// A matrix [rows, cols] inside a tensor of the checkpoint. A slice is a whole tensor of two
// dimensions, or element `slice` along the first of three. Row r of the matrix is row first +
// heads.Stored(r) * step of the slice; if `transposed`, that column of the slice.
struct StoredMatrix {
  std::string name;            // of the tensor
  std::vector<int64_t> shape;  // the shape that the tensor must have
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t slice = 0;
  int64_t first = 0;
  int64_t step = 1;
  bool transposed = false;
  HeadOrder heads = {};  // step is 1 then, and transposed false
};

// Rows of the slice that holds the matrix.
int64_t SliceRows(const StoredMatrix& matrix);

// A vector inside a tensor: `size` elements first, first + step, .. of a slice, or those in the
// order of heads.
struct StoredVector {
  std::string name;
  std::vector<int64_t> shape;
  int64_t size = 0;
  int64_t slice = 0;
  int64_t first = 0;
  int64_t step = 1;
  HeadOrder heads = {};
};

// Memory that it takes to read a matrix block by block, in bytes.
struct ReadingBytes {
  // Buffers that a MatrixReader keeps: of what is stored, of scales, and of what becomes of it.
  size_t stored = 0;
  size_t scales = 0;
  size_t made = 0;
  size_t passing = 0;  // besides them, while a block is read or packed

  size_t total() const { return stored + scales + made + passing; }
  // Grows to what either needs.
  void Cover(const ReadingBytes& other);
};

// Name of the tensor with the scales, if a matrix is stored as codes with scales per row or group.
std::string ScaleTensorName(absl::string_view matrix);

// Whether this is the name of an embedding or the head.
bool IsVocabulary(absl::string_view name);

// The dtype a matrix is packed or converted to, given the dtype `weights` for the model. The
// embedding and the head, whose errors reach every logit, use int8 in int4 and fp8 models, and q8_0
// in models of the types of GGUF files.
DType MatrixDType(DType weights, absl::string_view name);

// Reads rows of matrices in any form that checkpoints use:
//   f32, bf16, f16   as they are
//   float8, int8     times the scales of NAME_scale_inv or NAME_scale: one for the tensor or one
//                    per row; float8 also one per block of rows and columns
//   int4             I8 [rows, cols / 2, rounded up], two codes in a byte, times the bf16 scales of
//                    NAME_scale [rows, cols / 32 or 64, rounded up]; see kernels/base/quantize.h.
//                    With 32 columns or fewer both are one group, which counts as one of 32
//   q8_0, q4_0       I8 [rows, cols] or [rows, cols / 2], times the f16 scales of NAME_scale
//                    [rows, cols / 32]; q8_0 with 32 columns or fewer counts as int8
//   q4_1             the codes of q4_0; NAME_scale is [rows, cols / 32, 2], scales and minimums
//   MXFP4            NAME_blocks and NAME_scales, whose values e2m1 * 2^k are exact in bf16 (OCP
//                    Microscaling Formats 1.0)
// Codes and scales of a tensor with three dimensions are [slices, rows, ..], whatever the order of
// the plain form. Memory: buffers for the stored and the resulting rows, reused between calls; for
// a transposed plain slice, the whole slice. Not thread-safe.
class MatrixReader {
 public:
  // `source` must outlive the reader. The block sizes apply to float8 if the scale tensor is
  // neither a single number nor one per row.
  MatrixReader(const TensorSource& source, int64_t fp8_block_rows, int64_t fp8_block_cols)
      : source_(source), block_rows_(fp8_block_rows), block_cols_(fp8_block_cols) {}

  // Whether the checkpoint has the tensor in one of these forms.
  bool Has(const StoredMatrix& matrix) const;

  // The checkpoint's tensors that Read uses for the matrix.
  std::vector<std::string> TensorsOf(const StoredMatrix& matrix) const;

  // Checks the shapes and element types of everything that Read will use. Returns the dtype that
  // holds the matrix exactly, or kBF16 for MXFP4 and for float8 with scales per block (whose scaled
  // values would need float32). INVALID_ARGUMENT: unexpected shape. UNIMPLEMENTED: another element
  // type.
  absl::StatusOr<DType> Check(const StoredMatrix& matrix) const;

  // How many rows to read and process together: as many as stay in a core's cache along with their
  // results, a multiple of kPackRows; all rows if single rows cannot be read. Call after Check.
  int64_t BlockRows(const StoredMatrix& matrix) const;

  // What reading the matrix takes, BlockRows rows at a time. Call after Check.
  ReadingBytes BytesFor(const StoredMatrix& matrix) const;

  // Takes the buffers ahead: Read then takes none for matrices that need no more. `passing` does
  // not matter. RESOURCE_EXHAUSTED: out of memory.
  absl::Status Reserve(const ReadingBytes& bytes);

  // Reads rows [first, first + count), dense or as codes with scales. The result is valid until the
  // next call. Call after Check. RESOURCE_EXHAUSTED: out of memory.
  absl::StatusOr<HostTensorView> Read(const StoredMatrix& matrix, int64_t first, int64_t count);

  // Reads a vector as float32. The caller must have checked its shape.
  absl::StatusOr<std::vector<float>> Read(const StoredVector& vector) const;

 private:
  class Buffer {
   public:
    // Returns at least `bytes`; previous contents are lost.
    absl::StatusOr<std::byte*> Get(size_t bytes);

   private:
    std::unique_ptr<std::byte[]> data_;
    size_t size_ = 0;
  };
  // Some rows of a matrix.
  struct Rows {
    const StoredMatrix& matrix;
    int64_t first;
    int64_t count;
  };

  bool IsMxfp4(const StoredMatrix& matrix) const;
  std::string FindScales(const std::string& name) const;
  absl::StatusOr<DType> CheckMxfp4(const StoredMatrix& matrix) const;
  absl::StatusOr<DType> CheckCodes(const StoredMatrix& matrix, const TensorInfo& codes) const;
  // Bytes of a buffer for so many rows of `row_bytes` each; see ReadRows.
  static size_t RowsMemory(const StoredMatrix& matrix, int64_t count, size_t row_bytes);
  absl::StatusOr<std::byte*> ReadRows(const std::string& name, const Rows& rows, size_t row_bytes,
                                      Buffer& buffer);
  absl::StatusOr<std::byte*> ReadOrderedRows(const std::string& name, const Rows& rows,
                                             size_t row_bytes, Buffer& buffer);
  absl::StatusOr<HostTensorView> ReadTransposed(const Rows& rows, DType dtype);
  absl::StatusOr<HostTensorView> ReadMxfp4(const Rows& rows);
  absl::StatusOr<HostTensorView> ReadCodes(const Rows& rows, DType dtype);
  absl::StatusOr<HostTensorView> ReadBlockScaled(const Rows& rows, const TensorInfo& info);

  const TensorSource& source_;
  const int64_t block_rows_;
  const int64_t block_cols_;
  Buffer stored_;
  Buffer scales_;
  Buffer made_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_WEIGHTS_MATRIX_READER_H_
