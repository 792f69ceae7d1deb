#include "engine/model/matrix_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <span>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// A block of MXFP4 and its bytes.
constexpr int64_t kFp4Block = 32;
constexpr int64_t kFp4Bytes = kFp4Block / 2;

bool IsFloat8(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2; }

absl::Status ExpectShape(const TensorSource& source, const std::string& name,
                         const std::vector<int64_t>& expected) {
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source.Describe(name));
  if (info.shape == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", name, " has the shape ", ShapeToString(info.shape),
                   "; config.json asks for ", ShapeToString(expected)));
}

// [slices, out, blocks, 16] of a matrix whose plain form is [slices, in, out].
std::vector<int64_t> BlocksShape(const StoredMatrix& matrix) {
  return {matrix.shape[0], matrix.shape[2], matrix.cols / kFp4Block, kFp4Bytes};
}

std::vector<int64_t> ScalesShape(const StoredMatrix& matrix) {
  return {matrix.shape[0], matrix.shape[2], matrix.cols / kFp4Block};
}

// Copies rows that lie `row_step` elements apart, whose elements lie `step` apart.
template <class T>
void Gather(const std::byte* from, int64_t row_step, int64_t step, int64_t rows, int64_t cols,
            std::byte* to) {
  const T* const source = reinterpret_cast<const T*>(from);
  T* const target = reinterpret_cast<T*>(to);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) target[r * cols + c] = source[r * row_step + c * step];
  }
}

// Elements of one slice: those of all dimensions, less the first of three.
int64_t SliceElements(const std::vector<int64_t>& shape, size_t dimensions) {
  int64_t elements = 1;
  for (size_t i = shape.size() > dimensions ? 1 : 0; i < shape.size(); ++i) elements *= shape[i];
  return elements;
}

}  // namespace

absl::StatusOr<std::byte*> MatrixReader::Buffer::Get(size_t bytes) {
  if (bytes <= size_) return data_.get();
  data_.reset();
  size_ = 0;
  data_.reset(new (std::nothrow) std::byte[bytes]);
  if (data_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", bytes, " bytes to read a matrix into"));
  }
  size_ = bytes;
  return data_.get();
}

bool MatrixReader::IsMxfp4(const StoredMatrix& matrix) const {
  return matrix.transposed && !source_.Has(matrix.name) && source_.Has(matrix.name + "_blocks") &&
         source_.Has(matrix.name + "_scales");
}

bool MatrixReader::Has(const StoredMatrix& matrix) const {
  return source_.Has(matrix.name) || IsMxfp4(matrix);
}

std::string MatrixReader::ScaleName(const std::string& name) const {
  const std::string inverse = name + "_scale_inv";
  return source_.Has(inverse) ? inverse : name + "_scale";
}

absl::StatusOr<DType> MatrixReader::Check(const StoredMatrix& matrix) const {
  if (IsMxfp4(matrix)) {
    if (matrix.cols % kFp4Block != 0) {
      return absl::UnimplementedError(
          absl::StrCat("tensor ", matrix.name, " has rows of ", matrix.cols,
                       " values; MXFP4 needs multiples of ", kFp4Block));
    }
    ANNULUS_RETURN_IF_ERROR(ExpectShape(source_, matrix.name + "_blocks", BlocksShape(matrix)));
    ANNULUS_RETURN_IF_ERROR(ExpectShape(source_, matrix.name + "_scales", ScalesShape(matrix)));
    for (const char* part : {"_blocks", "_scales"}) {
      ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source_.Describe(matrix.name + part));
      if (info.dtype == DType::kI8) continue;
      return absl::UnimplementedError(absl::StrCat("tensor ", matrix.name, part, " is stored as ",
                                                   DTypeName(info.dtype), "; supported: U8"));
    }
    return DType::kBF16;
  }
  ANNULUS_RETURN_IF_ERROR(ExpectShape(source_, matrix.name, matrix.shape));
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source_.Describe(matrix.name));
  if (info.dtype == DType::kF32 || info.dtype == DType::kBF16 || info.dtype == DType::kF16) {
    return info.dtype;
  }
  if (!IsFloat8(info.dtype) || matrix.shape.size() != 2 || matrix.transposed) {
    return absl::UnimplementedError(absl::StrCat(
        "tensor ", matrix.name, " is stored as ", DTypeName(info.dtype),
        "; supported: f32, bf16, f16, and fp8_e4m3 or fp8_e5m2 for matrices with scales"));
  }
  const std::string name = ScaleName(matrix.name);
  if (!source_.Has(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", matrix.name, " is ", DTypeName(info.dtype),
                     " without its scale; allowed: a float tensor ", matrix.name, "_scale or ",
                     matrix.name, "_scale_inv"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo scale, source_.Describe(name));
  const int64_t stored_rows = matrix.shape[0];
  const std::vector<int64_t> blocks = {(stored_rows + block_rows_ - 1) / block_rows_,
                                       (matrix.cols + block_cols_ - 1) / block_cols_};
  const bool per_row = scale.shape == std::vector<int64_t>{stored_rows} ||
                       scale.shape == std::vector<int64_t>{stored_rows, 1};
  if (scale.elements() == 1 || per_row || scale.shape == blocks) return DType::kBF16;
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", name, " has the shape ", ShapeToString(scale.shape),
                   "; allowed: [1], [", stored_rows, ", 1], or ", ShapeToString(blocks),
                   " for blocks of ", block_rows_, " x ", block_cols_));
}

absl::StatusOr<HostTensorView> MatrixReader::Read(const StoredMatrix& matrix) {
  if (IsMxfp4(matrix)) return ReadMxfp4(matrix);
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source_.Describe(matrix.name));
  ANNULUS_ASSIGN_OR_RETURN(const HostTensorView view, ReadPlain(matrix, info));
  return IsFloat8(info.dtype) ? Scale(matrix, view) : view;
}

absl::StatusOr<HostTensorView> MatrixReader::ReadPlain(const StoredMatrix& matrix,
                                                       const TensorInfo& info) {
  const size_t width = DTypeSize(info.dtype);
  const int64_t slice = SliceElements(matrix.shape, 2);
  // Rows that follow each other are read alone, others with what lies between them.
  const bool dense = !matrix.transposed && matrix.step == 1;
  const int64_t begin = matrix.slice * slice + (dense ? matrix.first * matrix.cols : 0);
  const int64_t count = dense ? matrix.rows * matrix.cols : slice;
  const size_t bytes = static_cast<size_t>(count) * width;
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const stored, stored_.Get(bytes));
  ANNULUS_RETURN_IF_ERROR(
      source_.ReadRange(matrix.name, static_cast<size_t>(begin) * width, std::span(stored, bytes)));
  if (dense) return HostTensorView{stored, info.dtype, matrix.rows, matrix.cols};
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const gathered,
                           gathered_.Get(static_cast<size_t>(matrix.rows * matrix.cols) * width));
  const int64_t others = matrix.shape.back();
  const int64_t row_step = matrix.transposed ? matrix.step : matrix.step * matrix.cols;
  const int64_t step = matrix.transposed ? others : 1;
  const std::byte* from =
      stored + static_cast<size_t>(matrix.first * (matrix.transposed ? 1 : matrix.cols)) * width;
  ANNULUS_CHECK(width == 4 || width == 2) << "elements of " << width << " bytes";
  (width == 4 ? Gather<uint32_t> : Gather<uint16_t>)(from, row_step, step, matrix.rows, matrix.cols,
                                                     gathered);
  return HostTensorView{gathered, info.dtype, matrix.rows, matrix.cols};
}

absl::StatusOr<HostTensorView> MatrixReader::Scale(const StoredMatrix& matrix,
                                                   const HostTensorView& codes) {
  const std::string name = ScaleName(matrix.name);
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source_.Describe(name));
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<float> scales, ReadAsFloat(source_, name));
  const auto elements = static_cast<size_t>(matrix.rows * matrix.cols);
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const memory, widened_.Get(elements * sizeof(float)));
  float* const values = reinterpret_cast<float*>(memory);
  ConvertToFloat(codes.dtype, codes.data, values, elements);
  const bool single = scales.size() == 1;
  const bool per_row = !single && static_cast<int64_t>(scales.size()) == matrix.shape[0];
  const int64_t across = info.shape.size() == 2 && !per_row ? info.shape[1] : 1;
  for (int64_t r = 0; r < matrix.rows; ++r) {
    const int64_t row = matrix.first + r * matrix.step;
    for (int64_t c = 0; c < matrix.cols; ++c) {
      const int64_t at = single ? 0 : per_row ? row : row / block_rows_ * across + c / block_cols_;
      values[r * matrix.cols + c] *= scales[at];
    }
  }
  return HostTensorView{memory, DType::kF32, matrix.rows, matrix.cols};
}

absl::StatusOr<HostTensorView> MatrixReader::ReadMxfp4(const StoredMatrix& matrix) {
  static constexpr float kValues[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                        -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  const int64_t all_rows = matrix.shape[2];
  const int64_t blocks = matrix.cols / kFp4Block;
  const auto count = static_cast<size_t>(all_rows * blocks);
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const codes, stored_.Get(count * kFp4Bytes));
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const exponents, gathered_.Get(count));
  const auto slice = static_cast<size_t>(matrix.slice);
  ANNULUS_RETURN_IF_ERROR(source_.ReadRange(matrix.name + "_blocks", slice * count * kFp4Bytes,
                                            std::span(codes, count * kFp4Bytes)));
  ANNULUS_RETURN_IF_ERROR(
      source_.ReadRange(matrix.name + "_scales", slice * count, std::span(exponents, count)));
  ANNULUS_ASSIGN_OR_RETURN(
      std::byte* const memory,
      widened_.Get(static_cast<size_t>(matrix.rows * matrix.cols) * sizeof(float)));
  float* value = reinterpret_cast<float*>(memory);
  for (int64_t r = 0; r < matrix.rows; ++r) {
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t block = (matrix.first + r * matrix.step) * blocks + b;
      const float scale = std::ldexp(1.0f, std::to_integer<int>(exponents[block]) - 127);
      for (int64_t i = 0; i < kFp4Bytes; ++i) {
        const auto pair = std::to_integer<unsigned>(codes[block * kFp4Bytes + i]);
        *value++ = kValues[pair & 15] * scale;
        *value++ = kValues[pair >> 4] * scale;
      }
    }
  }
  return HostTensorView{memory, DType::kF32, matrix.rows, matrix.cols};
}

absl::StatusOr<std::vector<float>> MatrixReader::Read(const StoredVector& vector) const {
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source_.Describe(vector.name));
  const size_t width = DTypeSize(info.dtype);
  const auto slice = static_cast<size_t>(SliceElements(vector.shape, 1));
  std::vector<std::byte> bytes(slice * width);
  ANNULUS_RETURN_IF_ERROR(
      source_.ReadRange(vector.name, static_cast<size_t>(vector.slice) * bytes.size(), bytes));
  std::vector<float> all(slice);
  ConvertToFloat(info.dtype, bytes.data(), all.data(), slice);
  std::vector<float> values;
  for (int64_t i = 0; i < vector.size; ++i) values.push_back(all[vector.first + i * vector.step]);
  return values;
}

}  // namespace annulus
