#ifndef ANNULUS_CLIENT_CLI_ASK_PRESET_H_
#define ANNULUS_CLIENT_CLI_ASK_PRESET_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/session.h"

namespace annulus::client {

// The questions of `summarize` and `extract`. In questions, {what} stands for the text of --what.
struct Preset {
  std::string system;      // system message before each question; may be empty
  std::string question;    // asked about documents that fit the context
  std::string part;        // asked about each part of longer documents
  std::string merge;       // asked about the answers to the parts; empty: concatenate the answers
  int32_t max_tokens = 0;  // of each answer, unless --max-tokens is given; 0: the server's default
};

// The YAML text of a preset, which users can copy and edit.
struct PresetText {
  std::string name;
  std::string where;  // its file, or "built in"
  std::string text;
};

// Lists the presets of `command`: the built-in ones and the files
// ~/.config/annulus/presets/COMMAND-NAME.yaml, which override built-in ones of the same name. Skips
// files that cannot be read.
std::vector<PresetText> ListPresets(absl::string_view command, const Environment& environment);

// Finds the preset `name`; if there is none, reads the file with the path `name`. NOT_FOUND, with
// the presets that exist, if there is neither; errors of LoadFile if the file cannot be read.
absl::StatusOr<PresetText> FindPreset(absl::string_view command, const std::string& name,
                                      const Environment& environment);

// Parses a preset. INVALID_ARGUMENT, with its file and line, if the text is wrong.
absl::StatusOr<Preset> ParsePreset(const PresetText& preset);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_ASK_PRESET_H_
