#ifndef ANNULUS_SERVER_CONFIG_OPTIONS_H_
#define ANNULUS_SERVER_CONFIG_OPTIONS_H_

#include <map>
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
  bool bare = false;  // the flag alone, without "on" or "off" behind it, means on
  bool reloads =
      false;  // SIGHUP puts a new value into effect (OptionReload); others need a restart
};

// Every option, in the order of --help.
const std::vector<Option>& Options();

// Texts of the options that were set, by a flag, a variable or the file.
using OptionTexts = std::map<const Option*, std::string>;

// What is in effect for `option`: its text in `texts`, else its default.
std::string TextOf(const OptionTexts& texts, const Option& option);

// The options whose texts in effect differ, in the order of --help.
std::vector<const Option*> DifferingOptions(const OptionTexts& one, const OptionTexts& other);

std::string YamlKey(const Option& option);       // "kv_memory"
std::string VariableName(const Option& option);  // "ANNULUS_KV_MEMORY"

// What it does, and whether SIGHUP reads it again.
std::string Explanation(const Option& option);

// The whole text of --help.
std::string HelpText();

// annulusd(8) in the language of man(7), made of the same.
std::string ManualText(absl::string_view version);

// A YAML file with every option, its help and its value: those in `texts` as they are set, the
// others behind a '#', with their defaults. LoadConfig reads it back.
std::string ConfigText(const OptionTexts& texts);

// The words of `text` in lines of at most 98 columns that begin with `first` (the first line) and
// `below`; each ends in a newline.
std::string Paragraph(absl::string_view text, absl::string_view first, absl::string_view below);

}  // namespace annulus

#endif  // ANNULUS_SERVER_CONFIG_OPTIONS_H_
