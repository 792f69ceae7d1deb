#ifndef ANNULUS_ENGINE_MODEL_FILES_MODEL_DIRECTORY_H_
#define ANNULUS_ENGINE_MODEL_FILES_MODEL_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/model_config.h"

namespace annulus {

// Supported formats; the end of every message that rejects another format.
inline constexpr absl::string_view kSupportedWeights =
    "a GGUF file, or a Hugging Face directory with config.json and weights in safetensors files as "
    "F32, BF16, F16, or F8_E4M3 or F8_E5M2 with scales";

// OK if `path` is a directory. Otherwise INVALID_ARGUMENT, or UNIMPLEMENTED naming the format if it
// is a single file of a known one.
absl::Status CheckModelDirectory(const std::string& path);

// What a model directory says beside its weights and its tokenizer.
struct ModelDirectory {
  ModelConfig config;             // with the end-of-text ids of `generation_config`
  std::string generation_config;  // the text of generation_config.json; "{}" if absent
};

// Reads config.json and generation_config.json, each once and at most 4 MiB long. Errors: those of
// CheckModelDirectory, ReadSmallFile, ParseModelConfig and ApplyGenerationConfig.
absl::StatusOr<ModelDirectory> ReadModelDirectory(const std::string& directory);

// Explains why a model directory has no weights that can be read: NOT_FOUND, or UNIMPLEMENTED
// naming a format found there that is not supported (PyTorch pickle, ..) or that, like GGUF, is
// served as a single file.
absl::Status ExplainMissingWeights(const std::string& directory);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FILES_MODEL_DIRECTORY_H_
