#include "engine/model/weights.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/model_directory.h"
#include "engine/model/weight_slots.h"
#include "kernels/base/row_converter.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kMostNamesListed = 5;

// A name that shows what kind of quantized checkpoint this is, or nothing.
absl::string_view QuantizedKind(absl::string_view name) {
  if (absl::EndsWith(name, ".qweight")) return "GPTQ, AWQ";
  if (absl::StrContains(name, ".weight.quant_state") || absl::EndsWith(name, ".absmax")) {
    return "bitsandbytes";
  }
  if (absl::EndsWith(name, ".weight_packed")) return "packed integers";
  return "";
}

absl::Status CheckPresence(const WeightSlots& slots, const TensorSource& source,
                           const MatrixReader& reader) {
  std::vector<std::string> missing;
  for (const MatrixSlot& slot : slots.matrices) {
    if (!reader.Has(slot.stored)) missing.push_back(slot.stored.name);
  }
  for (const VectorSlot& slot : slots.vectors) {
    if (!source.Has(slot.stored.name)) missing.push_back(slot.stored.name);
  }
  // Several slots may read one tensor.
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  if (missing.empty()) return absl::OkStatus();
  for (const std::string& name : source.Names()) {
    if (QuantizedKind(name).empty()) continue;
    return absl::UnimplementedError(
        absl::StrCat("tensor ", name, " shows a quantized checkpoint (", QuantizedKind(name),
                     "), which is not supported; needed: ", kSupportedWeights));
  }
  const size_t count = missing.size();
  missing.resize(std::min(count, kMostNamesListed));
  return absl::InvalidArgumentError(absl::StrCat(
      "the checkpoint lacks ", count, " of the ", slots.matrices.size() + slots.vectors.size(),
      " tensors that config.json asks for: ", absl::StrJoin(missing, ", "),
      count > missing.size() ? ", .." : ""));
}

// Checks one vector.
absl::Status CheckVector(const TensorSource& source, const StoredVector& vector) {
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source.Describe(vector.name));
  if (info.shape != vector.shape) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", vector.name, " has the shape ", ShapeToString(info.shape),
                     "; config.json asks for ", ShapeToString(vector.shape)));
  }
  if (info.dtype == DType::kF32 || info.dtype == DType::kBF16 || info.dtype == DType::kF16) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat("tensor ", vector.name, " is stored as ",
                                               DTypeName(info.dtype),
                                               "; supported: f32, bf16, f16"));
}

// Checks all tensors and gives the dtype that holds every matrix.
absl::StatusOr<DType> CheckTensors(const WeightSlots& slots, const TensorSource& source,
                                   const MatrixReader& reader) {
  ANNULUS_RETURN_IF_ERROR(CheckPresence(slots, source, reader));
  std::optional<DType> common;
  for (const MatrixSlot& slot : slots.matrices) {
    ANNULUS_ASSIGN_OR_RETURN(const DType dtype, reader.Check(slot.stored));
    common = !common || *common == dtype ? dtype : DType::kF32;
  }
  for (const VectorSlot& slot : slots.vectors) {
    ANNULUS_RETURN_IF_ERROR(CheckVector(source, slot.stored));
  }
  return *common;
}

// What a matrix is packed as where the model's weights are to be `weights`. The embedding and the
// head, where an error reaches every logit, stay int8 in models of int4 and fp8.
DType PackedDType(const MatrixSlot& slot, const ModelWeights& targets, DType weights) {
  const bool vocabulary =
      slot.target == &targets.embedding ||
      (targets.separate_head.has_value() && slot.target == &*targets.separate_head);
  return vocabulary && IsQuantized(weights) ? DType::kI8 : weights;
}

MatrixReader MakeReader(const ModelConfig& config, const TensorSource& source) {
  return MatrixReader(source, config.fp8_block_rows, config.fp8_block_cols);
}

struct MatrixToPack {
  const MatrixSlot* slot;
  DType dtype;
};

// A checkpoint may be a sparse file of any length, so its size is compared before it is read.
absl::Status CheckMemory(const std::vector<MatrixToPack>& matrices, const Backend& backend) {
  double needed = 0;
  for (const MatrixToPack& matrix : matrices) {
    const StoredMatrix& stored = matrix.slot->stored;
    double row_bytes = static_cast<double>(StoredRowBytes(matrix.dtype, stored.cols));
    if (IsQuantized(matrix.dtype)) {
      row_bytes += static_cast<double>(QuantizedScaleBytes(matrix.dtype, stored.cols));
    }
    needed += static_cast<double>(stored.rows) * row_bytes;
  }
  const size_t available = backend.capabilities().memory_bytes;
  if (needed <= static_cast<double>(available)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the weights need ", static_cast<uint64_t>(needed), " bytes as ",
                   DTypeName(matrices.back().dtype), ", the device has ", available));
}

// Matrices that threads take one after the other until all are packed or one fails.
class Packing {
 public:
  Packing(std::vector<MatrixToPack> matrices, Backend& backend, const OpTable& ops)
      : matrices_(std::move(matrices)), backend_(backend), ops_(ops) {}

  absl::Status Run(const ModelConfig& config, const TensorSource& source) {
    std::vector<std::thread> workers;
    try {
      for (int i = 1; i < backend_.capabilities().threads; ++i) {
        workers.emplace_back([&] { Work(MakeReader(config, source)); });
      }
    } catch (const std::exception&) {
      // Fewer threads take longer, and that is all.
    }
    Work(MakeReader(config, source));
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
      if (next >= matrices_.size()) break;
      status = Pack(matrices_[next], reader, error);
    }
    if (!status.ok()) failed_.store(true, std::memory_order_relaxed);
    const std::lock_guard<std::mutex> lock(mutex_);
    error_.Add(error);
    status_.Update(status);
  }

  absl::Status Pack(const MatrixToPack& matrix, MatrixReader& reader, QuantizationError& error) {
    const StoredMatrix& stored = matrix.slot->stored;
    ANNULUS_ASSIGN_OR_RETURN(const HostTensorView view, reader.Read(stored));
    absl::StatusOr<PackedMatrix> packed = PackMatrix(ops_, backend_, view, matrix.dtype, &error);
    if (!packed.ok()) {
      return absl::Status(packed.status().code(),
                          absl::StrCat("tensor ", stored.name, ": ", packed.status().message()));
    }
    *matrix.slot->target = *std::move(packed);
    return absl::OkStatus();
  }

  const std::vector<MatrixToPack> matrices_;
  Backend& backend_;
  const OpTable& ops_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  QuantizationError error_;  // guarded by mutex_ until the workers are joined, as status_
  absl::Status status_;
};

absl::Status LoadVector(const VectorSlot& slot, const MatrixReader& reader, Backend& backend,
                        Stream& stream) {
  ANNULUS_ASSIGN_OR_RETURN(std::vector<float> values, reader.Read(slot.stored));
  if (slot.unit_offset) {
    for (float& value : values) value += 1.0f;
  }
  const size_t bytes = values.size() * sizeof(float);
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer storage, backend.Allocate(bytes));
  ANNULUS_RETURN_IF_ERROR(backend.Copy(stream, storage.data(), values.data(), bytes));
  ANNULUS_RETURN_IF_ERROR(stream.Synchronize());
  *slot.target = DeviceVector(std::move(storage), slot.stored.size);
  return absl::OkStatus();
}

}  // namespace

std::vector<RequiredTensor> RequiredTensors(const ModelConfig& config) {
  ModelWeights targets;
  const WeightSlots slots = SlotsOf(config, targets);
  std::map<std::string, std::vector<int64_t>> shapes;  // several slots may read one tensor
  for (const MatrixSlot& slot : slots.matrices) shapes[slot.stored.name] = slot.stored.shape;
  for (const VectorSlot& slot : slots.vectors) shapes[slot.stored.name] = slot.stored.shape;
  std::vector<RequiredTensor> tensors;
  for (auto& [name, shape] : shapes) tensors.push_back({name, std::move(shape)});
  return tensors;
}

absl::StatusOr<DType> StoredWeightsDType(const ModelConfig& config, const TensorSource& source) {
  ModelWeights targets;
  return CheckTensors(SlotsOf(config, targets), source, MakeReader(config, source));
}

absl::StatusOr<ModelWeights> LoadWeights(const ModelConfig& config, const TensorSource& source,
                                         Backend& backend, const OpTable& ops,
                                         std::optional<DType> dtype) {
  ModelWeights weights;
  const WeightSlots slots = SlotsOf(config, weights);
  const MatrixReader reader = MakeReader(config, source);
  ANNULUS_ASSIGN_OR_RETURN(const DType stored, CheckTensors(slots, source, reader));
  ANNULUS_ASSIGN_OR_RETURN(weights.stored_embedding_dtype,
                           reader.Check(slots.matrices.front().stored));
  weights.dtype = dtype.value_or(stored);
  std::vector<MatrixToPack> matrices;
  for (const MatrixSlot& slot : slots.matrices) {
    matrices.push_back({&slot, PackedDType(slot, weights, weights.dtype)});
  }
  ANNULUS_RETURN_IF_ERROR(CheckMemory(matrices, backend));
  Packing packing(std::move(matrices), backend, ops);
  ANNULUS_RETURN_IF_ERROR(packing.Run(config, source));
  weights.error = packing.error();
  ANNULUS_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, backend.CreateStream(1));
  for (const VectorSlot& slot : slots.vectors) {
    ANNULUS_RETURN_IF_ERROR(LoadVector(slot, reader, backend, *stream));
    weights.parameters += slot.stored.size;
    weights.bytes += static_cast<size_t>(slot.stored.size) * sizeof(float);
  }
  for (const MatrixSlot& slot : slots.matrices) {
    weights.parameters += slot.stored.rows * slot.stored.cols;
    weights.bytes += slot.target->storage.size();
  }
  return weights;
}

}  // namespace annulus
