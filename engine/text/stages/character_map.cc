#include "engine/text/stages/character_map.h"

#include "engine/text/utf8.h"

namespace annulus {
namespace {

uint32_t ReadWord(absl::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) { return uint32_t{static_cast<uint8_t>(bytes[at + i])}; };
  return byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
}

size_t Offset(uint32_t unit) { return size_t{unit >> 10} << ((unit & 1u << 9) >> 6); }

}  // namespace

std::optional<CharacterMap> CharacterMap::Parse(absl::string_view bytes) {
  if (bytes.size() < 4) return std::nullopt;
  const size_t trie_bytes = ReadWord(bytes, 0);
  bytes.remove_prefix(4);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > bytes.size()) return std::nullopt;
  CharacterMap map;
  for (size_t at = 0; at < trie_bytes; at += 4) map.units_.push_back(ReadWord(bytes, at));
  map.replacements_ = std::string(bytes.substr(trie_bytes));
  if (FirstInvalidUtf8(map.replacements_).has_value()) return std::nullopt;
  return map;
}

bool CharacterMap::ForEachPrefix(absl::string_view text,
                                 absl::FunctionRef<bool(size_t, absl::string_view)> found) const {
  size_t node = Offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size()) return false;
    const uint32_t unit = units_[node];
    if ((unit & 0x800000FFu) != byte) return false;
    node ^= Offset(unit);
    if (node >= units_.size()) return false;
    if ((unit >> 8 & 1) == 0) continue;
    const std::optional<absl::string_view> replacement = Replacement(units_[node] & 0x7FFFFFFFu);
    if (!replacement.has_value() || !found(i + 1, *replacement)) return false;
  }
  return true;
}

std::optional<absl::string_view> CharacterMap::FindShortest(absl::string_view text) const {
  std::optional<absl::string_view> shortest;
  ForEachPrefix(text, [&](size_t, absl::string_view replacement) {
    shortest = replacement;
    return false;
  });
  return shortest;
}

CharacterMap::Match CharacterMap::FindLongest(absl::string_view text) const {
  Match match;
  const absl::string_view key = text.substr(0, kMostKeyBytes);
  const bool more = ForEachPrefix(key, [&](size_t length, absl::string_view replacement) {
    if (length < text.size() && IsUtf8Continuation(text[length])) return true;
    match.length = length;
    match.replacement = replacement;
    return true;
  });
  match.may_go_on = more && text.size() < kMostKeyBytes;
  return match;
}

std::optional<absl::string_view> CharacterMap::Replacement(size_t begin) const {
  if (begin >= replacements_.size() || IsUtf8Continuation(replacements_[begin])) {
    return std::nullopt;
  }
  return absl::string_view(replacements_.c_str() + begin);
}

}  // namespace annulus
