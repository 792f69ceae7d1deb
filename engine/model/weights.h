#ifndef ANNULUS_ENGINE_MODEL_WEIGHTS_H_
#define ANNULUS_ENGINE_MODEL_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model_config.h"
#include "engine/model/tensor_source.h"
#include "kernels/backend.h"
#include "kernels/base/device_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/base/quantize.h"
#include "kernels/ops/linear.h"
#include "kernels/registry.h"

namespace annulus {

// A float32 vector in backend memory: a norm's weight or a bias. Empty: data() is null, which is
// how ops are told that there is no bias.
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

// A gated block: down(activation(gate(x), up(x))).
struct GatedWeights {
  LinearWeights gate;  // [intermediate, hidden]
  LinearWeights up;    // [intermediate, hidden]
  LinearWeights down;  // [hidden, intermediate]
};

// A mixture of experts.
struct ExpertsWeights {
  std::vector<GatedWeights> each;
  ExpertMatrices gate, up, down;  // the same, as ops find them by their index: into `each`
};

// Empty where the configuration has no such thing. Norms hold what is multiplied: 1 + w where the
// family's checkpoints hold w.
struct LayerWeights {
  DeviceVector attention_norm;       // [hidden]
  LinearWeights query;               // [heads * head_dim, hidden]
  LinearWeights key;                 // [kv_heads * head_dim, hidden]
  LinearWeights value;               // [kv_heads * head_dim, hidden]
  DeviceVector query_norm;           // [head_dim] or [heads * head_dim]
  DeviceVector key_norm;             // [head_dim] or [kv_heads * head_dim]
  DeviceVector sinks;                // [heads]
  std::vector<float> host_sinks;     // the same where the host reads them
  LinearWeights output;              // [hidden, heads * head_dim]
  DeviceVector attention_post_norm;  // [hidden]
  DeviceVector mlp_norm;             // [hidden]
  GatedWeights mlp;                  // of a layer without experts
  LinearWeights router;              // [experts, hidden]
  ExpertsWeights experts;
  DeviceVector mlp_post_norm;  // [hidden]
};

// A model's weights, packed for one OpTable. Immutable: all ranks of a process share one.
struct ModelWeights {
  PackedMatrix embedding;                     // [vocabulary, hidden]
  std::optional<PackedMatrix> separate_head;  // [vocabulary, hidden]; absent when tied
  DeviceVector final_norm;                    // [hidden]
  std::vector<LayerWeights> layers;
  int64_t parameters = 0;                      // numbers in the model, a tied head counted once
  size_t bytes = 0;                            // backend memory held
  DType dtype = DType::kF32;                   // of the layers' matrices, or of most of them
  std::vector<DType> matrix_dtypes;            // of every matrix as it is served, in a fixed order
  QuantizationError error;                     // of what was quantised while loading
  DType stored_embedding_dtype = DType::kF32;  // of the checkpoint, before any conversion
  std::vector<std::string> warnings;           // what the checkpoint has and nothing uses

  const PackedMatrix& head() const { return separate_head ? *separate_head : embedding; }
};

// One tensor that LoadWeights reads.
struct RequiredTensor {
  std::string name;
  std::vector<int64_t> shape;
};

// All tensors of the decoder that `config` describes, under the names that LoadWeights gives them.
std::vector<RequiredTensor> RequiredTensors(const ModelConfig& config);

// ModelWeights::dtype of what LoadWeights makes where no dtype is asked for. Kernels are chosen by
// it before weights are packed; all of them take every dtype. Errors as for LoadWeights.
absl::StatusOr<DType> StoredWeightsDType(const ModelConfig& config, const TensorSource& source);

// Packs all tensors of the decoder that `config` describes, under the names of its family's Hugging
// Face checkpoints ("model.layers.0.self_attn.q_proj.weight", or those of the text half of a larger
// model: "language_model.model.layers.0.."); see CheckUnusedTensors for other ones.
// `dtype` absent: each matrix stays as it is stored, codes with their scales too, or becomes what
// MatrixReader::Check says. Where one projection of a layer's experts is stored in several dtypes,
// all of its matrices become the plain one, with codes counted as bf16, or f32 where plain ones
// differ. Every presence, shape and element type is checked before the first byte is read. Where
// `dtype` is quantised, the embedding and the head are int8 (MatrixDType). Norms and biases are
// always f32. Memory beyond the result: see LoadMatrices.
// INVALID_ARGUMENT: tensors missing or unused (the first few and how many), a shape that `config`
// does not give (tensor, found, expected), or a number that is NaN or infinite (CheckFinite).
// UNIMPLEMENTED: a matrix in a form that is not supported. DATA_LOSS: a file changed while it was
// read. RESOURCE_EXHAUSTED: the backend's memory is too small.
absl::StatusOr<ModelWeights> LoadWeights(const ModelConfig& config, const TensorSource& source,
                                         Backend& backend, const OpTable& ops,
                                         std::optional<DType> dtype);

// What LoadWeights would give, without memory: all sizes and dtypes, `bytes` and `parameters`, but
// no numbers. For planning. Errors of LoadWeights, as far as no number needs to be read.
absl::StatusOr<ModelWeights> ShapeWeights(const ModelConfig& config, const TensorSource& source,
                                          const OpTable& ops, std::optional<DType> dtype);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_WEIGHTS_H_
