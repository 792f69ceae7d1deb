#ifndef ANNULUS_SERVER_CONFIG_OPTIONS_H_
#define ANNULUS_SERVER_CONFIG_OPTIONS_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/config/server_config.h"

namespace annulus::server {

// Which values an option has, and where they go.
struct OptionValue {
  // Parses the text into `config`. INVALID_ARGUMENT quotes the text and says what is allowed.
  std::function<absl::Status(absl::string_view text, ServerConfig& config)> parse;
  std::string range = {};  // "1 to 64"; empty: `value_name` and `help` say what is allowed
};

// One option. The same row defines its flag, variable, YAML key, default, --help and error
// messages.
struct Option {
  const char* name;           // "kv-memory": the flag without its dashes
  const char* value_name;     // "SIZE", for --help
  std::string default_value;  // text that `value` accepts
  const char* help;           // one sentence
  OptionValue value;
  bool bare = false;  // whether the flag alone, without a value after it, means "on"
  // Whether SIGHUP puts a new value into effect (OptionReload). Other options need a restart.
  bool reloads = false;
};

// Every option, in the order of --help.
const std::vector<Option>& Options();

// The texts of options that were set by a flag, a variable or the file.
using OptionTexts = std::map<const Option*, std::string>;

// The text in effect for `option`: its text in `texts`, else its default.
std::string TextOf(const OptionTexts& texts, const Option& option);

// The options for which different texts are in effect, in the order of --help.
std::vector<const Option*> DifferingOptions(const OptionTexts& one, const OptionTexts& other);

std::string YamlKey(const Option& option);       // "kv_memory"
std::string VariableName(const Option& option);  // "ANNULUS_KV_MEMORY"

// The option's help, its range, and whether SIGHUP reads it again.
std::string Explanation(const Option& option);

// The whole text of --help.
std::string HelpText();

// The manual page annulusd(8) in man(7) format, generated from the option table.
std::string ManualText(absl::string_view version);

// A YAML file with the help and value of every option: options in `texts` with their values, the
// others commented out with their defaults. LoadConfig can read the file.
std::string ConfigText(const OptionTexts& texts);

// Wraps the words of `text` into lines of at most 98 columns. The first line begins with `first`,
// the others with `below`; each line ends in a newline.
std::string Paragraph(absl::string_view text, absl::string_view first, absl::string_view below);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CONFIG_OPTIONS_H_
