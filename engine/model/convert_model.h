#ifndef ANNULUS_ENGINE_MODEL_CONVERT_MODEL_H_
#define ANNULUS_ENGINE_MODEL_CONVERT_MODEL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model_config.h"
#include "engine/model/tensor_source.h"
#include "kernels/base/dtype.h"

namespace annulus {

struct ConvertedMatrix {
  std::string name;          // of the tensor
  DType from = DType::kF32;  // as MatrixReader::Check counts it
  DType to = DType::kF32;
  double relative_error = 0;  // |w - w'| / |w|; 0 where nothing was quantised
};

struct Conversion {
  std::vector<ConvertedMatrix> matrices;
  double relative_error = 0;  // over all weights that were quantised
  uint64_t bytes = 0;         // of the new weights
};

// Writes a model directory whose matrices are `dtype` (the vocabulary's as MatrixDType says), in
// one model.safetensors in the forms of MatrixReader, with config.json, the tokenizer's files and
// the chat templates copied, and annulus_conversion.json saying what was done. It loads to the same
// bits as converting while loading. The directory appears complete or not at all, and nothing is
// ever replaced (new_directory.h). Memory: a few MiB beside one tensor's scales, and one slice of
// stacked experts that lie transposed. UNIMPLEMENTED: stacked experts to a dtype without scales.
// Other errors as for LoadWeights and NewDirectory.
absl::StatusOr<Conversion> ConvertModel(const std::string& directory, DType dtype,
                                        const std::string& destination);

// The same for a model that is no Hugging Face directory. `source` has the tensors' names of one,
// and `config` is what the config.json among `files` says. `files`: what stands beside the weights,
// text by plain file name, instead of copies.
absl::StatusOr<Conversion> ConvertTensors(const ModelConfig& config, const TensorSource& source,
                                          const std::map<std::string, std::string>& files,
                                          DType dtype, const std::string& destination);

// Conversion::relative_error of the directory, where ConvertModel made it. INVALID_ARGUMENT: its
// annulus_conversion.json says no such thing.
absl::StatusOr<std::optional<double>> LoadConversionError(const std::string& directory);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_CONVERT_MODEL_H_
