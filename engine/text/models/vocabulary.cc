#include "engine/text/models/vocabulary.h"

#include "absl/strings/str_cat.h"
#include "engine/text/utf8.h"

namespace annulus {
namespace {

std::string Quoted(absl::string_view token) {
  return token.size() <= 80
             ? absl::StrCat("\"", token, "\"")
             : absl::StrCat("\"", TruncateUtf8(token, 80), "\"... of ", token.size(), " bytes");
}

}  // namespace

absl::Status Vocabulary::Add(absl::string_view token, int64_t id) {
  if (token.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the token with id ", id, " is empty"));
  }
  if (id < 0 || id >= kMaxSize) {
    return absl::InvalidArgumentError(absl::StrCat("the token ", Quoted(token), " has the id ", id,
                                                   ", outside 0..", kMaxSize - 1));
  }
  if (const std::optional<int32_t> known = Find(token); known.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the token ", Quoted(token), " has two ids, ", *known, " and ", id));
  }
  const auto index = static_cast<size_t>(id);
  if (index >= by_id_.size()) by_id_.resize(index + 1, nullptr);
  if (by_id_[index] != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("two tokens have the id ", id, ": ",
                                                   Quoted(*by_id_[index]), " and ", Quoted(token)));
  }
  tokens_.emplace_back(token);
  by_id_[index] = &tokens_.back();
  ids_.emplace(tokens_.back(), static_cast<int32_t>(id));
  return absl::OkStatus();
}

std::optional<int32_t> Vocabulary::Find(absl::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<absl::string_view> Vocabulary::Token(int32_t id) const {
  if (id < 0 || id >= size() || by_id_[static_cast<size_t>(id)] == nullptr) return std::nullopt;
  return absl::string_view(*by_id_[static_cast<size_t>(id)]);
}

}  // namespace annulus
