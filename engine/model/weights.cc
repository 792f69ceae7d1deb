#include "engine/model/weights.h"

#include <algorithm>
#include <memory>
#include <new>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/model_directory.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kMostNamesListed = 5;

// One tensor of the checkpoint and where it goes.
struct MatrixSlot {
  std::string name;
  int64_t rows;
  int64_t cols;
  PackedMatrix* target;
};
struct VectorSlot {
  std::string name;
  int64_t size;
  DeviceVector* target;
};
struct Slots {
  std::vector<MatrixSlot> matrices;
  std::vector<VectorSlot> vectors;
};

void AddLinear(const std::string& name, int64_t out, int64_t in, bool bias, LinearWeights& target,
               Slots& slots) {
  slots.matrices.push_back({name + ".weight", out, in, &target.weight});
  if (bias) slots.vectors.push_back({name + ".bias", out, &target.bias});
}

// Every tensor that `config` needs; sizes weights.layers and points into `weights`.
Slots SlotsOf(const ModelConfig& config, ModelWeights& weights) {
  const int64_t hidden = config.hidden_size;
  const int64_t query_size = int64_t{config.heads} * config.head_dim;
  const int64_t key_size = int64_t{config.kv_heads} * config.head_dim;
  const bool attention_bias = config.attention_bias;
  Slots slots;
  slots.matrices.push_back(
      {"model.embed_tokens.weight", config.vocabulary, hidden, &weights.embedding});
  weights.layers.resize(config.layers.size());
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    LayerWeights& layer = weights.layers[i];
    const std::string prefix = absl::StrCat("model.layers.", i, ".");
    const std::string attention = prefix + "self_attn.";
    const std::string mlp = prefix + "mlp.";
    slots.vectors.push_back({prefix + "input_layernorm.weight", hidden, &layer.attention_norm});
    AddLinear(attention + "q_proj", query_size, hidden, attention_bias, layer.query, slots);
    AddLinear(attention + "k_proj", key_size, hidden, attention_bias, layer.key, slots);
    AddLinear(attention + "v_proj", key_size, hidden, attention_bias, layer.value, slots);
    AddLinear(attention + "o_proj", hidden, query_size, attention_bias, layer.output, slots);
    slots.vectors.push_back({prefix + "post_attention_layernorm.weight", hidden, &layer.mlp_norm});
    AddLinear(mlp + "gate_proj", config.intermediate_size, hidden, config.mlp_bias, layer.gate,
              slots);
    AddLinear(mlp + "up_proj", config.intermediate_size, hidden, config.mlp_bias, layer.up, slots);
    AddLinear(mlp + "down_proj", hidden, config.intermediate_size, config.mlp_bias, layer.down,
              slots);
  }
  slots.vectors.push_back({"model.norm.weight", hidden, &weights.final_norm});
  if (!config.tie_word_embeddings) {
    slots.matrices.push_back(
        {"lm_head.weight", config.vocabulary, hidden, &weights.separate_head.emplace()});
  }
  return slots;
}

absl::Status CheckPresence(const Slots& slots, const TensorSource& source) {
  std::vector<std::string> missing;
  for (const MatrixSlot& slot : slots.matrices) {
    if (!source.Has(slot.name)) missing.push_back(slot.name);
  }
  for (const VectorSlot& slot : slots.vectors) {
    if (!source.Has(slot.name)) missing.push_back(slot.name);
  }
  if (missing.empty()) return absl::OkStatus();
  for (const std::string& name : source.Names()) {
    if (!absl::EndsWith(name, ".qweight")) continue;
    return absl::UnimplementedError(
        absl::StrCat("tensor ", name,
                     " shows a quantized checkpoint (GPTQ, AWQ), which is not "
                     "supported; needed: ",
                     kSupportedWeights));
  }
  const size_t count = missing.size();
  missing.resize(std::min(count, kMostNamesListed));
  return absl::InvalidArgumentError(absl::StrCat(
      "the checkpoint lacks ", count, " of the ", slots.matrices.size() + slots.vectors.size(),
      " tensors that config.json asks for: ", absl::StrJoin(missing, ", "),
      count > missing.size() ? ", .." : ""));
}

// Checks one tensor and gives its element type.
absl::StatusOr<DType> CheckTensor(const TensorSource& source, const std::string& name,
                                  const std::vector<int64_t>& expected) {
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source.Describe(name));
  if (info.shape != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", name, " has the shape ", ShapeToString(info.shape),
                     "; config.json asks for ", ShapeToString(expected)));
  }
  if (info.dtype != DType::kF32 && info.dtype != DType::kBF16 && info.dtype != DType::kF16) {
    return absl::UnimplementedError(absl::StrCat(
        "tensor ", name, " is stored as ", DTypeName(info.dtype), "; supported: f32, bf16, f16"));
  }
  return info.dtype;
}

// Checks all tensors and gives the dtype that holds every matrix exactly.
absl::StatusOr<DType> CheckTensors(const Slots& slots, const TensorSource& source) {
  ANNULUS_RETURN_IF_ERROR(CheckPresence(slots, source));
  std::optional<DType> common;
  for (const MatrixSlot& slot : slots.matrices) {
    ANNULUS_ASSIGN_OR_RETURN(const DType dtype,
                             CheckTensor(source, slot.name, {slot.rows, slot.cols}));
    common = !common || *common == dtype ? dtype : DType::kF32;
  }
  for (const VectorSlot& slot : slots.vectors) {
    ANNULUS_RETURN_IF_ERROR(CheckTensor(source, slot.name, {slot.size}).status());
  }
  return *common;
}

// Reads, packs and uploads tensors one by one.
class Loader {
 public:
  Loader(const TensorSource& source, Backend& backend, const OpTable& ops, DType dtype)
      : source_(source), backend_(backend), ops_(ops), dtype_(dtype) {}

  absl::Status Load(const Slots& slots);
  size_t bytes() const { return bytes_; }
  int64_t parameters() const { return parameters_; }

 private:
  absl::Status CheckMemory(const Slots& slots) const;
  absl::Status AllocateScratch(const Slots& slots);
  absl::Status LoadMatrix(const MatrixSlot& slot);
  absl::Status LoadVector(const VectorSlot& slot);

  const TensorSource& source_;
  Backend& backend_;
  const OpTable& ops_;
  const DType dtype_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<std::byte[]> scratch_;  // the largest stored matrix
  size_t bytes_ = 0;
  int64_t parameters_ = 0;
};

absl::Status Loader::Load(const Slots& slots) {
  ANNULUS_RETURN_IF_ERROR(CheckMemory(slots));
  ANNULUS_RETURN_IF_ERROR(AllocateScratch(slots));
  ANNULUS_ASSIGN_OR_RETURN(stream_, backend_.CreateStream(1));
  for (const MatrixSlot& slot : slots.matrices) ANNULUS_RETURN_IF_ERROR(LoadMatrix(slot));
  for (const VectorSlot& slot : slots.vectors) ANNULUS_RETURN_IF_ERROR(LoadVector(slot));
  return absl::OkStatus();
}

// A checkpoint may be a sparse file of any length, so its size is compared before it is read.
absl::Status Loader::CheckMemory(const Slots& slots) const {
  double needed = 0;
  for (const MatrixSlot& slot : slots.matrices) {
    needed += static_cast<double>(slot.rows) * static_cast<double>(slot.cols) *
              static_cast<double>(DTypeSize(dtype_));
  }
  const size_t available = backend_.capabilities().memory_bytes;
  if (needed <= static_cast<double>(available)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the weights need ", static_cast<uint64_t>(needed), " bytes as ",
                   DTypeName(dtype_), ", the device has ", available));
}

absl::Status Loader::AllocateScratch(const Slots& slots) {
  size_t largest = 0;
  for (const MatrixSlot& slot : slots.matrices) {
    ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source_.Describe(slot.name));
    largest = std::max(largest, info.bytes());
  }
  scratch_.reset(new (std::nothrow) std::byte[largest]);
  if (scratch_ != nullptr) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for ", largest, " bytes to read the largest matrix into"));
}

absl::Status Loader::LoadMatrix(const MatrixSlot& slot) {
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source_.Describe(slot.name));
  ANNULUS_RETURN_IF_ERROR(source_.Read(slot.name, std::span(scratch_.get(), info.bytes())));
  const HostTensorView view{scratch_.get(), info.dtype, slot.rows, slot.cols};
  ANNULUS_ASSIGN_OR_RETURN(*slot.target, PackMatrix(ops_, backend_, view, dtype_));
  bytes_ += slot.target->storage.size();
  parameters_ += info.elements();
  return absl::OkStatus();
}

absl::Status Loader::LoadVector(const VectorSlot& slot) {
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<float> values, ReadAsFloat(source_, slot.name));
  const size_t bytes = values.size() * sizeof(float);
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer storage, backend_.Allocate(bytes));
  ANNULUS_RETURN_IF_ERROR(backend_.Copy(*stream_, storage.data(), values.data(), bytes));
  ANNULUS_RETURN_IF_ERROR(stream_->Synchronize());
  *slot.target = DeviceVector(std::move(storage), slot.size);
  bytes_ += bytes;
  parameters_ += slot.size;
  return absl::OkStatus();
}

}  // namespace

std::vector<RequiredTensor> RequiredTensors(const ModelConfig& config) {
  ModelWeights targets;
  const Slots slots = SlotsOf(config, targets);
  std::vector<RequiredTensor> tensors;
  for (const MatrixSlot& slot : slots.matrices) {
    tensors.push_back({slot.name, {slot.rows, slot.cols}});
  }
  for (const VectorSlot& slot : slots.vectors) tensors.push_back({slot.name, {slot.size}});
  return tensors;
}

absl::StatusOr<DType> StoredWeightsDType(const ModelConfig& config, const TensorSource& source) {
  ModelWeights targets;
  return CheckTensors(SlotsOf(config, targets), source);
}

absl::StatusOr<ModelWeights> LoadWeights(const ModelConfig& config, const TensorSource& source,
                                         Backend& backend, const OpTable& ops,
                                         std::optional<DType> dtype) {
  ModelWeights weights;
  const Slots slots = SlotsOf(config, weights);
  ANNULUS_ASSIGN_OR_RETURN(const DType stored, CheckTensors(slots, source));
  weights.dtype = dtype.value_or(stored);
  if (weights.dtype != DType::kF32 && weights.dtype != DType::kBF16 &&
      weights.dtype != DType::kF16) {
    return absl::UnimplementedError(absl::StrCat(
        "weights cannot be packed as ", DTypeName(weights.dtype), "; supported: f32, bf16, f16"));
  }
  Loader loader(source, backend, ops, weights.dtype);
  ANNULUS_RETURN_IF_ERROR(loader.Load(slots));
  weights.bytes = loader.bytes();
  weights.parameters = loader.parameters();
  return weights;
}

}  // namespace annulus
