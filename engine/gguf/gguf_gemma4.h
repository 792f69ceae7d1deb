#ifndef ANNULUS_ENGINE_GGUF_GGUF_GEMMA4_H_
#define ANNULUS_ENGINE_GGUF_GGUF_GEMMA4_H_

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "engine/gguf/gguf_file.h"

namespace annulus {

// Adds to the config.json of a file of the architecture "gemma4" what differs between layers:
// heads, widths of blocks, rope, layers that attend another's keys, inputs of layers; and its
// experts. `config` has layer_types already. Some facts are in tensors alone: whether keys are
// values, how many pairs of a head turn (rope_freqs.weight, whose other factors are so large that
// their pairs stand still), how many tokens have inputs of layers. INVALID_ARGUMENT, UNIMPLEMENTED:
// names file, key or tensor, and what is allowed. Source: llama.cpp's converter, Gemma4Model.
absl::Status WriteGemma4Config(const GgufFile& file, nlohmann::json& config);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_GEMMA4_H_
