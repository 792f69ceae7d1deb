#include "engine/model/weights/matrix_loader.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/weights/finite_weights.h"
#include "kernels/base/device_error.h"
#include "kernels/base/row_converter.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/linear.h"

namespace annulus {
namespace {

struct Block {
  const MatrixToLoad* matrix;
  int64_t first;
  int64_t rows;
};

// Those that the reader takes at a time.
void AddBlocks(const MatrixToLoad& matrix, const MatrixReader& reader, std::vector<Block>& blocks) {
  const StoredMatrix& stored = *matrix.stored;
  const int64_t step = reader.BlockRows(stored);
  for (int64_t first = 0; first < stored.rows; first += step) {
    blocks.push_back({&matrix, first, std::min(step, stored.rows - first)});
  }
}

// Packs a block if its matrix has a target.
absl::Status Pack(const Block& block, MatrixReader& reader, const OpTable& ops,
                  QuantizationError* error) {
  const StoredMatrix& stored = *block.matrix->stored;
  const DType dtype = block.matrix->dtype;
  PackedMatrix* const target = block.matrix->target;
  ANNULUS_ASSIGN_OR_RETURN(const HostTensorView rows, reader.Read(stored, block.first, block.rows));
  // Packing looks at codes and their scales itself.
  const bool packing_checks = target != nullptr && IsQuantized(rows.dtype);
  if (!packing_checks && !StaysFinite(rows, dtype)) return CheckFinite(reader, stored, dtype);
  if (target == nullptr) return absl::OkStatus();
  const absl::Status status = ops.pack_rows(*target, block.first, rows, error);
  if (status.ok()) return status;
  ANNULUS_RETURN_IF_ERROR(CheckFinite(reader, stored, dtype));
  return WithPrefix(absl::StrCat("tensor ", stored.name, ": "), status);
}

// A checkpoint may be a sparse file of any length, so its size is compared before it is read.
absl::Status CheckMemory(const std::vector<MatrixToLoad>& matrices, const Backend& backend) {
  double needed = 0;
  for (const MatrixToLoad& matrix : matrices) {
    if (matrix.target == nullptr) continue;
    double row_bytes = static_cast<double>(StoredRowBytes(matrix.dtype, matrix.stored->cols));
    if (IsQuantized(matrix.dtype)) {
      row_bytes += static_cast<double>(QuantizedScaleBytes(matrix.dtype, matrix.stored->cols));
    }
    needed += static_cast<double>(matrix.stored->rows) * row_bytes;
  }
  const size_t available = backend.capabilities().memory_bytes;
  if (needed <= static_cast<double>(available)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the weights need ", static_cast<uint64_t>(needed), " bytes, the device has ",
                   available, "; use a smaller type (--weights-dtype)"));
}

// Memory for all matrices in one block, side by side: small ones then share the system's huge pages
// with their neighbours. It lives until the last matrix is gone. Those that have storage keep it.
absl::Status CreateMatrices(const std::vector<MatrixToLoad>& matrices, Backend& backend,
                            const OpTable& ops) {
  size_t total = 0;
  std::vector<size_t> sizes;
  std::vector<const MatrixToLoad*> created;
  for (const MatrixToLoad& matrix : matrices) {
    if (matrix.target == nullptr || matrix.target->storage.size() > 0) continue;
    created.push_back(&matrix);
    const StoredMatrix& stored = *matrix.stored;
    const absl::StatusOr<size_t> bytes = ops.matrix_bytes(stored.rows, stored.cols, matrix.dtype);
    if (!bytes.ok()) {
      return WithPrefix(absl::StrCat("tensor ", stored.name, ": "), bytes.status());
    }
    sizes.push_back(*bytes);
    total += AlignedMatrix(*bytes);
  }
  absl::StatusOr<DeviceBuffer> allocated = backend.Allocate(total);
  if (!allocated.ok()) return WithPrefix("the weights: ", allocated.status());
  const auto block = std::make_shared<DeviceBuffer>(*std::move(allocated));
  std::byte* next = block->data();
  for (size_t i = 0; i < created.size(); ++i) {
    const StoredMatrix& stored = *created[i]->stored;
    const auto keep = [block](std::byte*) {};
    *created[i]->target = {stored.rows, stored.cols, created[i]->dtype,
                           DeviceBuffer(next, sizes[i], keep, block->device())};
    next += AlignedMatrix(sizes[i]);
  }
  return absl::OkStatus();
}

// Blocks that threads take one after the other until all are packed or one fails.
class Packing {
 public:
  Packing(std::vector<Block> blocks, const OpTable& ops) : blocks_(std::move(blocks)), ops_(ops) {}

  absl::Status Run(const std::function<MatrixReader()>& make_reader, int threads) {
    std::vector<std::thread> workers;
    try {
      for (int i = 1; i < threads; ++i) workers.emplace_back([&] { Work(make_reader()); });
    } catch (const std::exception&) {
      // Fewer threads take longer, and that is all.
    }
    Work(make_reader());
    for (std::thread& worker : workers) worker.join();
    return status_;
  }

  const QuantizationError& error() const { return error_; }

 private:
  void Work(MatrixReader reader) {
    QuantizationError error;
    absl::Status status;
    while (status.ok() && !failed_.load(std::memory_order_relaxed)) {
      const size_t next = next_.fetch_add(1, std::memory_order_relaxed);
      if (next >= blocks_.size()) break;
      status = Pack(blocks_[next], reader, ops_, &error);
    }
    if (!status.ok()) failed_.store(true, std::memory_order_relaxed);
    const std::lock_guard<std::mutex> lock(mutex_);
    error_.Add(error);
    status_.Update(status);
  }

  const std::vector<Block> blocks_;
  const OpTable& ops_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  QuantizationError error_;  // guarded by mutex_ until the workers are joined, as status_
  absl::Status status_;
};

}  // namespace

absl::Status LoadMatrices(const std::vector<MatrixToLoad>& matrices,
                          const std::function<MatrixReader()>& make_reader, Backend& backend,
                          const OpTable& ops, QuantizationError& error) {
  ANNULUS_RETURN_IF_ERROR(CheckMemory(matrices, backend));
  ANNULUS_RETURN_IF_ERROR(CreateMatrices(matrices, backend, ops));
  const MatrixReader reader = make_reader();
  std::vector<Block> blocks;
  for (const MatrixToLoad& matrix : matrices) AddBlocks(matrix, reader, blocks);
  Packing packing(std::move(blocks), ops);
  ANNULUS_RETURN_IF_ERROR(packing.Run(make_reader, backend.capabilities().threads));
  error.Add(packing.error());
  return absl::OkStatus();
}

// pack_rows stages kPackRows rows at most, as they are packed and padded, and widens one to
// float32. Names, and shapes of tensors, are little beside them.
ReadingBytes LoadingBytes(const StoredMatrix& matrix, const MatrixReader& reader) {
  constexpr size_t kNames = 4096;
  constexpr int64_t kPadded = 256;  // no table pads rows to multiples of more values
  const int64_t cols = (matrix.cols + kPadded - 1) / kPadded * kPadded;
  ReadingBytes bytes = reader.BytesFor(matrix);
  const size_t packing = static_cast<size_t>((kPackRows + 1) * cols) * sizeof(float);
  bytes.passing = std::max(bytes.passing, packing) + kNames;
  return bytes;
}

absl::Status LoadMatrix(const MatrixToLoad& matrix, MatrixReader& reader, const OpTable& ops) {
  std::vector<Block> blocks;
  AddBlocks(matrix, reader, blocks);
  for (const Block& block : blocks) {
    ANNULUS_RETURN_IF_ERROR(Pack(block, reader, ops, nullptr));
  }
  return absl::OkStatus();
}

}  // namespace annulus
