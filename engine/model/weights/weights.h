#ifndef ANNULUS_ENGINE_MODEL_WEIGHTS_WEIGHTS_H_
#define ANNULUS_ENGINE_MODEL_WEIGHTS_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/experts/expert_memory.h"
#include "engine/model/files/tensor_source.h"
#include "engine/model/model_config.h"
#include "kernels/backend.h"
#include "kernels/base/device_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/base/quantize.h"
#include "kernels/ops/linear.h"
#include "kernels/registry.h"

namespace annulus {

class ExpertCache;

// A float32 vector in backend memory: a norm weight or a bias. If empty, data() is null, which
// tells ops that there is no bias.
class DeviceVector {
 public:
  DeviceVector() = default;
  DeviceVector(DeviceBuffer storage, int64_t size) : storage_(std::move(storage)), size_(size) {}

  const float* data() const { return storage_.as<float>(); }
  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  DeviceBuffer storage_;
  int64_t size_ = 0;
};

// A projection: output = weight * input (+ bias).
struct LinearWeights {
  PackedMatrix weight;  // [out, in]
  DeviceVector bias;    // [out] or empty
};

// A gated block: down(activation(gate(x), up(x))); without a gate `up` is empty (see HasGate).
struct GatedWeights {
  LinearWeights gate;  // [intermediate, hidden]
  LinearWeights up;    // [intermediate, hidden]
  LinearWeights down;  // [hidden, intermediate]
};

// A mixture of experts. With ModelWeights::expert_cache matrices have no storage, and ops no list.
struct ExpertsWeights {
  std::vector<GatedWeights> each;
  ExpertMatrices gate, up, down;  // the same matrices for ops, indexed like `each`
};

// The weights of one layer; members that the configuration does not have are empty. Norms hold the
// factor itself: 1 + w for families whose checkpoints store w.
struct LayerWeights {
  NormTable<DeviceVector> norms;        // [hidden], of queries and keys as FamilyTraits says
  NormTable<DeviceVector> norm_biases;  // [hidden] or empty
  LinearWeights query;                  // [heads * head_dim, hidden]
  LinearWeights key;                    // [kv_heads * head_dim, hidden]
  LinearWeights value;                  // [kv_heads * head_dim, hidden]
  DeviceVector sinks;                   // [heads]
  std::vector<float> host_sinks;        // the same, for the host
  LinearWeights output;                 // [hidden, heads * head_dim]
  GatedWeights mlp;                     // of layers without experts; of others, the shared block
  LinearWeights shared_gate;            // [1, hidden]
  LinearWeights router;                 // [experts, hidden]
  DeviceVector choice_bias;             // [experts]
  DeviceVector expert_factors;          // [experts]
  ExpertsWeights experts;
  LinearWeights input_gate;        // [layer_input_size, hidden]
  LinearWeights input_projection;  // [hidden, layer_input_size]
  LinearWeights stream_router;     // [streams, hidden]
  DeviceVector prediction;         // [streams * streams, streams]: PredictStreamsParams
  DeviceVector correction;         // [streams, streams]: CorrectStreamsParams
  DeviceVector corrected_scale;    // [hidden]
  LinearWeights laurel_left;       // [laurel_rank, hidden]
  LinearWeights laurel_right;      // [hidden, laurel_rank]
  DeviceVector scale;              // [1]
  float host_scale = 1;            // the same, for the host
};

// A model's weights, packed for one OpTable. Immutable, but for the cache: all ranks of a process
// share them.
struct ModelWeights {
  PackedMatrix embedding;                     // [vocabulary, hidden]
  std::optional<PackedMatrix> separate_head;  // [vocabulary, hidden]; absent when tied
  DeviceVector final_norm;                    // [hidden]
  DeviceVector final_norm_bias;               // [hidden] or empty
  // Of layers that have inputs: see ModelConfig. The norm is multiplied by 1 / sqrt(2).
  PackedMatrix layer_embedding;        // [layer_input_vocabulary, layers * layer_input_size]
  LinearWeights layer_projection;      // [layers * layer_input_size, hidden]
  DeviceVector layer_projection_norm;  // [layer_input_size]
  DeviceVector ones;                   // weights of norms that have none
  // Of the streams but the first: [hidden, hidden] of the embedding, and before the head.
  std::vector<LinearWeights> stream_projections;
  std::vector<LinearWeights> stream_unprojections;
  std::vector<LayerWeights> layers;
  int64_t parameters = 0;            // number of weights, a tied head counted once
  size_t bytes = 0;                  // of backend memory, that of expert_cache included
  DType dtype = DType::kF32;         // of the layers' matrices; if they differ, the most frequent
  std::vector<DType> matrix_dtypes;  // of every matrix as served, in a fixed order
  // Of what was quantised while loading; of experts those that were in memory then.
  QuantizationError error;
  DType stored_embedding_dtype = DType::kF32;  // in the checkpoint, before any conversion
  std::vector<std::string> warnings;           // tensors of the checkpoint that nothing uses
  // Holds experts while not all are in memory; null: all are.
  std::shared_ptr<ExpertCache> expert_cache;
  // The host's memory that each thread takes that reads experts, of which there are as many as
  // ExpertReaders says; 0 if all are in memory.
  size_t expert_reader_bytes = 0;

  const PackedMatrix& head() const { return separate_head ? *separate_head : embedding; }
};

// A tensor that LoadWeights reads.
struct RequiredTensor {
  std::string name;
  std::vector<int64_t> shape;
};

// All tensors of the decoder that `config` describes, under the names that LoadWeights uses.
std::vector<RequiredTensor> RequiredTensors(const ModelConfig& config);

// The ModelWeights::dtype that LoadWeights gives without a requested dtype. Used to choose kernels
// before packing; all kernels accept every dtype. Errors as for LoadWeights.
absl::StatusOr<DType> StoredWeightsDType(const ModelConfig& config, const TensorSource& source);

// Packs all tensors of the decoder that `config` describes, under the names of its family's Hugging
// Face checkpoints ("model.layers.0.self_attn.q_proj.weight", or those of the text half of a larger
// model: "language_model.model.layers.0.."). See CheckUnusedTensors for other tensors. Checks every
// presence, shape and element type before reading the first byte. Memory besides the result: see
// LoadMatrices.
//
// If `dtype` is absent, each matrix stays as stored, including codes with scales, or becomes what
// MatrixReader::Check says. If a projection of a layer's experts is stored in several dtypes, all
// its matrices become the plain one (codes count as bf16), or f32 if plain ones differ. If `dtype`
// is quantised, the embedding and the head are int8 (MatrixDType). Norms and biases are always f32.
//
// `experts`: whether some stay in the checkpoint. They are read and checked as all others are.
//
// Errors:
// - INVALID_ARGUMENT: tensors are missing or unused (the first few and how many), a shape does not
//   fit `config` (tensor, found, expected), a number is NaN or infinite (CheckFinite), or the limit
//   for experts is too low (SizeExpertSlots).
// - UNIMPLEMENTED: a matrix is in an unsupported form.
// - DATA_LOSS: a file changed while it was read.
// - RESOURCE_EXHAUSTED: the backend's memory is too small.
absl::StatusOr<ModelWeights> LoadWeights(const ModelConfig& config, const TensorSource& source,
                                         Backend& backend, const OpTable& ops,
                                         std::optional<DType> dtype,
                                         const ExpertMemory& experts = {});

// Describes what LoadWeights would return without allocating memory: all sizes and dtypes, `bytes`
// and `parameters`, but no numbers, nor an expert_cache. For planning. `expert_limit`: see
// ExpertMemory. Returns those errors of LoadWeights that do not require reading numbers.
absl::StatusOr<ModelWeights> ShapeWeights(const ModelConfig& config, const TensorSource& source,
                                          const OpTable& ops, std::optional<DType> dtype,
                                          int64_t expert_limit = 0);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_WEIGHTS_WEIGHTS_H_
