#ifndef ANNULUS_CLIENT_CLI_PRESET_H_
#define ANNULUS_CLIENT_CLI_PRESET_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/session.h"

namespace annulus {

// What `summarize` and `extract` ask. The texts may hold {what}.
struct Preset {
  std::string system;    // message before each question; may be empty
  std::string question;  // about documents that fit the context
  std::string part;      // about each part of longer ones
  std::string merge;  // about the answers to the parts; empty: they follow each other as they are
  int32_t max_tokens = 0;
};

// A preset as a file that people read, copy and edit.
struct PresetText {
  std::string name;
  std::string where;  // its file, or "built in"
  std::string text;
};

// All of `command`: the built-in ones and ~/.config/annulus/presets/COMMAND-NAME.yaml, which take
// the place of built-in ones of that name.
std::vector<PresetText> ListPresets(absl::string_view command, const Environment& environment);

// One of them, or the file that `name` is the path of. NOT_FOUND tells which there are.
absl::StatusOr<PresetText> FindPreset(absl::string_view command, const std::string& name,
                                      const Environment& environment);

// Reads the text. INVALID_ARGUMENT, with where and line, for a wrong one.
absl::StatusOr<Preset> ParsePreset(const PresetText& preset);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_PRESET_H_
