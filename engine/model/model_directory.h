#ifndef ANNULUS_ENGINE_MODEL_MODEL_DIRECTORY_H_
#define ANNULUS_ENGINE_MODEL_MODEL_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Ends every refusal of another format.
inline constexpr absl::string_view kSupportedWeights =
    "a GGUF file, or a Hugging Face directory with config.json and weights in safetensors files as "
    "F32, BF16, F16, or F8_E4M3 or F8_E5M2 with scales";

// OK if `path` is a directory. Else INVALID_ARGUMENT, or UNIMPLEMENTED naming the format of another
// single file.
absl::Status CheckModelDirectory(const std::string& path);

// Why a model directory has no file that we can read weights from: NOT_FOUND, or UNIMPLEMENTED
// naming a format found there that is not supported (PyTorch pickle, ..) or, like GGUF, is served
// as a file of its own.
absl::Status ExplainMissingWeights(const std::string& directory);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_MODEL_DIRECTORY_H_
