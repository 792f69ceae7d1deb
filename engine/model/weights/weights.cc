#include "engine/model/weights/weights.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/experts/expert_cache.h"
#include "engine/model/files/model_directory.h"
#include "engine/model/weights/finite_weights.h"
#include "engine/model/weights/matrix_loader.h"
#include "engine/model/weights/unused_tensors.h"
#include "engine/model/weights/weight_slots.h"
#include "kernels/base/check.h"
#include "kernels/base/device_error.h"
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

// A dtype that holds the matrices of both; codes with scales count as bf16 where they differ.
DType Common(DType a, DType b) {
  if (a == b) return a;
  const DType plain = IsQuantized(a) ? DType::kBF16 : a;
  return plain == (IsQuantized(b) ? DType::kBF16 : b) ? plain : DType::kF32;
}

// Checks all tensors and gives the dtype of each matrix where none is asked for.
absl::StatusOr<std::vector<DType>> CheckTensors(const WeightSlots& slots,
                                                const TensorSource& source,
                                                const MatrixReader& reader) {
  ANNULUS_RETURN_IF_ERROR(CheckPresence(slots, source, reader));
  std::vector<DType> dtypes;
  for (const MatrixSlot& slot : slots.matrices) {
    ANNULUS_ASSIGN_OR_RETURN(const DType dtype, reader.Check(slot.stored));
    dtypes.push_back(dtype);
    if (!slot.listed_with) continue;
    DType& first = dtypes[*slot.listed_with];
    first = Common(first, dtype);
  }
  for (size_t i = 0; i < dtypes.size(); ++i) {
    dtypes[i] = dtypes[slots.matrices[i].listed_with.value_or(i)];
  }
  for (const VectorSlot& slot : slots.vectors) {
    ANNULUS_RETURN_IF_ERROR(CheckVector(source, slot.stored));
  }
  return dtypes;
}

// The dtype of most of the layers' numbers.
DType DTypeOfLayers(const WeightSlots& slots, const std::vector<DType>& dtypes) {
  std::map<DType, int64_t> numbers;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    const StoredMatrix& stored = slots.matrices[i].stored;
    if (!IsVocabulary(stored.name)) numbers[dtypes[i]] += stored.rows * stored.cols;
  }
  ANNULUS_CHECK(!numbers.empty()) << "a model without layers";
  return std::max_element(numbers.begin(), numbers.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

MatrixReader MakeReader(const ModelConfig& config, const TensorSource& source) {
  return MatrixReader(source, config.fp8_block_rows, config.fp8_block_cols);
}

absl::StatusOr<DeviceVector> Upload(const std::vector<float>& values, Backend& backend,
                                    Stream& stream) {
  const size_t bytes = values.size() * sizeof(float);
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer storage, backend.Allocate(bytes));
  ANNULUS_RETURN_IF_ERROR(backend.Copy(stream, storage.data(), values.data(), bytes));
  ANNULUS_RETURN_IF_ERROR(stream.Synchronize());
  return DeviceVector(std::move(storage), static_cast<int64_t>(values.size()));
}

// Parts of one vector stand side by side in the list.
absl::Status LoadVectors(std::span<const VectorSlot> slots, const MatrixReader& reader,
                         Backend& backend, Stream& stream) {
  std::vector<float> whole;
  for (size_t i = 0; i < slots.size(); ++i) {
    const VectorSlot& slot = slots[i];
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<float> values, reader.Read(slot.stored));
    ANNULUS_RETURN_IF_ERROR(CheckFinite(slot.stored.name, values));
    for (const float value : values) {
      whole.push_back(value * slot.factor + (slot.unit_offset ? 1.0f : 0.0f));
    }
    if (i + 1 < slots.size() && slots[i + 1].target == slot.target) continue;
    ANNULUS_ASSIGN_OR_RETURN(*slot.target, Upload(whole, backend, stream));
    whole.clear();
  }
  return absl::OkStatus();
}

// The widest values that are normed without a weight; 0: none are.
int64_t MostOnes(const ModelConfig& config) {
  int64_t most = 0;
  for (const LayerConfig& layer : config.layers) {
    most = std::max<int64_t>(most, config.traits.norms_values ? layer.attention.v_dim : 0);
  }
  return most;
}

// What the host needs of a layer's vectors.
absl::Status CopyToHost(LayerWeights& layer, Backend& backend, Stream& stream) {
  if (layer.scale.size() > 0) {
    ANNULUS_RETURN_IF_ERROR(
        backend.Copy(stream, &layer.host_scale, layer.scale.data(), sizeof(float)));
  }
  if (layer.sinks.size() == 0) return absl::OkStatus();
  layer.host_sinks.resize(static_cast<size_t>(layer.sinks.size()));
  return backend.Copy(stream, layer.host_sinks.data(), layer.sinks.data(),
                      layer.host_sinks.size() * sizeof(float));
}

absl::StatusOr<ExpertMatrices> ListProjection(const std::vector<GatedWeights>& experts,
                                              LinearWeights GatedWeights::*projection,
                                              Backend& backend, Stream& stream) {
  std::vector<const PackedMatrix*> matrices;
  std::vector<const float*> biases;
  for (const GatedWeights& expert : experts) {
    matrices.push_back(&(expert.*projection).weight);
    biases.push_back((expert.*projection).bias.data());
  }
  return ListExperts(backend, stream, std::move(matrices), std::move(biases));
}

// The bytes that the lists take.
absl::StatusOr<size_t> ListLayer(ExpertsWeights& experts, Backend& backend, Stream& stream) {
  size_t bytes = 0;
  if (experts.each.empty()) return bytes;
  for (const auto& [list, projection] : {std::pair(&ExpertsWeights::gate, &GatedWeights::gate),
                                         std::pair(&ExpertsWeights::up, &GatedWeights::up),
                                         std::pair(&ExpertsWeights::down, &GatedWeights::down)}) {
    ANNULUS_ASSIGN_OR_RETURN(experts.*list,
                             ListProjection(experts.each, projection, backend, stream));
    bytes += (experts.*list).addresses.size();
  }
  return bytes;
}

// The places of all tensors in `weights`, and what each matrix becomes.
struct Places {
  WeightSlots slots;
  std::vector<DType> dtypes;  // [matrix]
};

// Checks all tensors, and sets what `weights` says of them as a whole.
absl::StatusOr<Places> FindPlaces(const ModelConfig& config, const TensorSource& source,
                                  const MatrixReader& reader, std::optional<DType> dtype,
                                  ModelWeights& weights) {
  ANNULUS_ASSIGN_OR_RETURN(const TensorNames names, NamesIn(config, source));
  Places places;
  places.slots = SlotsOf(config, names, weights);
  const WeightSlots& slots = places.slots;
  std::vector<DType>& dtypes = places.dtypes;
  ANNULUS_ASSIGN_OR_RETURN(dtypes, CheckTensors(slots, source, reader));
  ANNULUS_ASSIGN_OR_RETURN(weights.warnings, CheckUnusedTensors(slots, names, source, reader));
  if (config.tie_word_embeddings && !names.tied) {
    weights.warnings.push_back(
        absl::StrCat(names.head, ".weight differs from ", names.embedding,
                     ".weight and is used, though config.json says tie_word_embeddings true"));
  }
  // A converted checkpoint has other files than it was trained in, but the same config.json.
  const DType embedding = dtypes.front();
  weights.stored_embedding_dtype =
      config.stored_dtype.value_or(IsQuantized(embedding) ? DType::kBF16 : embedding);
  for (size_t i = 0; dtype && i < dtypes.size(); ++i) {
    dtypes[i] = MatrixDType(*dtype, slots.matrices[i].stored.name);
  }
  weights.dtype = DTypeOfLayers(slots, dtypes);
  weights.matrix_dtypes = dtypes;
  for (const MatrixSlot& slot : slots.matrices) {
    weights.parameters += slot.stored.rows * slot.stored.cols;
  }
  for (const VectorSlot& slot : slots.vectors) {
    weights.parameters += slot.stored.size;
    weights.bytes += static_cast<size_t>(slot.stored.size) * sizeof(float);
  }
  return places;
}

// ---- experts that do not fit

// Whether the matrix is one of an expert: those are all that ops list.
bool IsOfExpert(const MatrixSlot& slot) { return slot.listed_with.has_value(); }

// The experts among `places`, layer by layer, whose matrices get their shapes, without storage.
std::vector<ExpertPlace> FindExperts(const Places& places, const ModelWeights& weights) {
  std::vector<ExpertPlace> experts;
  size_t next = 0;
  for (const LayerWeights& layer : weights.layers) {
    for (const GatedWeights& expert : layer.experts.each) {
      ExpertPlace& place = experts.emplace_back();
      place.weights = &expert;
      const std::array<const PackedMatrix*, kExpertMatrices> targets = {
          &expert.gate.weight, &expert.up.weight, &expert.down.weight};
      for (size_t i = 0; i < kExpertMatrices; ++i, ++next) {
        while (!IsOfExpert(places.slots.matrices[next])) ++next;
        const MatrixSlot& slot = places.slots.matrices[next];
        ANNULUS_CHECK(slot.target == targets[i]) << slot.stored.name << " is in another order";
        place.stored[i] = slot.stored;
        place.dtypes[i] = places.dtypes[next];
        *slot.target = {slot.stored.rows, slot.stored.cols, places.dtypes[next], {}};
      }
    }
  }
  return experts;
}

// Null if all experts are to be in memory.
absl::StatusOr<std::shared_ptr<ExpertCache>> MakeExpertCache(const ModelConfig& config,
                                                             const Places& places,
                                                             const ModelWeights& weights,
                                                             const ExpertMemory& memory,
                                                             Backend& backend, const OpTable& ops) {
  if (memory.limit == 0 || config.experts.count == 0) return nullptr;
  ExpertCache::Parts parts;
  parts.places = FindExperts(places, weights);
  ANNULUS_ASSIGN_OR_RETURN(
      const std::optional<ExpertSlotSizes> sizes,
      SizeExpertSlots(parts.places, config.experts.routing.chosen, memory.limit, ops));
  if (!sizes.has_value()) return nullptr;
  parts.sizes = *sizes;
  parts.experts = config.experts.count;
  int32_t next = 0;
  for (const LayerWeights& layer : weights.layers) {
    parts.first.push_back(layer.experts.each.empty() ? -1 : next);
    next += static_cast<int32_t>(layer.experts.each.size());
  }
  absl::StatusOr<DeviceBuffer> storage = backend.Allocate(sizes->bytes());
  if (!storage.ok()) return WithPrefix("the experts in memory: ", storage.status());
  parts.storage = *std::move(storage);
  parts.ops = &ops;
  parts.source = memory.source;
  parts.make_reader = [source = memory.source, rows = config.fp8_block_rows,
                       cols = config.fp8_block_cols] { return MatrixReader(*source, rows, cols); };
  parts.readers = ExpertReaders(backend.capabilities().threads);
  parts.reading = ExpertReadingBytes(parts.places, parts.make_reader());
  parts.longest_wait = memory.longest_wait;
  return std::make_shared<ExpertCache>(std::move(parts));
}

}  // namespace

std::vector<RequiredTensor> RequiredTensors(const ModelConfig& config) {
  ModelWeights targets;
  const WeightSlots slots = SlotsOf(config, UsualNames(config), targets);
  std::map<std::string, std::vector<int64_t>> shapes;  // several slots may read one tensor
  for (const MatrixSlot& slot : slots.matrices) shapes[slot.stored.name] = slot.stored.shape;
  for (const VectorSlot& slot : slots.vectors) shapes[slot.stored.name] = slot.stored.shape;
  std::vector<RequiredTensor> tensors;
  for (auto& [name, shape] : shapes) tensors.push_back({name, std::move(shape)});
  return tensors;
}

absl::StatusOr<DType> StoredWeightsDType(const ModelConfig& config, const TensorSource& source) {
  ModelWeights targets;
  ANNULUS_ASSIGN_OR_RETURN(const TensorNames names, NamesIn(config, source));
  const WeightSlots slots = SlotsOf(config, names, targets);
  const MatrixReader reader = MakeReader(config, source);
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<DType> dtypes, CheckTensors(slots, source, reader));
  ANNULUS_RETURN_IF_ERROR(CheckUnusedTensors(slots, names, source, reader).status());
  return DTypeOfLayers(slots, dtypes);
}

absl::StatusOr<ModelWeights> LoadWeights(const ModelConfig& config, const TensorSource& source,
                                         Backend& backend, const OpTable& ops,
                                         std::optional<DType> dtype, const ExpertMemory& experts) {
  ModelWeights weights;
  const MatrixReader reader = MakeReader(config, source);
  ANNULUS_ASSIGN_OR_RETURN(const Places places, FindPlaces(config, source, reader, dtype, weights));
  ANNULUS_ASSIGN_OR_RETURN(weights.expert_cache,
                           MakeExpertCache(config, places, weights, experts, backend, ops));
  const bool cached = weights.expert_cache != nullptr;
  std::vector<MatrixToLoad> matrices;
  for (size_t i = 0; i < places.dtypes.size(); ++i) {
    const MatrixSlot& slot = places.slots.matrices[i];
    if (cached && IsOfExpert(slot)) continue;
    matrices.push_back({&slot.stored, places.dtypes[i], slot.target});
  }
  if (cached) weights.expert_cache->AddMatrices(matrices);
  ANNULUS_RETURN_IF_ERROR(LoadMatrices(
      matrices, [&] { return MakeReader(config, source); }, backend, ops, weights.error));
  ANNULUS_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, backend.CreateStream(1));
  ANNULUS_RETURN_IF_ERROR(LoadVectors(places.slots.vectors, reader, backend, *stream));
  for (LayerWeights& layer : weights.layers) {
    if (!cached) {
      ANNULUS_ASSIGN_OR_RETURN(const size_t bytes, ListLayer(layer.experts, backend, *stream));
      weights.bytes += bytes;
    }
    ANNULUS_RETURN_IF_ERROR(CopyToHost(layer, backend, *stream));
  }
  if (const int64_t most = MostOnes(config); most > 0) {
    const std::vector<float> ones(static_cast<size_t>(most), 1.0f);
    ANNULUS_ASSIGN_OR_RETURN(weights.ones, Upload(ones, backend, *stream));
    weights.bytes += ones.size() * sizeof(float);
  }
  ANNULUS_RETURN_IF_ERROR(stream->Synchronize());
  for (const MatrixSlot& slot : places.slots.matrices) {
    weights.bytes += slot.target->storage.size();
  }
  if (cached) {
    weights.bytes += weights.expert_cache->bytes();
    weights.expert_reader_bytes = weights.expert_cache->reader_bytes();
    ANNULUS_RETURN_IF_ERROR(weights.expert_cache->Start());
  }
  return weights;
}

absl::StatusOr<ModelWeights> ShapeWeights(const ModelConfig& config, const TensorSource& source,
                                          const OpTable& ops, std::optional<DType> dtype,
                                          int64_t expert_limit) {
  ModelWeights weights;
  const MatrixReader reader = MakeReader(config, source);
  ANNULUS_ASSIGN_OR_RETURN(const Places places, FindPlaces(config, source, reader, dtype, weights));
  std::optional<ExpertSlotSizes> cache;
  if (expert_limit > 0 && config.experts.count > 0) {
    const std::vector<ExpertPlace> experts = FindExperts(places, weights);
    ANNULUS_ASSIGN_OR_RETURN(
        cache, SizeExpertSlots(experts, config.experts.routing.chosen, expert_limit, ops));
    if (cache.has_value()) {
      weights.bytes += cache->bytes();
      weights.expert_reader_bytes = ExpertReadingBytes(experts, reader).total();
    }
  }
  for (size_t i = 0; i < places.dtypes.size(); ++i) {
    const auto& [stored, target, listed_with] = places.slots.matrices[i];
    const absl::StatusOr<size_t> bytes =
        ops.matrix_bytes(stored.rows, stored.cols, places.dtypes[i]);
    if (!bytes.ok()) {
      return WithPrefix(absl::StrCat("tensor ", stored.name, ": "), bytes.status());
    }
    *target = {stored.rows, stored.cols, places.dtypes[i], {}};
    if (!cache.has_value() || !listed_with.has_value()) weights.bytes += *bytes;
  }
  for (const VectorSlot& slot : places.slots.vectors) {
    *slot.target = DeviceVector({}, slot.target->size() + slot.stored.size);
  }
  if (const int64_t most = MostOnes(config); most > 0) {
    weights.ones = DeviceVector({}, most);
    weights.bytes += static_cast<size_t>(most) * sizeof(float);
  }
  for (const LayerWeights& layer : weights.layers) {
    if (cache.has_value()) break;  // see ListLayer
    weights.bytes += 3 * layer.experts.each.size() * sizeof(ExpertAddress);
  }
  return weights;
}

}  // namespace annulus
