#include "engine/loading/turn_ends.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/model/families.h"

namespace annulus {
namespace {

// The id of the control token with exactly this text.
std::optional<int32_t> ControlToken(const Tokenizer& tokenizer, absl::string_view text,
                                    int32_t vocabulary) {
  const auto ids = tokenizer.Encode(text, /*add_special=*/false);
  if (!ids.ok() || ids->size() != 1 || ids->front() >= vocabulary) return std::nullopt;
  const auto own = tokenizer.Decode(*ids, /*skip_special=*/false);
  if (!tokenizer.IsControl(ids->front()) || !own.ok() || *own != text) return std::nullopt;
  return ids->front();
}

}  // namespace

void AddTurnEnds(const Tokenizer& tokenizer,
                 std::span<const std::pair<std::string, std::string>> special_tokens,
                 ModelConfig& config) {
  const Family& family = FamilyOf(config.model_type);
  std::vector<absl::string_view> texts(family.turn_ends.begin(), family.turn_ends.end());
  for (const auto& [key, text] : special_tokens) {
    if (key == "eos_token") texts.push_back(text);
  }
  std::vector<int32_t>& ends = config.eos_ids;
  for (const absl::string_view text : texts) {
    const auto id = ControlToken(tokenizer, text, config.vocabulary);
    if (id && std::find(ends.begin(), ends.end(), *id) == ends.end()) ends.push_back(*id);
  }
  for (const absl::string_view text : family.message_ends) {
    const auto id = ControlToken(tokenizer, text, config.vocabulary);
    if (id && std::any_of(ends.begin(), ends.end(), [&](int32_t end) { return end != *id; })) {
      std::erase(ends, *id);
    }
  }
}

}  // namespace annulus
