#ifndef ANNULUS_ENGINE_MODEL_MADE_CONVERT_MODEL_H_
#define ANNULUS_ENGINE_MODEL_MADE_CONVERT_MODEL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/files/tensor_source.h"
#include "engine/model/model_config.h"
#include "kernels/base/dtype.h"

namespace annulus {

struct ConvertedMatrix {
  std::string name;          // of the tensor
  DType from = DType::kF32;  // as MatrixReader::Check returns it
  DType to = DType::kF32;
  double relative_error = 0;  // |w - w'| / |w|; 0 if it was not quantised
};

struct Conversion {
  std::vector<ConvertedMatrix> matrices;
  double relative_error = 0;  // over all quantised weights
  uint64_t bytes = 0;         // size of the new weights
};

// Writes a model directory with all matrices as `dtype` (those of the vocabulary as MatrixDType
// says). It contains one model.safetensors in a form that MatrixReader reads, copies of
// config.json, the tokenizer's files and the chat templates, and annulus_conversion.json, which
// describes the conversion. Loading it gives the same bits as converting while loading.
//
// The directory appears complete or not at all, and nothing is ever replaced (new_directory.h).
// Uses a few MiB of memory besides one tensor's scales, or one slice of transposed stacked experts.
// UNIMPLEMENTED: stacked experts to a dtype without scales. Other errors as for LoadWeights and
// NewDirectory.
absl::StatusOr<Conversion> ConvertModel(const std::string& directory, DType dtype,
                                        const std::string& destination);

// The same for a model that is not a Hugging Face directory. `source` must use the tensor names of
// one. `files`: the other files to write, text by plain file name. They include a config.json, and
// `config` is its parsed form.
absl::StatusOr<Conversion> ConvertTensors(const ModelConfig& config, const TensorSource& source,
                                          const std::map<std::string, std::string>& files,
                                          DType dtype, const std::string& destination);

// Returns Conversion::relative_error of a directory made by ConvertModel; absent for other
// directories. INVALID_ARGUMENT if its annulus_conversion.json does not have the field.
absl::StatusOr<std::optional<double>> LoadConversionError(const std::string& directory);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_MADE_CONVERT_MODEL_H_
