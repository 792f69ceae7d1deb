#include "server/config/yaml_file.h"

#include <yaml-cpp/yaml.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/config/plain_file.h"

namespace annulus::server {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;

absl::StatusOr<std::vector<YamlEntry>> Flatten(const std::string& path, const YAML::Node& root) {
  std::vector<YamlEntry> entries;
  if (!root.IsDefined() || root.IsNull()) return entries;
  if (!root.IsMap()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": every line must be like \"ranks: 4\""));
  }
  for (const auto& pair : root) {
    const int line = pair.first.Mark().line + 1;
    if (!pair.first.IsScalar() || !pair.second.IsScalar()) {
      const std::string name = pair.first.IsScalar() ? pair.first.Scalar() : "a key";
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", line, ": ", name, " needs a single value, like \"ranks: 4\""));
    }
    entries.push_back({pair.first.Scalar(), pair.second.Scalar(), line});
  }
  return entries;
}

}  // namespace

absl::StatusOr<std::vector<YamlEntry>> ReadYamlFile(const std::string& path) {
  ANNULUS_ASSIGN_OR_RETURN(const std::string content, ReadPlainFile("config", path, kMaxFileBytes));
  try {
    return Flatten(path, YAML::Load(content));
  } catch (const YAML::Exception& error) {  // the library's way to report any malformed file
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", error.mark.line + 1, ": not valid YAML: ", error.msg));
  }
}

}  // namespace annulus::server
