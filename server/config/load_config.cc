#include "server/config/load_config.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "server/config/cluster_options.h"
#include "server/config/exposure.h"
#include "server/config/loopback.h"
#include "server/config/options.h"
#include "server/config/plain_file.h"
#include "server/config/yaml_file.h"

namespace annulus::server {
namespace {

constexpr char kVariablePrefix[] = "ANNULUS_";
constexpr char kConfigVariable[] = "ANNULUS_CONFIG";

// The text given for one option, and its source for messages.
struct Setting {
  std::string source;
  const Option* option = nullptr;
  std::string value;
};

struct Flags {
  Action action = Action::kServe;
  std::optional<std::string> config_file;
  std::vector<Setting> settings;
};

const Option* FindOption(absl::string_view name, std::string (*spelling)(const Option&)) {
  for (const Option& option : Options()) {
    if (spelling(option) == name) return &option;
  }
  return nullptr;
}

std::string FlagName(const Option& option) { return absl::StrCat("--", option.name); }

std::vector<std::string> AllNames(std::string (*spelling)(const Option&),
                                  std::vector<std::string> others) {
  for (const Option& option : Options()) others.push_back(spelling(option));
  return others;
}

absl::Status UnknownName(absl::string_view kind, absl::string_view name,
                         const std::vector<std::string>& known) {
  return absl::InvalidArgumentError(absl::StrCat("unknown ", kind, " \"", name.substr(0, 64),
                                                 "\"; the nearest known one is \"",
                                                 NearestName(name, known), "\""));
}

bool ParseAction(absl::string_view argument, Action& action) {
  if (argument == "--help" || argument == "-h") {
    action = Action::kHelp;
  } else if (argument == "--man") {
    action = Action::kManual;
  } else if (argument == "--version") {
    action = Action::kVersion;
  } else if (argument == "--check") {
    action = Action::kCheck;
  } else if (argument == "--plan") {
    action = Action::kPlan;
  } else if (argument == "--convert") {
    action = Action::kConvert;
  } else if (argument == "--print-config") {
    action = Action::kPrintConfig;
  } else if (argument == "--doctor") {
    action = Action::kDoctor;
  } else if (argument == "--hash-token") {
    action = Action::kHashToken;
  } else {
    return false;
  }
  return true;
}

// Whether the action needs no configuration.
bool PrintsOnly(Action action) {
  return action == Action::kHelp || action == Action::kManual || action == Action::kVersion;
}

// Accepts "--name value" and "--name=value". --help, --man and --version end the reading.
absl::StatusOr<Flags> ParseFlags(const std::vector<std::string>& arguments) {
  Flags flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (ParseAction(argument, flags.action)) {
      if (PrintsOnly(flags.action)) return flags;
      continue;
    }
    if (argument == "-v") {
      flags.settings.push_back({argument, FindOption("--log-level", FlagName), "debug"});
      continue;
    }
    if (!absl::StartsWith(argument, "--")) {
      return absl::InvalidArgumentError(absl::StrCat("unexpected argument \"", argument,
                                                     "\"; every argument is a flag: see --help"));
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const Option* option = FindOption(name, FlagName);
    if (option == nullptr && name != "--config") {
      return UnknownName(
          "flag", name,
          AllNames(FlagName, {"--config", "--check", "--plan", "--convert", "--print-config",
                              "--hash-token", "--doctor", "--help", "--man", "--version"}));
    }
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (option != nullptr && option->bare &&
               (i + 1 == arguments.size() || absl::StartsWith(arguments[i + 1], "-"))) {
      value = "on";
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " needs a value: ", name, " ", option == nullptr ? "FILE" : option->value_name));
    }
    if (option == nullptr) {
      flags.config_file = value;
    } else {
      flags.settings.push_back({name, option, value});
    }
  }
  return flags;
}

// Kubernetes injects NAME_SERVICE_HOST, NAME_PORT_50051_TCP and their like for every service.
bool IsKubernetesLink(absl::string_view name, absl::string_view value) {
  return absl::StrContains(name, "_SERVICE_HOST") || absl::StrContains(name, "_SERVICE_PORT") ||
         absl::StrContains(name, "_PORT_") ||
         (absl::EndsWith(name, "_PORT") && absl::StrContains(value, "://"));
}

bool BelongsToAnotherProgram(absl::string_view name, absl::string_view value) {
  // Those of the command line, which no option may be named after, and of the tests.
  static constexpr std::array<absl::string_view, 4> kOthers = {
      "ANNULUS_SERVER", "ANNULUS_TOKEN", "ANNULUS_PROFILE", "ANNULUS_TEST_DATA"};
  return std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end() ||
         IsKubernetesLink(name, value);
}

absl::StatusOr<std::vector<Setting>> ParseVariables(const Environment& environment) {
  std::vector<Setting> settings;
  for (const auto& [name, value] : environment) {
    if (name == kConfigVariable || BelongsToAnotherProgram(name, value)) continue;
    const Option* option = FindOption(name, VariableName);
    if (option == nullptr) {
      return UnknownName("variable", name, AllNames(VariableName, {kConfigVariable}));
    }
    settings.push_back({name, option, value});
  }
  return settings;
}

absl::StatusOr<std::vector<Setting>> ParseFile(const std::string& path) {
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<YamlEntry> entries, ReadYamlFile(path));
  std::vector<Setting> settings;
  std::set<std::string> seen;
  for (const YamlEntry& entry : entries) {
    const std::string where = absl::StrCat(path, ":", entry.line, ": ");
    const Option* option = FindOption(entry.key, YamlKey);
    if (option == nullptr) {
      const absl::Status status = UnknownName("key", entry.key, AllNames(YamlKey, {}));
      return absl::InvalidArgumentError(absl::StrCat(where, status.message()));
    }
    if (!seen.insert(entry.key).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, entry.key, " is given twice; remove one"));
    }
    settings.push_back({absl::StrCat(where, entry.key), option, entry.value});
  }
  return settings;
}

// Parses the settings into `config`, in order, so the last setting of an option wins; also in
// `texts`, unless null.
absl::Status Apply(const std::vector<Setting>& settings, ServerConfig& config, OptionTexts* texts) {
  for (const Setting& setting : settings) {
    if (texts != nullptr) (*texts)[setting.option] = setting.value;
    const absl::Status status = setting.option->value.parse(setting.value, config);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(setting.source, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

// "/models/llama-3/" -> "llama-3"; "builtin:recall" -> "recall".
std::string DefaultServedName(absl::string_view model) {
  if (absl::ConsumePrefix(&model, "builtin:")) return std::string(model);
  while (model.size() > 1 && absl::ConsumeSuffix(&model, "/")) {
  }
  const size_t slash = model.rfind('/');
  const std::string last(slash == absl::string_view::npos ? model : model.substr(slash + 1));
  return last.empty() || last == "." || last == ".." ? "model" : last;
}

// Checks combinations of options, and that files which are written later can be.
absl::Status CheckTogether(Action action, const ServerConfig& config) {
  if (action != Action::kConvert && !config.convert_out.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("out is ", config.convert_out,
                     ", but only --convert uses it; add --convert, or remove it"));
  }
  if (action != Action::kPlan && config.device == DeviceChoice::kNamed) {
    return absl::InvalidArgumentError(
        absl::StrCat("device is \"", config.planned_gpu,
                     "\", which only --plan accepts; allowed here are cpu, cuda and auto"));
  }
  if (action != Action::kPlan && config.planned_memory_bytes > 0) {
    return absl::InvalidArgumentError(
        "memory is set, but only --plan uses it; add --plan, or set kv-memory to limit keys and "
        "values");
  }
  const bool certificate = !config.tls_certificate.empty();
  if (certificate != !config.tls_key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(certificate ? "tls-certificate is set without tls-key"
                                 : "tls-key is set without tls-certificate",
                     "; set both, or neither for a server without TLS"));
  }
  if (!certificate && !config.tls_client_ca.empty()) {
    return absl::InvalidArgumentError(
        "tls-client-ca is set without TLS; set tls-certificate and tls-key, or remove it");
  }
  if (!certificate && config.metrics_tls) {
    return absl::InvalidArgumentError(
        "metrics-tls is on without TLS; set tls-certificate and tls-key, or remove it");
  }
  if (!config.auth_token_file.empty() && !config.tokens_file.empty()) {
    return absl::InvalidArgumentError(
        "auth-token-file and tokens-file are both set; put the hash of that token into the tokens "
        "file (annulusd --hash-token), and remove auth-token-file");
  }
  for (const auto& [option, file] : {std::pair("auth-token-file", config.auth_token_file),
                                     std::pair("admin-token-file", config.admin_token_file),
                                     std::pair("tokens-file", config.tokens_file)}) {
    if (file.empty() || certificate || config.insecure || IsLoopbackAddress(config.listen))
      continue;
    return absl::InvalidArgumentError(
        absl::StrCat(option, " without TLS would send the token unencrypted to ", config.listen,
                     "; set tls-certificate and tls-key, listen on 127.0.0.1, or set --insecure if "
                     "you trust the network"));
  }
  if (action == Action::kServe) ANNULUS_RETURN_IF_ERROR(CheckExposure(config));
  if (config.engine.profile.empty()) return absl::OkStatus();
  return CheckFileToWrite("ring-profile", config.engine.profile);
}

// Both choose the kernels of the one device that serves.
absl::Status CheckKernels(const OptionTexts& texts) {
  std::vector<std::string> chosen;
  for (const char* flag : {"--cpu-isa", "--gpu-kernels"}) {
    const Option& option = *FindOption(flag, FlagName);
    const std::string text = TextOf(texts, option);
    if (text != option.default_value) chosen.push_back(absl::StrCat(option.name, " is ", text));
  }
  if (chosen.size() < 2) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      chosen[0], " and ", chosen[1],
      ", but a daemon computes either on CPUs or on GPUs; set one of them to auto, or remove it"));
}

}  // namespace

Environment ReadEnvironment() {
  Environment variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string::npos || !absl::StartsWith(text, kVariablePrefix)) continue;
    variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

absl::StatusOr<CommandLine> LoadConfig(const std::vector<std::string>& arguments,
                                       const Environment& environment) {
  ANNULUS_ASSIGN_OR_RETURN(const Flags flags, ParseFlags(arguments));
  CommandLine command_line;
  command_line.action = flags.action;
  if (PrintsOnly(flags.action)) return command_line;

  ServerConfig& config = command_line.config;
  std::vector<Setting> defaults;
  for (const Option& option : Options()) {
    defaults.push_back({absl::StrCat("default of ", option.name), &option, option.default_value});
  }
  ANNULUS_RETURN_IF_ERROR(Apply(defaults, config, nullptr));
  OptionTexts& texts = command_line.texts;
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<Setting> variables, ParseVariables(environment));
  std::optional<std::string> file = flags.config_file;
  for (const auto& [name, value] : environment) {
    if (!file && name == kConfigVariable) file = value;
  }
  if (file) {
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<Setting> settings, ParseFile(*file));
    ANNULUS_RETURN_IF_ERROR(Apply(settings, config, &texts));
  }
  ANNULUS_RETURN_IF_ERROR(Apply(variables, config, &texts));
  ANNULUS_RETURN_IF_ERROR(Apply(flags.settings, config, &texts));
  ANNULUS_RETURN_IF_ERROR(CheckTogether(flags.action, config));
  ANNULUS_RETURN_IF_ERROR(CheckKernels(texts));
  if (flags.action == Action::kServe) ANNULUS_RETURN_IF_ERROR(CheckCluster(config, texts));
  LeaveOutUnsetMetrics(texts, config);
  if (config.served_model_name.empty()) {
    config.served_model_name = DefaultServedName(config.engine.model);
  }
  return command_line;
}

}  // namespace annulus::server
