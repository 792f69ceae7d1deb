#ifndef ANNULUS_ENGINE_MODEL_WEIGHT_SLOTS_H_
#define ANNULUS_ENGINE_MODEL_WEIGHT_SLOTS_H_

#include <vector>

#include "engine/model/matrix_reader.h"
#include "engine/model/weights.h"

namespace annulus {

// One matrix or vector of the decoder: where it lies in the checkpoint and where it goes.
struct MatrixSlot {
  StoredMatrix stored;
  PackedMatrix* target;
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

// Every tensor that `config` needs, under the names of its family, the embedding first; sizes
// weights.layers and points into `weights`.
WeightSlots SlotsOf(const ModelConfig& config, ModelWeights& weights);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_WEIGHT_SLOTS_H_
