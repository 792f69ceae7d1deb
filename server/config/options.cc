#include "server/config/options.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/config/option_rows.h"

namespace annulus::server {
namespace {

std::vector<Option> AllOptions() {
  std::vector<Option> all = EngineRows();
  const std::vector<Option> devices = DeviceOptions();
  all.insert(all.begin() + 1, devices.begin(), devices.end());  // next to the model
  for (const std::vector<Option>& group : {ClusterOptions(), ServiceOptions()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

}  // namespace

const std::vector<Option>& Options() {
  static const std::vector<Option> kOptions = AllOptions();
  return kOptions;
}

std::string TextOf(const OptionTexts& texts, const Option& option) {
  const auto found = texts.find(&option);
  return found == texts.end() ? option.default_value : found->second;
}

std::vector<const Option*> DifferingOptions(const OptionTexts& one, const OptionTexts& other) {
  std::vector<const Option*> differing;
  for (const Option& option : Options()) {
    if (TextOf(one, option) != TextOf(other, option)) differing.push_back(&option);
  }
  return differing;
}

std::string Explanation(const Option& option) {
  const std::string& range = option.value.range;
  return absl::StrCat(option.help, range.empty() ? "" : " From ", range, range.empty() ? "" : ".",
                      option.reloads ? " SIGHUP reads it again." : "");
}

std::string YamlKey(const Option& option) { return absl::StrReplaceAll(option.name, {{"-", "_"}}); }

std::string VariableName(const Option& option) {
  return absl::StrCat("ANNULUS_", absl::AsciiStrToUpper(YamlKey(option)));
}

}  // namespace annulus::server
