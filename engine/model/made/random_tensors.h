#ifndef ANNULUS_ENGINE_MODEL_MADE_RANDOM_TENSORS_H_
#define ANNULUS_ENGINE_MODEL_MADE_RANDOM_TENSORS_H_

#include <cstdint>
#include <memory>

#include "engine/model/files/tensor_source.h"
#include "engine/model/model_config.h"

namespace annulus {

// Seeded random weights for any decoder that `config` describes. For speed measurements, since
// speed depends on shapes and not on values. Stores nothing: every Read generates the values again.
// A value depends only on the seed, the tensor's name and the position in the tensor.
//
// Matrices are uniform with variance 1 / columns, so that activations keep their size from layer to
// layer. Biases are uniform in [-0.1, 0.1]; norm weights are 1. The dtype is the one config.json
// names, otherwise bf16.
std::unique_ptr<TensorSource> MakeRandomTensors(const ModelConfig& config, uint64_t seed);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_MADE_RANDOM_TENSORS_H_
