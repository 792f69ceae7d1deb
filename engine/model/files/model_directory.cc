#include "engine/model/files/model_directory.h"

#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/model/files/regular_file.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr uint64_t kMostConfigBytes = 4 << 20;

struct ForeignFormat {
  absl::string_view suffix;
  absl::string_view name;
};

constexpr std::array<ForeignFormat, 7> kForeignFormats = {{
    {".gguf", "GGUF"},
    {".bin", "PyTorch pickle"},
    {".pt", "PyTorch pickle"},
    {".pth", "PyTorch pickle"},
    {".h5", "TensorFlow"},
    {".msgpack", "Flax"},
    {".onnx", "ONNX"},
}};

const ForeignFormat* FindForeign(absl::string_view file_name) {
  for (const ForeignFormat& format : kForeignFormats) {
    if (absl::EndsWith(file_name, format.suffix)) return &format;
  }
  return nullptr;
}

absl::Status RefuseForeign(absl::string_view path, const ForeignFormat& format) {
  if (format.name == "GGUF") {
    return absl::UnimplementedError(absl::StrCat(
        path, " is a GGUF file next to a config.json; to serve it, give the file: --model ", path));
  }
  return absl::UnimplementedError(absl::StrCat(
      path, " is a ", format.name, " file, which is not supported; needed: ", kSupportedWeights));
}

}  // namespace

absl::Status CheckModelDirectory(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return absl::OkStatus();
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(
        absl::StrCat("model \"", path, "\" does not exist; needed: ", kSupportedWeights));
  }
  if (absl::EndsWith(path, ".gguf")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a GGUF file: it is empty, truncated or damaged"));
  }
  if (const ForeignFormat* format = FindForeign(path)) return RefuseForeign(path, *format);
  return absl::InvalidArgumentError(
      absl::StrCat("model \"", path, "\" is not a directory; needed: ", kSupportedWeights));
}

absl::StatusOr<ModelDirectory> ReadModelDirectory(const std::string& directory) {
  ANNULUS_RETURN_IF_ERROR(CheckModelDirectory(directory));
  absl::StatusOr<std::string> json = ReadSmallFile(directory, "config.json", kMostConfigBytes);
  if (absl::IsNotFound(json.status())) {
    return absl::NotFoundError(
        absl::StrCat(json.status().message(), "; needed: ", kSupportedWeights));
  }
  ANNULUS_RETURN_IF_ERROR(json.status());
  ModelDirectory read;
  ANNULUS_ASSIGN_OR_RETURN(read.config,
                           ParseModelConfig(*json, absl::StrCat(directory, "/config.json")));
  json = ReadSmallFile(directory, "generation_config.json", kMostConfigBytes);
  if (absl::IsNotFound(json.status())) json = "{}";
  ANNULUS_RETURN_IF_ERROR(json.status());
  read.generation_config = *std::move(json);
  ANNULUS_RETURN_IF_ERROR(ApplyGenerationConfig(
      read.generation_config, absl::StrCat(directory, "/generation_config.json"), read.config));
  return read;
}

absl::Status ExplainMissingWeights(const std::string& directory) {
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  const std::filesystem::directory_iterator end;
  for (; !error && entries != end; entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    if (const ForeignFormat* format = FindForeign(name)) {
      return RefuseForeign(absl::StrCat(directory, "/", name), *format);
    }
  }
  return absl::NotFoundError(absl::StrCat(
      directory, " has neither model.safetensors nor model.safetensors.index.json; needed: ",
      kSupportedWeights));
}

}  // namespace annulus
