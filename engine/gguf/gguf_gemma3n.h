#ifndef ANNULUS_ENGINE_GGUF_GGUF_GEMMA3N_H_
#define ANNULUS_ENGINE_GGUF_GGUF_GEMMA3N_H_

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "engine/gguf/gguf_file.h"

namespace annulus {

// Adds to the config.json of a file of the architecture "gemma3n" what this family alone has:
// widths of blocks and where their gates are cut off, layers that attend another's keys, inputs of
// layers, streams. Some facts are in tensors alone: the rank of LAuReL, how many tokens have inputs
// of layers. What a file does not say is as llama.cpp has it: the first 20 layers have keys of
// their own, and gates of the first 10 are cut off. INVALID_ARGUMENT: names file, key and what is
// allowed. Source: llama.cpp's converter, Gemma3NModel.
absl::Status WriteGemma3nConfig(const GgufFile& file, nlohmann::json& config);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_GEMMA3N_H_
