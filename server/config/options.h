#ifndef ANNULUS_SERVER_CONFIG_OPTIONS_H_
#define ANNULUS_SERVER_CONFIG_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/config/server_config.h"

namespace annulus {

// One thing that can be set. The same row drives the flag, the variable, the YAML key, the default,
// --help and the error messages.
struct Option {
  const char* name;           // "kv-memory": the flag without its dashes
  const char* value_name;     // "SIZE", for --help
  const char* default_value;  // text that `parse` accepts
  const char* help;           // one sentence
  // INVALID_ARGUMENT quotes the text and says what is allowed.
  absl::Status (*parse)(absl::string_view text, ServerConfig& config);
};

// Every option, in the order of --help.
const std::vector<Option>& Options();

std::string YamlKey(const Option& option);       // "kv_memory"
std::string VariableName(const Option& option);  // "ANNULUS_KV_MEMORY"

// The whole text of --help.
std::string HelpText();

}  // namespace annulus

#endif  // ANNULUS_SERVER_CONFIG_OPTIONS_H_
