#include "engine/model/weights.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/model_directory.h"
#include "engine/model/weight_slots.h"
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

MatrixReader MakeReader(const ModelConfig& config, const TensorSource& source) {
  return MatrixReader(source, config.fp8_block_rows, config.fp8_block_cols);
}

// Reads, packs and uploads tensors one by one.
class Loader {
 public:
  Loader(MatrixReader& reader, Backend& backend, const OpTable& ops, DType dtype)
      : reader_(reader), backend_(backend), ops_(ops), dtype_(dtype) {}

  absl::Status Load(const WeightSlots& slots);
  size_t bytes() const { return bytes_; }
  int64_t parameters() const { return parameters_; }

 private:
  absl::Status CheckMemory(const WeightSlots& slots) const;
  absl::Status LoadMatrix(const MatrixSlot& slot);
  absl::Status LoadVector(const VectorSlot& slot);

  MatrixReader& reader_;
  Backend& backend_;
  const OpTable& ops_;
  const DType dtype_;
  std::unique_ptr<Stream> stream_;
  size_t bytes_ = 0;
  int64_t parameters_ = 0;
};

absl::Status Loader::Load(const WeightSlots& slots) {
  ANNULUS_RETURN_IF_ERROR(CheckMemory(slots));
  ANNULUS_ASSIGN_OR_RETURN(stream_, backend_.CreateStream(1));
  for (const MatrixSlot& slot : slots.matrices) ANNULUS_RETURN_IF_ERROR(LoadMatrix(slot));
  for (const VectorSlot& slot : slots.vectors) ANNULUS_RETURN_IF_ERROR(LoadVector(slot));
  return absl::OkStatus();
}

// A checkpoint may be a sparse file of any length, so its size is compared before it is read.
absl::Status Loader::CheckMemory(const WeightSlots& slots) const {
  double needed = 0;
  for (const MatrixSlot& slot : slots.matrices) {
    needed += static_cast<double>(slot.stored.rows) * static_cast<double>(slot.stored.cols) *
              static_cast<double>(DTypeSize(dtype_));
  }
  const size_t available = backend_.capabilities().memory_bytes;
  if (needed <= static_cast<double>(available)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the weights need ", static_cast<uint64_t>(needed), " bytes as ",
                   DTypeName(dtype_), ", the device has ", available));
}

absl::Status Loader::LoadMatrix(const MatrixSlot& slot) {
  ANNULUS_ASSIGN_OR_RETURN(const HostTensorView view, reader_.Read(slot.stored));
  ANNULUS_ASSIGN_OR_RETURN(*slot.target, PackMatrix(ops_, backend_, view, dtype_));
  bytes_ += slot.target->storage.size();
  parameters_ += slot.stored.rows * slot.stored.cols;
  return absl::OkStatus();
}

absl::Status Loader::LoadVector(const VectorSlot& slot) {
  ANNULUS_ASSIGN_OR_RETURN(std::vector<float> values, reader_.Read(slot.stored));
  if (slot.unit_offset) {
    for (float& value : values) value += 1.0f;
  }
  const size_t bytes = values.size() * sizeof(float);
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer storage, backend_.Allocate(bytes));
  ANNULUS_RETURN_IF_ERROR(backend_.Copy(*stream_, storage.data(), values.data(), bytes));
  ANNULUS_RETURN_IF_ERROR(stream_->Synchronize());
  *slot.target = DeviceVector(std::move(storage), slot.stored.size);
  bytes_ += bytes;
  parameters_ += slot.stored.size;
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
  MatrixReader reader = MakeReader(config, source);
  ANNULUS_ASSIGN_OR_RETURN(const DType stored, CheckTensors(slots, source, reader));
  ANNULUS_ASSIGN_OR_RETURN(weights.stored_embedding_dtype,
                           reader.Check(slots.matrices.front().stored));
  weights.dtype = dtype.value_or(stored);
  if (weights.dtype != DType::kF32 && weights.dtype != DType::kBF16 &&
      weights.dtype != DType::kF16) {
    return absl::UnimplementedError(absl::StrCat(
        "weights cannot be packed as ", DTypeName(weights.dtype), "; supported: f32, bf16, f16"));
  }
  Loader loader(reader, backend, ops, weights.dtype);
  ANNULUS_RETURN_IF_ERROR(loader.Load(slots));
  weights.bytes = loader.bytes();
  weights.parameters = loader.parameters();
  return weights;
}

}  // namespace annulus
