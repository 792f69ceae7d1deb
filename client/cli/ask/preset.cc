#include "client/cli/ask/preset.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cli/line/user_config.h"
#include "client/format/text.h"
#include "client/read/files.h"

namespace annulus::client {
namespace {

constexpr int64_t kLongestPreset = 1 << 20;

struct BuiltIn {
  const char* command;
  const char* name;
  const char* text;
};

constexpr BuiltIn kBuiltIn[] = {
    {"summarize", "default",
     R"(# For `annulus summarize`. A copy in ~/.config/annulus/presets/summarize-NAME.yaml
# is used by --preset NAME.
system: You summarize documents. You keep to what they say and add nothing.
# About documents that fit the model's context:
question: |
  Summarize the documents above in a few paragraphs. Keep names, numbers and conclusions.
# About each part of longer ones:
part: |
  The text above is one part of a longer one. Summarize this part in one or two paragraphs. Keep
  names, numbers and conclusions.
# About the answers to the parts:
merge: |
  The text above holds summaries of the parts of one text, in order. Write one summary of the whole
  from them, in a few paragraphs, without repetition.
max_tokens: 512
)"},
    {"summarize", "brief", R"(# For `annulus summarize --preset brief`.
system: You summarize documents. You keep to what they say and add nothing.
question: Summarize the documents above in two or three sentences.
part: |
  The text above is one part of a longer one. Say in three or four sentences what this part says.
merge: |
  The text above holds summaries of the parts of one text, in order. Summarize the whole in two or
  three sentences.
max_tokens: 200
)"},
    {"summarize", "bullets", R"(# For `annulus summarize --preset bullets`.
system: You summarize documents. You keep to what they say and add nothing.
question: List the main points of the documents above, at most ten, one on each line after "- ".
part: |
  The text above is one part of a longer one. List its main points, one on each line after "- ".
merge: |
  The text above holds the main points of the parts of one text, in order. List the ten that matter
  most for the whole, one on each line after "- ", without repetition.
max_tokens: 400
)"},
    {"extract", "default", R"(# For `annulus extract`; {what} is what --what asks for.
system: You copy facts out of documents. You keep to what they say and add nothing.
question: |
  Find in the documents above: {what}. Write each find on a line of its own after "- ", in the words
  of the text. Write "none" if there is none.
part: |
  The text above is one part of a longer one. Find in it: {what}. Write each find on a line of its
  own after "- ", in the words of the text. Write "none" if there is none.
# Empty: the finds of the parts follow each other.
merge: ""
max_tokens: 1024
)"},
    {"extract", "json", R"(# For `annulus extract --preset json`: a JSON object on each line.
system: You copy facts out of documents. You keep to what they say and add nothing.
question: |
  Find in the documents above: {what}. Write each find as a JSON object on a line of its own, with
  one key for each thing that is looked for. Write nothing else, and nothing at all if there is none.
part: |
  The text above is one part of a longer one. Find in it: {what}. Write each find as a JSON object on
  a line of its own, with one key for each thing that is looked for. Write nothing else, and nothing
  at all if there is none.
merge: ""
max_tokens: 1024
)"},
};

// The folder of the user's presets; empty if there is no home directory.
std::string PresetFolder(const Environment& environment) {
  const std::filesystem::path config = UserConfigPath(environment);
  return config.empty() ? "" : (config.parent_path() / "presets").string();
}

absl::Status WrongPreset(const PresetText& preset, int line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("preset ", preset.name, " (", preset.where,
                                                 line > 0 ? absl::StrCat(", line ", line) : "",
                                                 "): ", what));
}

absl::Status ReadPreset(const PresetText& text, const YAML::Node& root, Preset* preset) {
  if (!root.IsMap()) {
    return WrongPreset(text, 0, "every line must be like \"question: Who?\"");
  }
  const std::map<std::string, std::string*> fields = {{"system", &preset->system},
                                                      {"question", &preset->question},
                                                      {"part", &preset->part},
                                                      {"merge", &preset->merge}};
  std::vector<std::string> known = {"max_tokens"};
  for (const auto& [key, field] : fields) known.push_back(key);
  for (const auto& pair : root) {
    const int line = pair.first.Mark().line + 1;
    if (!pair.first.IsScalar() || !pair.second.IsScalar()) {
      return WrongPreset(text, line, "each key needs a plain text, like \"question: Who?\"");
    }
    const std::string& key = pair.first.Scalar();
    const auto field = fields.find(key);
    if (field != fields.end()) {
      *field->second = std::string(absl::StripAsciiWhitespace(pair.second.Scalar()));
    } else if (key != "max_tokens") {
      const std::string meant = MeantWord(key, known);
      return WrongPreset(
          text, line,
          absl::StrCat("unknown key: ", key,
                       meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?")));
    } else if (!absl::SimpleAtoi(pair.second.Scalar(), &preset->max_tokens) ||
               preset->max_tokens < 1) {
      return WrongPreset(text, line,
                         absl::StrCat("max_tokens is ", pair.second.Scalar(),
                                      "; it must be a whole number above 0"));
    }
  }
  if (preset->question.empty()) {
    return WrongPreset(text, 0, "the key question is missing; it says what to ask");
  }
  if (preset->part.empty()) {
    return WrongPreset(text, 0, "the key part is missing; it says what to ask about each part");
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<PresetText> ListPresets(absl::string_view command, const Environment& environment) {
  std::map<std::string, PresetText> presets;
  for (const BuiltIn& preset : kBuiltIn) {
    if (preset.command == command) {
      presets[preset.name] = {preset.name, "built in", preset.text};
    }
  }
  std::error_code error;
  const std::string folder = PresetFolder(environment);
  for (std::filesystem::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    const std::string file_name = file->path().filename().string();
    absl::string_view name = file_name;
    std::error_code ignored;
    if (!absl::ConsumePrefix(&name, absl::StrCat(command, "-")) ||
        !absl::ConsumeSuffix(&name, ".yaml") || !file->is_regular_file(ignored)) {
      continue;
    }
    const absl::StatusOr<std::string> text = LoadFile(file->path().string(), kLongestPreset);
    if (!text.ok()) continue;
    presets[std::string(name)] = {std::string(name), file->path().string(), *text};
  }
  std::vector<PresetText> list;
  for (auto& [name, preset] : presets) list.push_back(std::move(preset));
  return list;
}

absl::StatusOr<PresetText> FindPreset(absl::string_view command, const std::string& name,
                                      const Environment& environment) {
  std::vector<std::string> names;
  for (PresetText& preset : ListPresets(command, environment)) {
    if (preset.name == name) return std::move(preset);
    names.push_back(preset.name);
  }
  std::error_code error;
  if (std::filesystem::is_regular_file(name, error)) {
    absl::StatusOr<std::string> text = LoadFile(name, kLongestPreset);
    if (!text.ok()) return text.status();
    return PresetText{name, name, *std::move(text)};
  }
  return absl::NotFoundError(
      absl::StrCat("no preset ", name, " of ", command,
                   ", and there is no file of that name; presets: ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<Preset> ParsePreset(const PresetText& text) {
  Preset preset;
  if (FindInvalidUtf8(text.text).has_value()) return WrongPreset(text, 0, "it is not UTF-8 text");
  try {
    absl::Status read = ReadPreset(text, YAML::Load(text.text), &preset);
    if (!read.ok()) return read;
  } catch (const YAML::Exception& failure) {  // the library's way to report any malformed file
    return WrongPreset(text, failure.mark.line + 1, absl::StrCat("not valid YAML: ", failure.msg));
  }
  return preset;
}

}  // namespace annulus::client
