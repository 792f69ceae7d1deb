#include "engine/gguf/gguf_model.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/gguf/gguf_families.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/gguf_tensors.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::StatusOr<std::optional<std::string>> FindGgufModel(const std::string& model) {
  std::error_code error;
  if (!std::filesystem::is_directory(model, error)) {
    return IsGgufFile(model) ? std::optional(model) : std::nullopt;
  }
  if (std::filesystem::exists(std::filesystem::path(model) / "config.json", error)) {
    return std::optional<std::string>();
  }
  return FindGgufFile(model);
}

absl::StatusOr<GgufModel> OpenGgufModel(const std::string& path, GgufTensors::Codes codes) {
  ANNULUS_ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> opened, GgufFile::Open(path));
  const std::shared_ptr<const GgufFile> file = std::move(opened);
  ANNULUS_ASSIGN_OR_RETURN(const GgufFamily family, FindGgufFamily(*file));
  GgufModel model;
  ANNULUS_ASSIGN_OR_RETURN(model.config_json, GgufConfigJson(*file, family));
  ANNULUS_ASSIGN_OR_RETURN(
      model.config, ParseModelConfig(model.config_json, absl::StrCat(path, " (as a config.json)")));
  ANNULUS_ASSIGN_OR_RETURN(model.tokenizer, MakeGgufTokenizer(*file));
  ANNULUS_ASSIGN_OR_RETURN(std::unique_ptr<GgufTensors> tensors,
                           GgufTensors::Create(file, family, codes));
  if (tensors->quantized() && codes == GgufTensors::Codes::kWiden) {
    model.weights_dtype = DType::kBF16;
  }
  model.widened = tensors->widened();
  model.tensors = std::move(tensors);
  return model;
}

}  // namespace annulus
