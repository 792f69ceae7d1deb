#include "engine/text/template/template_directory.h"

#include <algorithm>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json_node.h"
#include "engine/text/answer/answer_format.h"
#include "engine/text/text_file.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr char kConfigFile[] = "tokenizer_config.json";
constexpr char kTokensFile[] = "special_tokens_map.json";
constexpr char kTemplateFile[] = "chat_template.jinja";
constexpr char kTemplateFolder[] = "chat_templates";
constexpr char kDefault[] = "default";
constexpr char kToolUse[] = "tool_use";
constexpr size_t kMostTemplates = 64;
constexpr const char* kTokenKeys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                      "pad_token", "cls_token", "mask_token"};

using Sources = std::map<std::string, std::pair<std::string, std::string>>;  // name: file, text

// A JSON file; nothing where it is absent.
absl::StatusOr<std::optional<JsonDocument>> ReadJson(const std::filesystem::path& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (absl::IsNotFound(text.status())) return std::optional<JsonDocument>();
  ANNULUS_RETURN_IF_ERROR(text.status());
  ANNULUS_ASSIGN_OR_RETURN(JsonDocument document, JsonDocument::Parse(*text, path.string()));
  return std::optional<JsonDocument>(std::move(document));
}

absl::Status AddFile(const std::filesystem::path& directory, const std::string& file,
                     const std::string& name, Sources& sources) {
  absl::StatusOr<std::string> text = ReadTextFile(directory / file);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(text.status());
  sources.emplace(name, std::make_pair(file, *std::move(text)));
  return absl::OkStatus();
}

absl::Status AddFiles(const std::filesystem::path& directory, Sources& sources) {
  ANNULUS_RETURN_IF_ERROR(AddFile(directory, kTemplateFile, kDefault, sources));
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory / kTemplateFolder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::filesystem::path path = entry->path();
    if (path.extension() == ".jinja") names.push_back(path.stem().string());
    if (names.size() > kMostTemplates) {
      return absl::InvalidArgumentError(absl::StrCat((directory / kTemplateFolder).string(),
                                                     ": more than ", kMostTemplates, " templates"));
    }
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    ANNULUS_RETURN_IF_ERROR(
        AddFile(directory, absl::StrCat(kTemplateFolder, "/", name, ".jinja"), name, sources));
  }
  return absl::OkStatus();
}

// The key chat_template of tokenizer_config.json.
absl::Status AddMember(const JsonNode& config, Sources& sources) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode member, config.Find("chat_template"));
  if (member.is_null()) return absl::OkStatus();
  const auto add = [&sources](const std::string& name, absl::string_view text) {
    const std::string file = absl::StrCat(kConfigFile, " (chat_template \"", name, "\")");
    sources.insert_or_assign(name, std::make_pair(file, std::string(text)));
  };
  if (member.is_array()) {
    return member.ForEachElement([&](const JsonNode& one) -> absl::Status {
      ANNULUS_ASSIGN_OR_RETURN(const JsonNode name_node, one.Require("name"));
      ANNULUS_ASSIGN_OR_RETURN(const absl::string_view name, name_node.String());
      ANNULUS_ASSIGN_OR_RETURN(const JsonNode text_node, one.Require("template"));
      ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, text_node.String());
      add(std::string(name), text);
      return sources.size() <= kMostTemplates
                 ? absl::OkStatus()
                 : member.Error(absl::StrCat("more than ", kMostTemplates, " templates"));
    });
  }
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, member.String());
  add(kDefault, text);
  return absl::OkStatus();
}

// A token as a string or as an object with the member "content"; nothing where it is null.
absl::StatusOr<std::optional<std::string>> Token(const JsonNode& config, const char* key) {
  ANNULUS_ASSIGN_OR_RETURN(JsonNode node, config.Find(key));
  if (node.is_object()) {
    ANNULUS_ASSIGN_OR_RETURN(node, node.Require("content"));
  }
  if (node.is_null()) return std::optional<std::string>();
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view token, node.String());
  return std::optional<std::string>(std::string(token));
}

}  // namespace

absl::Status TemplateDirectory::Add(
    const std::map<std::string, std::pair<std::string, std::string>>& sources,
    const std::string& place) {
  for (const auto& [name, source] : sources) {
    absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source.second, source.first);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(place, parsed.status().message()));
    }
    templates_.emplace(name, *std::move(parsed));
  }
  for (const char* name : {kDefault, kToolUse}) {
    const auto source = sources.find(name);
    if (source == sources.end()) continue;
    answer_family_ = std::string(AnswerFormat::Recognise(source->second.second));
  }
  return absl::OkStatus();
}

absl::StatusOr<TemplateDirectory> TemplateDirectory::Parse(absl::string_view config,
                                                           const std::string& file_name) {
  TemplateDirectory directory;
  ANNULUS_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(config, file_name));
  Sources sources;
  ANNULUS_RETURN_IF_ERROR(AddMember(document.root(), sources));
  ANNULUS_RETURN_IF_ERROR(directory.Add(sources, absl::StrCat(file_name, ", ")));
  for (const char* key : kTokenKeys) {
    ANNULUS_ASSIGN_OR_RETURN(std::optional<std::string> token, Token(document.root(), key));
    if (token.has_value()) directory.special_tokens_.emplace_back(key, *std::move(token));
  }
  return directory;
}

absl::StatusOr<TemplateDirectory> TemplateDirectory::Load(
    const std::filesystem::path& model_directory, absl::string_view config) {
  TemplateDirectory directory;
  ANNULUS_ASSIGN_OR_RETURN(const JsonDocument document,
                           JsonDocument::Parse(config, (model_directory / kConfigFile).string()));
  Sources sources;
  ANNULUS_RETURN_IF_ERROR(AddFiles(model_directory, sources));
  if (sources.empty()) {
    ANNULUS_RETURN_IF_ERROR(AddMember(document.root(), sources));
  }
  ANNULUS_RETURN_IF_ERROR(directory.Add(sources, absl::StrCat(model_directory.string(), "/")));
  if (sources.empty()) return directory;
  ANNULUS_ASSIGN_OR_RETURN(const std::optional<JsonDocument> tokens,
                           ReadJson(model_directory / kTokensFile));
  for (const char* key : kTokenKeys) {
    ANNULUS_ASSIGN_OR_RETURN(std::optional<std::string> token, Token(document.root(), key));
    if (!token.has_value() && tokens.has_value()) {
      ANNULUS_ASSIGN_OR_RETURN(token, Token(tokens->root(), key));
    }
    if (token.has_value()) directory.special_tokens_.emplace_back(key, *token);
  }
  return directory;
}

absl::StatusOr<const ChatTemplate*> TemplateDirectory::Select(bool with_tools) const {
  auto found = with_tools ? templates_.find(kToolUse) : templates_.end();
  if (found == templates_.end()) found = templates_.find(kDefault);
  if (found != templates_.end()) return &found->second;
  return absl::FailedPreconditionError(
      absl::StrCat("the model has no chat template named \"default\"; it has: ",
                   absl::StrJoin(templates_, ", ", [](std::string* out, const auto& entry) {
                     absl::StrAppend(out, entry.first);
                   })));
}

}  // namespace annulus
