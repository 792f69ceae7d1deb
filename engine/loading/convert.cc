#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/api.h"
#include "engine/gguf/gguf_model.h"
#include "engine/loading/model_files.h"
#include "engine/model/made/convert_model.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// A tokenizer that has no file in a Hugging Face directory is refused when the model is opened.
// Warnings of the tokenizer go to `report`: the new directory causes none.
absl::StatusOr<Conversion> ConvertGguf(const std::string& path, DType dtype,
                                       const std::string& destination, std::string* report) {
  ANNULUS_ASSIGN_OR_RETURN(const GgufModel model, OpenGgufModel(path, CodesFor(dtype)));
  for (const std::string& warning : model.tokenizer.warnings) {
    absl::StrAppend(report, "warning: ", warning, "\n");
  }
  std::map<std::string, std::string> files = {{"config.json", model.config_json},
                                              {"tokenizer_config.json", model.tokenizer.config}};
  if (!model.tokenizer.tokenizer_json.empty()) {
    files["tokenizer.json"] = model.tokenizer.tokenizer_json;
  } else {
    files["tokenizer.model"] = model.tokenizer.tokenizer_model;
  }
  return ConvertTensors(model.config, *model.tensors, files, dtype, destination);
}

}  // namespace

absl::StatusOr<std::string> ConvertModelDirectory(const std::string& directory, DType dtype,
                                                  const std::string& destination) {
  ANNULUS_ASSIGN_OR_RETURN(const std::optional<std::string> gguf, FindGgufModel(directory));
  std::string report;
  ANNULUS_ASSIGN_OR_RETURN(const Conversion conversion,
                           gguf.has_value() ? ConvertGguf(*gguf, dtype, destination, &report)
                                            : ConvertModel(directory, dtype, destination));
  for (const ConvertedMatrix& matrix : conversion.matrices) {
    absl::StrAppend(&report, matrix.name, ": ", DTypeName(matrix.from), " to ",
                    DTypeName(matrix.to), ", relative error ",
                    absl::StrFormat("%.5f", matrix.relative_error), "\n");
  }
  absl::StrAppend(&report, "weights:          ", conversion.bytes, " bytes\n",
                  "relative error:   ", absl::StrFormat("%.5f", conversion.relative_error), "\n");
  return report;
}

}  // namespace annulus
