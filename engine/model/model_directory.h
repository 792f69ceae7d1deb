#ifndef ANNULUS_ENGINE_MODEL_MODEL_DIRECTORY_H_
#define ANNULUS_ENGINE_MODEL_MODEL_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Supported formats; the end of every message that rejects another format.
inline constexpr absl::string_view kSupportedWeights =
    "a GGUF file, or a Hugging Face directory with config.json and weights in safetensors files as "
    "F32, BF16, F16, or F8_E4M3 or F8_E5M2 with scales";

// OK if `path` is a directory. Otherwise INVALID_ARGUMENT, or UNIMPLEMENTED naming the format if it
// is a single file of a known one.
absl::Status CheckModelDirectory(const std::string& path);

// Explains why a model directory has no weights that can be read: NOT_FOUND, or UNIMPLEMENTED
// naming a format found there that is not supported (PyTorch pickle, ..) or that, like GGUF, is
// served as a single file.
absl::Status ExplainMissingWeights(const std::string& directory);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_MODEL_DIRECTORY_H_
