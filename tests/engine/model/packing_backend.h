#ifndef ANNULUS_TESTS_ENGINE_MODEL_PACKING_BACKEND_H_
#define ANNULUS_TESTS_ENGINE_MODEL_PACKING_BACKEND_H_

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/base/row_converter.h"
#include "kernels/registry.h"

namespace annulus::testing {

// A matrix as PackingBackend keeps it: the values or codes of all rows, then their scales.
inline size_t ScaleBytes(DType dtype, int64_t cols) {
  return IsQuantized(dtype) ? QuantizedScaleBytes(dtype, cols) : 0;
}
inline size_t ValuesAt(const PackedMatrix& matrix, int64_t row) {
  return static_cast<size_t>(row) * StoredRowBytes(matrix.dtype, matrix.in_features);
}
inline size_t ScalesAt(const PackedMatrix& matrix, int64_t row) {
  return ValuesAt(matrix, matrix.out_features) +
         static_cast<size_t>(row) * ScaleBytes(matrix.dtype, matrix.in_features);
}

// Host memory of a stated size, and a pack_rows that keeps rows as they are: enough to load
// weights without any kernel.
class PackingBackend final : public Backend {
 public:
  explicit PackingBackend(size_t memory_bytes = size_t{1} << 40) {
    capabilities_.name = "packing";
    capabilities_.memory_bytes = memory_bytes;
  }

  const BackendCapabilities& capabilities() const override { return capabilities_; }

  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override {
    if (bytes > largest_allocation) return absl::ResourceExhaustedError("packing: too much");
    return DeviceBuffer(new std::byte[bytes], bytes, [](std::byte* data) { delete[] data; });
  }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int) override {
    return std::make_unique<NoStream>();
  }
  absl::Status Copy(Stream&, void* destination, const void* source, size_t bytes) override {
    std::memcpy(destination, source, bytes);
    return absl::OkStatus();
  }

  static OpTable Ops() {
    OpTable ops;
    ops.name = "packing";
    ops.matrix_bytes = [](int64_t out, int64_t in, DType dtype) -> absl::StatusOr<size_t> {
      return static_cast<size_t>(out) * (StoredRowBytes(dtype, in) + ScaleBytes(dtype, in));
    };
    ops.pack_rows = &Pack;
    return ops;
  }

  size_t largest_allocation = size_t{1} << 40;

 private:
  class NoStream final : public Stream {
   public:
    absl::Status Synchronize() override { return absl::OkStatus(); }
  };

  static absl::Status Pack(PackedMatrix& matrix, int64_t first_row, const HostTensorView& view,
                           QuantizationError*) {
    RowConverter converter(view, matrix.dtype);
    for (int64_t r = 0; r < view.rows; ++r) {
      std::byte* const to = matrix.storage.data() + ValuesAt(matrix, first_row + r);
      std::byte* const scales = matrix.storage.data() + ScalesAt(matrix, first_row + r);
      const absl::Status status = converter.Convert(r, to, scales, nullptr);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  BackendCapabilities capabilities_;
};

// The elements of a matrix that PackingBackend packed.
inline std::vector<float> Unpack(const PackedMatrix& matrix) {
  std::vector<float> values(static_cast<size_t>(matrix.out_features * matrix.in_features));
  const std::byte* const stored = matrix.storage.data();
  if (!IsQuantized(matrix.dtype)) {
    ConvertToFloat(matrix.dtype, stored, values.data(), values.size());
    return values;
  }
  const auto cols = static_cast<size_t>(matrix.in_features);
  for (int64_t r = 0; r < matrix.out_features; ++r) {
    DequantizeRow(matrix.dtype, stored + ValuesAt(matrix, r), stored + ScalesAt(matrix, r),
                  std::span(values).subspan(static_cast<size_t>(r) * cols, cols));
  }
  return values;
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_MODEL_PACKING_BACKEND_H_
