#include "engine/gguf/gguf_controls.h"

#include <algorithm>
#include <ctime>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "engine/text/stages/added_tokens.h"
#include "engine/text/stages/literal_set.h"
#include "engine/text/template/chat_template.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using nlohmann::json;

// Conversations that make a template write its text for each role. Some refuse a system message.
constexpr const char* kConversations[] = {
    R"([{"role": "system", "content": "a"}, {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c"}, {"role": "user", "content": "d"}])",
    R"([{"role": "user", "content": "b"}, {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d"}])",
    R"([{"role": "user", "content": "b"}])"};

constexpr RenderLimits kLimits = {.steps = 1'000'000, .output_bytes = size_t{1} << 20};

// Literals alone would not do: some templates write "<|" and "|>" around the role.
std::vector<std::string> TextsOf(absl::string_view source, const json& variables) {
  constexpr char kName[] = "chat_template";
  const absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source, kName);
  absl::StatusOr<std::vector<std::string>> literals = ChatTemplate::Literals(source, kName);
  if (!parsed.ok() || !literals.ok()) return {};
  std::vector<std::string> texts = *std::move(literals);
  for (const char* messages : kConversations) {
    json values = variables;
    values["messages"] = json::parse(messages);
    values["add_generation_prompt"] = true;
    absl::StatusOr<std::string> text = parsed->Render(values.dump(), std::tm{}, kLimits);
    if (text.ok()) texts.push_back(*std::move(text));
  }
  return texts;
}

}  // namespace

absl::StatusOr<std::vector<size_t>> FindWrittenControls(
    absl::string_view chat_template, const json& variables,
    std::span<const absl::string_view> tokens, const std::function<bool(size_t)>& is_candidate) {
  LiteralSet literals;
  std::vector<size_t> ids;
  absl::flat_hash_set<absl::string_view> seen;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!IsMarkup(tokens[id]) || !is_candidate(id) || !seen.insert(tokens[id]).second) continue;
    ANNULUS_RETURN_IF_ERROR(literals.Add(tokens[id]));
    ids.push_back(id);
  }
  literals.Build();
  if (ids.empty()) return ids;
  std::vector<bool> is_written(ids.size());
  for (const std::string& text : TextsOf(chat_template, variables)) {
    for (const LiteralSet::Match& match : literals.Find(text)) {
      is_written[static_cast<size_t>(match.index)] = true;
    }
  }
  std::vector<size_t> written;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (is_written[i]) written.push_back(ids[i]);
  }
  return written;
}

}  // namespace annulus
