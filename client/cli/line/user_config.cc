#include "client/cli/line/user_config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/line/help.h"
#include "client/format/text.h"
#include "client/read/files.h"

namespace annulus::client {
namespace {

constexpr int64_t kLongestConfig = 1 << 20;

absl::Status WrongAt(const std::string& path, int line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ":", line, ": ", what));
}

absl::StatusOr<UserSetting> ReadSetting(const std::string& path, const YAML::Node& key,
                                        const YAML::Node& value) {
  const int line = key.Mark().line + 1;
  UserSetting setting{absl::StrReplaceAll(key.Scalar(), {{"_", "-"}}), {}, line};
  if (value.IsScalar()) setting.values.push_back(value.Scalar());
  if (value.IsSequence()) {
    for (const YAML::Node& entry : value) {
      if (entry.IsScalar()) setting.values.push_back(entry.Scalar());
    }
    if (setting.values.size() != value.size()) setting.values.clear();
  }
  if (setting.values.empty()) {
    return WrongAt(path, line,
                   absl::StrCat(key.Scalar(), " needs a single value, like \"temperature: 0\""));
  }
  return setting;
}

// Reads the settings of a map, `profile` among them. Skips `profiles`, which the caller reads.
absl::StatusOr<std::vector<UserSetting>> ReadSettings(const std::string& path,
                                                      const YAML::Node& map) {
  std::vector<UserSetting> settings;
  std::set<std::string> keys;
  for (const auto& pair : map) {
    const int line = pair.first.Mark().line + 1;
    if (!pair.first.IsScalar()) return WrongAt(path, line, "a key must be a single word");
    if (!keys.insert(pair.first.Scalar()).second) {
      return WrongAt(path, line, absl::StrCat(pair.first.Scalar(), " is given twice; remove one"));
    }
    if (pair.first.Scalar() == "profiles") continue;
    absl::StatusOr<UserSetting> setting = ReadSetting(path, pair.first, pair.second);
    if (!setting.ok()) return setting.status();
    settings.push_back(*std::move(setting));
  }
  return settings;
}

// Removes the setting `key` from `settings` and returns its value; empty if there is none.
std::string Take(const std::string& key, std::vector<UserSetting>& settings) {
  const auto found = std::find_if(settings.begin(), settings.end(),
                                  [&](const UserSetting& setting) { return setting.key == key; });
  if (found == settings.end()) return "";
  std::string value = found->values[0];
  settings.erase(found);
  return value;
}

absl::Status CheckIsMap(const std::string& path, const YAML::Node& node, absl::string_view what) {
  if (node.IsMap()) return absl::OkStatus();
  return WrongAt(path, node.Mark().line + 1,
                 absl::StrCat(what, " must have lines like \"server: gpu7:50051\""));
}

absl::StatusOr<std::vector<UserSetting>> ReadProfile(const std::string& path,
                                                     const YAML::Node& root,
                                                     const std::string& profile) {
  const YAML::Node profiles = root["profiles"];
  std::vector<std::string> names;
  if (profiles.IsDefined()) {
    if (absl::Status good = CheckIsMap(path, profiles, "profiles"); !good.ok()) return good;
    for (const auto& pair : profiles) {
      if (!pair.first.IsScalar()) continue;
      names.push_back(pair.first.Scalar());
      if (pair.first.Scalar() != profile) continue;
      absl::Status good = CheckIsMap(path, pair.second, absl::StrCat("profile ", profile));
      if (!good.ok()) return good;
      return ReadSettings(path, pair.second);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, " has no profile ", profile, "; it has ",
                   names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

absl::StatusOr<std::vector<UserSetting>> Interpret(const std::string& path, const YAML::Node& root,
                                                   std::string profile) {
  std::vector<UserSetting> settings;
  if (root.IsDefined() && !root.IsNull()) {
    if (absl::Status good = CheckIsMap(path, root, "the file"); !good.ok()) return good;
    absl::StatusOr<std::vector<UserSetting>> read = ReadSettings(path, root);
    if (!read.ok()) return read;
    settings = *std::move(read);
  }
  const std::string default_profile = Take("profile", settings);
  if (profile.empty()) profile = default_profile;
  if (profile.empty()) return settings;
  absl::StatusOr<std::vector<UserSetting>> special =
      settings.empty() && !root.IsMap()
          ? ReadProfile(path, YAML::Node(YAML::NodeType::Map), profile)
          : ReadProfile(path, root, profile);
  if (!special.ok()) return special;
  for (UserSetting& setting : *special) {
    Take(setting.key, settings);
    settings.push_back(std::move(setting));
  }
  return settings;
}

// The innermost command that the command line names.
const CLI::App& ChosenCommand(const CLI::App& app) {
  const CLI::App* chosen = &app;
  while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands().front();
  return *chosen;
}

// Whether the command line gives the flag, to the command or one of its parents.
bool IsGiven(const CLI::App& command, const std::string& name) {
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) {
    const CLI::Option* option = app->get_option_no_throw(absl::StrCat("--", name));
    if (option != nullptr && option->count() > 0) return true;
  }
  return false;
}

// Collects the names of the flags that the file may set: those that say how a command works, not
// what it does.
void CollectNames(const CLI::App& app, std::vector<std::string>& names) {
  static const auto& own = *new std::set<std::string>{"output", "request-id", "profile", "timings"};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames()[0];
    const std::string& group = option->get_group();
    const bool fits = group == kServerGroup || group == kOutputGroup || group == kSamplingGroup ||
                      group == kAttentionGroup || name == "system" || name == "concurrency";
    const bool is_new = std::count(names.begin(), names.end(), name) == 0;
    if (fits && is_new && own.count(name) == 0) names.push_back(name);
  }
  for (const CLI::App* command : CommandsOf(app)) CollectNames(*command, names);
}

// Whether the command line or an environment variable overrides the setting.
bool IsDecided(const CLI::App& command, const CLI::Option& option, const std::string& key,
               const Environment& environment) {
  if (IsGiven(command, key)) return true;
  for (const CLI::Option* other : option.get_excludes()) {
    if (other->count() > 0) return true;
  }
  if (key == "server") return environment("ANNULUS_SERVER").has_value();
  if (key != "token" && key != "token-file") return false;
  return environment("ANNULUS_TOKEN").has_value() || IsGiven(command, "token") ||
         IsGiven(command, "token-file");
}

std::string ExpandHome(const std::string& key, const std::string& value,
                       const Environment& environment) {
  const bool is_path =
      key == "token-file" || key == "tls-ca" || key == "tls-cert" || key == "tls-key";
  const auto home = environment("HOME");
  return is_path && home.has_value() && absl::StartsWith(value, "~/")
             ? absl::StrCat(*home, value.substr(1))
             : value;
}

}  // namespace

std::string UserConfigPath(const Environment& environment) {
  const auto config = environment("XDG_CONFIG_HOME");
  if (config.has_value() && !config->empty()) return absl::StrCat(*config, "/annulus/config.yaml");
  const auto home = environment("HOME");
  return home.has_value() && !home->empty() ? absl::StrCat(*home, "/.config/annulus/config.yaml")
                                            : "";
}

bool IsOutOfReach(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  return !std::filesystem::status_known(status) && error == std::errc::permission_denied;
}

absl::StatusOr<std::vector<UserSetting>> ReadUserConfig(const std::string& path,
                                                        const std::string& profile) {
  if (profile.empty() && IsOutOfReach(path)) return std::vector<UserSetting>();
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  const bool is_there = !path.empty() && kind != std::filesystem::file_type::not_found;
  std::string text;
  if (is_there) {
    if (kind != std::filesystem::file_type::regular) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, error ? absl::StrCat(": cannot be read: ", error.message())
                                   : " is not a regular file; make it one, or remove it"));
    }
    absl::StatusOr<std::string> loaded = LoadFile(path, kLongestConfig);
    if (!loaded.ok()) return loaded.status();
    text = *std::move(loaded);
    if (FindInvalidUtf8(text).has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is not UTF-8 text"));
    }
  }
  try {
    return Interpret(path.empty() ? "~/.config/annulus/config.yaml (HOME is not set)" : path,
                     YAML::Load(text), profile);
  } catch (const YAML::Exception& failure) {  // the library's way to report any malformed file
    return WrongAt(path, failure.mark.line + 1, absl::StrCat("not valid YAML: ", failure.msg));
  }
}

absl::StatusOr<std::vector<std::string>> WithSettings(const std::string& path,
                                                      const std::vector<UserSetting>& settings,
                                                      const CLI::App& app,
                                                      const Environment& environment,
                                                      std::vector<std::string> arguments) {
  std::vector<std::string> known;
  CollectNames(app, known);
  const CLI::App& command = ChosenCommand(app);
  std::vector<std::string> flags;
  for (const UserSetting& setting : settings) {
    if (std::count(known.begin(), known.end(), setting.key) == 0) {
      const std::string meant = MeantWord(setting.key, known);
      return WrongAt(
          path, setting.line,
          absl::StrCat("unknown key: ", setting.key,
                       meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?")));
    }
    const CLI::Option* option = command.get_option_no_throw(absl::StrCat("--", setting.key));
    if (option == nullptr || IsDecided(command, *option, setting.key, environment)) continue;
    const bool is_flag = option->get_items_expected_max() == 0;
    const bool many = option->get_items_expected_max() > 1;
    if (setting.values.size() > 1 && !many) {
      return WrongAt(path, setting.line, absl::StrCat(setting.key, " takes one value, not a list"));
    }
    if (is_flag && setting.values[0] != "true" && setting.values[0] != "false") {
      return WrongAt(
          path, setting.line,
          absl::StrCat(setting.key, " is ", setting.values[0], "; it must be true or false"));
    }
    for (const std::string& value : setting.values) {
      flags.push_back(
          absl::StrCat("--", setting.key, "=", ExpandHome(setting.key, value, environment)));
    }
  }
  // Insert before "--": everything after it is an argument.
  const auto end_of_flags = std::find(arguments.begin(), arguments.end(), "--");
  arguments.insert(end_of_flags, flags.begin(), flags.end());
  return arguments;
}

}  // namespace annulus::client
