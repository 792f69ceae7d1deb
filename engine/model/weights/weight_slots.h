#ifndef ANNULUS_ENGINE_MODEL_WEIGHTS_WEIGHT_SLOTS_H_
#define ANNULUS_ENGINE_MODEL_WEIGHTS_WEIGHT_SLOTS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/weights/matrix_reader.h"
#include "engine/model/weights/weights.h"

namespace annulus {

// One matrix or vector of the decoder: where it is in the checkpoint and where to put it.
struct MatrixSlot {
  StoredMatrix stored;
  PackedMatrix* target;
  // Index of the first matrix that ops list together with this one (ListExperts); both must have
  // the same dtype. Absent: none.
  std::optional<size_t> listed_with;
};
// Slots with the same target are parts of one vector; they stand side by side, in its order.
struct VectorSlot {
  StoredVector stored;
  DeviceVector* target;
  bool unit_offset = false;  // the checkpoint stores w, the model multiplies by 1 + w
  float factor = 1;          // of what is stored
};
struct WeightSlots {
  std::vector<MatrixSlot> matrices;
  std::vector<VectorSlot> vectors;
};

// Prefixes of the decoder's tensor names.
struct TensorNames {
  std::string model = "model.";
  std::string head = "lm_head";
  std::string embedding = "model.embed_tokens";
  bool tied = false;      // the head equals the embedding
  bool adapters = false;  // see TensorLayout
  // Gemma 4's experts have tensors of their own, as GGUF files give them; publishers' share some.
  bool experts_apart = false;
  // Of ExpertTensors::kHalves: [experts, in, out], as Transformers 4.57 wrote them and publishers
  // have them; from 5.0 on it writes [experts, out, in].
  bool experts_in_out = false;
  // Norms of heads with weights of their own have a tensor each, as StableLM's publishers store
  // them; otherwise one has all, [heads, k_dim].
  bool head_norms_apart = false;
  // Between a projection's name and ".weight", if its adapters stand beside it.
  std::string infix = {};
  std::vector<std::string> guessing = {};  // of ModelConfig::guessing_layers
  // What publishers store for layers that attend another's keys and values, though nothing uses it.
  std::vector<std::string> unread = {};
};

// The names in a checkpoint written as `config` says.
TensorNames UsualNames(const ModelConfig& config);

// The names of the decoder in this checkpoint. If it has none of its own, they may be those of the
// text half of a larger model ("language_model.model.", "model.language_model."). As in
// Transformers 5, a tied embedding may be stored under the head's name only; and if both are stored
// and differ, the head is not tied, whatever `config` says. If the family has adapters
// (TensorLayout), projections may be named "..base_layer.weight". Returns the errors of
// TensorSource::ReadRange.
absl::StatusOr<TensorNames> NamesIn(const ModelConfig& config, const TensorSource& source);

// Lists every tensor that `config` needs, under its family's names, the embedding first. Resizes
// weights.layers and points into `weights`.
WeightSlots SlotsOf(const ModelConfig& config, const TensorNames& names, ModelWeights& weights);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_WEIGHTS_WEIGHT_SLOTS_H_
