#ifndef ANNULUS_ENGINE_MODEL_RANDOM_TENSORS_H_
#define ANNULUS_ENGINE_MODEL_RANDOM_TENSORS_H_

#include <cstdint>
#include <memory>

#include "engine/model/model_config.h"
#include "engine/model/tensor_source.h"

namespace annulus {

// Seeded random weights for any decoder that `config` describes: what speed is measured with, as it
// depends on shapes and not on values. Nothing is stored, every Read draws anew; a value depends on
// the seed, the tensor's name and its place in the tensor alone.
//
// Matrices are uniform with variance 1 / columns, so that activations keep their size from layer to
// layer; biases are uniform in [-0.1, 0.1]; weights of norms are 1. The dtype is the one that
// config.json names, else bf16.
std::unique_ptr<TensorSource> MakeRandomTensors(const ModelConfig& config, uint64_t seed);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_RANDOM_TENSORS_H_
