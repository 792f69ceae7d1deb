#include "engine/model/weights/matrix_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/quantize.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/linear.h"

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

bool IsPlain(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// Elements of the matrix that are read and handled together: their bytes, and those of what becomes
// of them, stay in a second-level cache.
constexpr int64_t kBlockElements = int64_t{256} << 10;

// The shape of codes or scales whose rows have the dimensions `row`.
std::vector<int64_t> RowsShape(const StoredMatrix& matrix, std::vector<int64_t> row) {
  row.insert(row.begin(), SliceRows(matrix));
  if (matrix.shape.size() == 3) row.insert(row.begin(), matrix.shape[0]);
  return row;
}

// The type with groups that such codes and scales are of, if of any.
std::optional<DType> GroupedType(const StoredMatrix& matrix, const TensorInfo& codes,
                                 const TensorInfo& scale) {
  if (codes.dtype != DType::kI8) return std::nullopt;
  const bool bf16 = scale.dtype == DType::kBF16;
  for (const DType dtype :
       {DType::kI4G32, DType::kI4G64, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    const bool int4 = dtype == DType::kI4G32 || dtype == DType::kI4G64;
    if (int4 ? !bf16 : scale.dtype != DType::kF16) continue;
    const int64_t group = QuantizedGroup(dtype);
    const int64_t groups = (matrix.cols + group - 1) / group;
    // Rows of one group of 8 bits, or of one code, are rows of kI8.
    if (!int4 && matrix.cols <= (dtype == DType::kQ8_0 ? group : 1)) continue;
    const auto row_bytes = static_cast<int64_t>(QuantizedRowBytes(dtype, matrix.cols));
    std::vector<int64_t> numbers = {groups};
    if (GroupNumbers(dtype) > 1) numbers.push_back(GroupNumbers(dtype));
    if (codes.shape == RowsShape(matrix, {row_bytes}) &&
        scale.shape == RowsShape(matrix, std::move(numbers))) {
      return dtype;
    }
  }
  return std::nullopt;
}

// rows[r][c] = columns[c * stride + r * step].
template <class T>
void Transpose(const std::byte* columns, int64_t stride, int64_t step, int64_t rows, int64_t cols,
               std::byte* to) {
  const T* const source = reinterpret_cast<const T*>(columns);
  T* const target = reinterpret_cast<T*>(to);
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) target[r * cols + c] = source[c * stride + r * step];
  }
}

}  // namespace

void ReadingBytes::Cover(const ReadingBytes& other) {
  stored = std::max(stored, other.stored);
  scales = std::max(scales, other.scales);
  made = std::max(made, other.made);
  passing = std::max(passing, other.passing);
}

int64_t SliceRows(const StoredMatrix& matrix) {
  return matrix.transposed ? matrix.shape[2] : matrix.shape[matrix.shape.size() - 2];
}

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

std::string ScaleTensorName(absl::string_view matrix) { return absl::StrCat(matrix, "_scale"); }

bool IsVocabulary(absl::string_view name) {
  // Also under the names that the text half of a larger model has.
  return absl::EndsWith(name, "embed_tokens.weight") || absl::EndsWith(name, "lm_head.weight") ||
         absl::EndsWith(name, "embed_tokens_per_layer.weight");
}

DType MatrixDType(DType weights, absl::string_view name) {
  if (!IsVocabulary(name) || !IsQuantized(weights)) return weights;
  const bool of_files =
      weights == DType::kQ8_0 || weights == DType::kQ4_0 || weights == DType::kQ4_1;
  return of_files ? DType::kQ8_0 : DType::kI8;
}

bool MatrixReader::IsMxfp4(const StoredMatrix& matrix) const {
  return matrix.transposed && !source_.Has(matrix.name) && source_.Has(matrix.name + "_blocks") &&
         source_.Has(matrix.name + "_scales");
}

bool MatrixReader::Has(const StoredMatrix& matrix) const {
  return source_.Has(matrix.name) || IsMxfp4(matrix);
}

std::vector<std::string> MatrixReader::TensorsOf(const StoredMatrix& matrix) const {
  if (IsMxfp4(matrix)) return {matrix.name + "_blocks", matrix.name + "_scales"};
  const auto info = source_.Describe(matrix.name);
  if (info.ok() && IsPlain(info->dtype)) return {matrix.name};
  return {matrix.name, FindScales(matrix.name)};
}

std::string MatrixReader::FindScales(const std::string& name) const {
  const std::string inverse = name + "_scale_inv";
  return source_.Has(inverse) ? inverse : ScaleTensorName(name);
}

absl::StatusOr<DType> MatrixReader::Check(const StoredMatrix& matrix) const {
  if (IsMxfp4(matrix)) return CheckMxfp4(matrix);
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source_.Describe(matrix.name));
  if (!IsPlain(info.dtype)) return CheckCodes(matrix, info);
  ANNULUS_RETURN_IF_ERROR(ExpectShape(source_, matrix.name, matrix.shape));
  return info.dtype;
}

absl::StatusOr<DType> MatrixReader::CheckMxfp4(const StoredMatrix& matrix) const {
  if (matrix.cols % kFp4Block != 0) {
    return absl::UnimplementedError(absl::StrCat("tensor ", matrix.name, " has rows of ",
                                                 matrix.cols, " values; MXFP4 needs multiples of ",
                                                 kFp4Block));
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

absl::StatusOr<DType> MatrixReader::CheckCodes(const StoredMatrix& matrix,
                                               const TensorInfo& codes) const {
  const std::string name = FindScales(matrix.name);
  if (!source_.Has(name)) {
    if (!IsFloat8(codes.dtype)) {
      return absl::UnimplementedError(absl::StrCat(
          "tensor ", matrix.name, " is stored as ", DTypeName(codes.dtype),
          "; supported: f32, bf16, f16, and float8, int8 or int4 for matrices with scales"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", matrix.name, " is ", DTypeName(codes.dtype),
                     " without its scale; allowed: a float tensor ", matrix.name, "_scale or ",
                     matrix.name, "_scale_inv"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo scale, source_.Describe(name));
  if (!IsPlain(scale.dtype)) {
    return absl::UnimplementedError(absl::StrCat(
        "tensor ", name, " is stored as ", DTypeName(scale.dtype), "; supported: f32, bf16, f16"));
  }
  if (const std::optional<DType> grouped = GroupedType(matrix, codes, scale)) return *grouped;
  ANNULUS_RETURN_IF_ERROR(ExpectShape(source_, matrix.name, RowsShape(matrix, {matrix.cols})));
  const bool per_row =
      scale.shape == RowsShape(matrix, {}) || scale.shape == RowsShape(matrix, {1});
  if (scale.elements() == 1 || per_row) return codes.dtype;
  const int64_t rows = SliceRows(matrix);
  const std::vector<int64_t> blocks = {(rows + block_rows_ - 1) / block_rows_,
                                       (matrix.cols + block_cols_ - 1) / block_cols_};
  if (IsFloat8(codes.dtype) && matrix.shape.size() == 2 && scale.shape == blocks)
    return DType::kBF16;
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", name, " has the shape ", ShapeToString(scale.shape),
                   "; allowed: [1], ", ShapeToString(RowsShape(matrix, {1})), ", or ",
                   ShapeToString(blocks), " for blocks of ", block_rows_, " x ", block_cols_));
}

int64_t MatrixReader::BlockRows(const StoredMatrix& matrix) const {
  if (matrix.transposed && !IsMxfp4(matrix)) {
    const auto info = source_.Describe(matrix.name);
    if (info.ok() && IsPlain(info->dtype)) return matrix.rows;
  }
  return std::max<int64_t>(1, kBlockElements / matrix.cols / kPackRows) * kPackRows;
}

// As the functions that read each form.
ReadingBytes MatrixReader::BytesFor(const StoredMatrix& matrix) const {
  const int64_t count = std::min(BlockRows(matrix), matrix.rows);
  const size_t floats = static_cast<size_t>(count * matrix.cols) * sizeof(float);
  ReadingBytes bytes;
  const auto add = [&](const std::string& name, size_t row_bytes, size_t& buffer) {
    buffer = RowsMemory(matrix, count, row_bytes);
    bytes.passing = std::max(bytes.passing, source_.RangeMemory(name, buffer));
  };
  if (IsMxfp4(matrix)) {
    const int64_t blocks = matrix.cols / kFp4Block;
    add(matrix.name + "_blocks", static_cast<size_t>(blocks * kFp4Bytes), bytes.stored);
    add(matrix.name + "_scales", static_cast<size_t>(blocks), bytes.scales);
    bytes.made = floats;
    return bytes;
  }
  const absl::StatusOr<TensorInfo> info = source_.Describe(matrix.name);
  ANNULUS_CHECK(info.ok()) << info.status();
  const size_t width = DTypeSize(info->dtype);
  if (IsPlain(info->dtype)) {
    if (!matrix.transposed) {
      add(matrix.name, static_cast<size_t>(matrix.cols) * width, bytes.stored);
      return bytes;
    }
    bytes.stored = static_cast<size_t>(matrix.cols * matrix.shape[2]) * width;
    bytes.passing = source_.RangeMemory(matrix.name, bytes.stored);
    bytes.made = static_cast<size_t>(count * matrix.cols) * width;
    return bytes;
  }
  const absl::StatusOr<DType> dtype = CheckCodes(matrix, *info);
  const std::string name = FindScales(matrix.name);
  const absl::StatusOr<TensorInfo> scale = source_.Describe(name);
  ANNULUS_CHECK(dtype.ok() && scale.ok()) << dtype.status() << scale.status();
  // Scales that are read whole, as float32.
  const size_t whole = static_cast<size_t>(scale->elements()) * sizeof(float) + scale->bytes() +
                       source_.RangeMemory(name, scale->bytes());
  if (*dtype == DType::kBF16) {  // see Check
    add(matrix.name, static_cast<size_t>(matrix.cols), bytes.stored);
    bytes.passing = std::max(bytes.passing, whole);
    bytes.made = floats;
    return bytes;
  }
  add(matrix.name, QuantizedRowBytes(*dtype, matrix.cols), bytes.stored);
  if (QuantizedGroup(*dtype) > 0) {
    add(name, QuantizedScaleBytes(*dtype, matrix.cols), bytes.scales);
    return bytes;
  }
  bytes.made = static_cast<size_t>(count) * sizeof(float);
  if (scale->elements() > 1) {
    add(name, DTypeSize(scale->dtype), bytes.scales);
  } else {
    bytes.passing = std::max(bytes.passing, whole);
  }
  return bytes;
}

absl::Status MatrixReader::Reserve(const ReadingBytes& bytes) {
  ANNULUS_RETURN_IF_ERROR(stored_.Get(bytes.stored).status());
  ANNULUS_RETURN_IF_ERROR(scales_.Get(bytes.scales).status());
  return made_.Get(bytes.made).status();
}

absl::StatusOr<HostTensorView> MatrixReader::Read(const StoredMatrix& matrix, int64_t first,
                                                  int64_t count) {
  ANNULUS_CHECK(first >= 0 && count > 0 && first + count <= matrix.rows) << matrix.name;
  const Rows rows = {matrix, first, count};
  if (IsMxfp4(matrix)) return ReadMxfp4(rows);
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source_.Describe(matrix.name));
  if (!IsPlain(info.dtype)) {
    ANNULUS_ASSIGN_OR_RETURN(const DType dtype, CheckCodes(matrix, info));
    return dtype == DType::kBF16 ? ReadBlockScaled(rows, info) : ReadCodes(rows, dtype);
  }
  if (matrix.transposed) return ReadTransposed(rows, info.dtype);
  ANNULUS_ASSIGN_OR_RETURN(
      std::byte* const values,
      ReadRows(matrix.name, rows, static_cast<size_t>(matrix.cols) * DTypeSize(info.dtype),
               stored_));
  return HostTensorView{values, info.dtype, count, matrix.cols};
}

size_t MatrixReader::RowsMemory(const StoredMatrix& matrix, int64_t count, size_t row_bytes) {
  if (const int64_t head = matrix.heads.rows; head > 0) {
    // The rows, and all heads that they touch.
    const int64_t heads = (count + 2 * (head - 1)) / head;
    return static_cast<size_t>(count + heads * head) * row_bytes;
  }
  return static_cast<size_t>((count - 1) * matrix.step + 1) * row_bytes;
}

// Rows of `row_bytes` each; those that do not follow each other are read with what lies between.
absl::StatusOr<std::byte*> MatrixReader::ReadRows(const std::string& name, const Rows& rows,
                                                  size_t row_bytes, Buffer& buffer) {
  const StoredMatrix& matrix = rows.matrix;
  if (matrix.heads.rows > 0) return ReadOrderedRows(name, rows, row_bytes, buffer);
  const int64_t begin = matrix.slice * SliceRows(matrix) + matrix.first + rows.first * matrix.step;
  const size_t bytes = RowsMemory(matrix, rows.count, row_bytes);
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const data, buffer.Get(bytes));
  ANNULUS_RETURN_IF_ERROR(
      source_.ReadRange(name, static_cast<size_t>(begin) * row_bytes, std::span(data, bytes)));
  for (int64_t r = 1; matrix.step > 1 && r < rows.count; ++r) {
    std::memmove(data + static_cast<size_t>(r) * row_bytes,
                 data + static_cast<size_t>(r * matrix.step) * row_bytes, row_bytes);
  }
  return data;
}

// Reads all of the heads that the rows belong to, behind the place for the rows.
absl::StatusOr<std::byte*> MatrixReader::ReadOrderedRows(const std::string& name, const Rows& rows,
                                                         size_t row_bytes, Buffer& buffer) {
  const StoredMatrix& matrix = rows.matrix;
  const int64_t head = matrix.heads.rows;
  const int64_t begin = rows.first / head * head;
  const int64_t end = (rows.first + rows.count + head - 1) / head * head;
  const size_t made = static_cast<size_t>(rows.count) * row_bytes;
  const size_t stored = static_cast<size_t>(end - begin) * row_bytes;
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const data, buffer.Get(made + stored));
  ANNULUS_RETURN_IF_ERROR(source_.ReadRange(
      name,
      static_cast<size_t>(matrix.slice * SliceRows(matrix) + matrix.first + begin) * row_bytes,
      std::span(data + made, stored)));
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t from = matrix.heads.Stored(rows.first + r) - begin;
    std::memcpy(data + static_cast<size_t>(r) * row_bytes,
                data + made + static_cast<size_t>(from) * row_bytes, row_bytes);
  }
  return data;
}

absl::StatusOr<HostTensorView> MatrixReader::ReadTransposed(const Rows& rows, DType dtype) {
  const StoredMatrix& matrix = rows.matrix;
  const size_t width = DTypeSize(dtype);
  const int64_t columns = matrix.shape[2];
  const size_t bytes = static_cast<size_t>(matrix.cols * columns) * width;
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const stored, stored_.Get(bytes));
  ANNULUS_RETURN_IF_ERROR(source_.ReadRange(matrix.name, static_cast<size_t>(matrix.slice) * bytes,
                                            std::span(stored, bytes)));
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const made,
                           made_.Get(static_cast<size_t>(rows.count * matrix.cols) * width));
  const int64_t first = matrix.first + rows.first * matrix.step;
  (width == 4 ? Transpose<uint32_t>
              : Transpose<uint16_t>)(stored + static_cast<size_t>(first) * width, columns,
                                     matrix.step, rows.count, matrix.cols, made);
  return HostTensorView{made, dtype, rows.count, matrix.cols};
}

absl::StatusOr<HostTensorView> MatrixReader::ReadCodes(const Rows& rows, DType dtype) {
  const StoredMatrix& matrix = rows.matrix;
  ANNULUS_ASSIGN_OR_RETURN(
      std::byte* const codes,
      ReadRows(matrix.name, rows, QuantizedRowBytes(dtype, matrix.cols), stored_));
  HostTensorView view{codes, dtype, rows.count, matrix.cols};
  const std::string name = FindScales(matrix.name);
  if (QuantizedGroup(dtype) > 0) {
    ANNULUS_ASSIGN_OR_RETURN(
        view.scales, ReadRows(name, rows, QuantizedScaleBytes(dtype, matrix.cols), scales_));
    return view;
  }
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source_.Describe(name));
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const made,
                           made_.Get(static_cast<size_t>(rows.count) * sizeof(float)));
  float* const scales = reinterpret_cast<float*>(made);
  view.scales = scales;
  if (info.elements() == 1) {
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<float> single, ReadAsFloat(source_, name));
    std::fill_n(scales, rows.count, single[0]);
    return view;
  }
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const stored,
                           ReadRows(name, rows, DTypeSize(info.dtype), scales_));
  ConvertToFloat(info.dtype, stored, scales, static_cast<size_t>(rows.count));
  return view;
}

absl::StatusOr<HostTensorView> MatrixReader::ReadBlockScaled(const Rows& rows,
                                                             const TensorInfo& info) {
  const StoredMatrix& matrix = rows.matrix;
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const codes,
                           ReadRows(matrix.name, rows, static_cast<size_t>(matrix.cols), stored_));
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<float> scales,
                           ReadAsFloat(source_, FindScales(matrix.name)));
  const auto elements = static_cast<size_t>(rows.count * matrix.cols);
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const made, made_.Get(elements * sizeof(float)));
  float* const values = reinterpret_cast<float*>(made);
  ConvertToFloat(info.dtype, codes, values, elements);
  const int64_t across = (matrix.cols + block_cols_ - 1) / block_cols_;
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t row = matrix.first + matrix.heads.Stored(rows.first + r) * matrix.step;
    const float* const of_row = scales.data() + row / block_rows_ * across;
    for (int64_t c = 0; c < matrix.cols; ++c) {
      values[r * matrix.cols + c] *= of_row[c / block_cols_];
    }
  }
  return HostTensorView{made, DType::kF32, rows.count, matrix.cols};
}

absl::StatusOr<HostTensorView> MatrixReader::ReadMxfp4(const Rows& rows) {
  static constexpr float kValues[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                        -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  const StoredMatrix& matrix = rows.matrix;
  const int64_t blocks = matrix.cols / kFp4Block;
  ANNULUS_ASSIGN_OR_RETURN(
      std::byte* const codes,
      ReadRows(matrix.name + "_blocks", rows, static_cast<size_t>(blocks * kFp4Bytes), stored_));
  ANNULUS_ASSIGN_OR_RETURN(
      std::byte* const exponents,
      ReadRows(matrix.name + "_scales", rows, static_cast<size_t>(blocks), scales_));
  ANNULUS_ASSIGN_OR_RETURN(
      std::byte* const made,
      made_.Get(static_cast<size_t>(rows.count * matrix.cols) * sizeof(float)));
  float* value = reinterpret_cast<float*>(made);
  for (int64_t block = 0; block < rows.count * blocks; ++block) {
    const float scale = std::ldexp(1.0f, std::to_integer<int>(exponents[block]) - 127);
    for (int64_t i = 0; i < kFp4Bytes; ++i) {
      const auto pair = std::to_integer<unsigned>(codes[block * kFp4Bytes + i]);
      *value++ = kValues[pair & 15] * scale;
      *value++ = kValues[pair >> 4] * scale;
    }
  }
  return HostTensorView{made, DType::kF32, rows.count, matrix.cols};
}

absl::StatusOr<std::vector<float>> MatrixReader::Read(const StoredVector& vector) const {
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source_.Describe(vector.name));
  const size_t width = DTypeSize(info.dtype);
  const auto slice = static_cast<size_t>(vector.shape.back());
  std::vector<std::byte> bytes(slice * width);
  ANNULUS_RETURN_IF_ERROR(
      source_.ReadRange(vector.name, static_cast<size_t>(vector.slice) * bytes.size(), bytes));
  std::vector<float> all(slice);
  ConvertToFloat(info.dtype, bytes.data(), all.data(), slice);
  std::vector<float> values;
  for (int64_t i = 0; i < vector.size; ++i) {
    values.push_back(all[vector.first + vector.heads.Stored(i) * vector.step]);
  }
  return values;
}

}  // namespace annulus
