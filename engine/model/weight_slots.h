#ifndef ANNULUS_ENGINE_MODEL_WEIGHT_SLOTS_H_
#define ANNULUS_ENGINE_MODEL_WEIGHT_SLOTS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/matrix_reader.h"
#include "engine/model/weights.h"

namespace annulus {

// One matrix or vector of the decoder: where it lies in the checkpoint and where it goes.
struct MatrixSlot {
  StoredMatrix stored;
  PackedMatrix* target;
  // The index of the first matrix that ops list together with this one (ListExperts), and which
  // must therefore have the same dtype; absent where there is none.
  std::optional<size_t> listed_with;
};
struct VectorSlot {
  StoredVector stored;
  DeviceVector* target;
  bool unit_offset = false;  // the checkpoint holds w, the model multiplies by 1 + w
};
struct WeightSlots {
  std::vector<MatrixSlot> matrices;
  std::vector<VectorSlot> vectors;
};

// What the names of a decoder's tensors begin with.
struct TensorNames {
  std::string model = "model.";
  std::string head = "lm_head";
  std::string embedding = "model.embed_tokens";
  bool tied = false;  // the head is the embedding
};

// Those of a checkpoint that is written as `config` says.
TensorNames UsualNames(const ModelConfig& config);

// Those of the decoder in a checkpoint: where it has none of its own, they may be those of the text
// half of a larger model ("language_model.model.", "model.language_model."). As in Transformers 5,
// a tied embedding may be stored under the head's name alone; and if both are stored and differ,
// the head is not tied, whatever `config` says. Errors of TensorSource::ReadRange.
absl::StatusOr<TensorNames> NamesIn(const ModelConfig& config, const TensorSource& source);

// Every tensor that `config` needs, under the names of its family, the embedding first; sizes
// weights.layers and points into `weights`.
WeightSlots SlotsOf(const ModelConfig& config, const TensorNames& names, ModelWeights& weights);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_WEIGHT_SLOTS_H_
