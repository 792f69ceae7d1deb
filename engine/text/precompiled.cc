#include "engine/text/precompiled.h"

#include <utf8proc.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "engine/text/normalizer_output.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kLongCluster = 6;  // bytes; such clusters are not looked up as a whole

uint32_t ReadWord(absl::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) { return uint32_t{static_cast<uint8_t>(bytes[at + i])}; };
  return byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
}

class CharacterMap {
 public:
  // Nothing for bytes that are no such map.
  static std::optional<CharacterMap> Parse(absl::string_view bytes) {
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

  // What the shortest prefix of `text` that the map has is replaced by.
  std::optional<absl::string_view> Find(absl::string_view text) const {
    size_t node = Offset(units_[0]);
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      node ^= byte;
      if (byte == 0 || node >= units_.size()) return std::nullopt;
      const uint32_t unit = units_[node];
      if ((unit & 0x800000FFu) != byte) return std::nullopt;
      node ^= Offset(unit);
      if (node >= units_.size()) return std::nullopt;
      if ((unit >> 8 & 1) != 0) return Replacement(units_[node] & 0x7FFFFFFFu);
    }
    return std::nullopt;
  }

 private:
  static size_t Offset(uint32_t unit) { return size_t{unit >> 10} << ((unit & 1u << 9) >> 6); }

  std::optional<absl::string_view> Replacement(size_t begin) const {
    if (begin >= replacements_.size() || IsUtf8Continuation(replacements_[begin])) {
      return std::nullopt;
    }
    return absl::string_view(replacements_.c_str() + begin);
  }

  std::vector<uint32_t> units_;
  std::string replacements_;
};

class PrecompiledStage : public TextStage {
 public:
  PrecompiledStage(const CharacterMap* map, const EncodeState* state, TextStage* next)
      : map_(*map), output_(state, next) {}

  absl::Status Push(absl::string_view text, bool end) override {
    result_.clear();
    for (size_t position = 0; position < text.size();) {
      const size_t begin = position;
      const char32_t c = NextCodePoint(text, &position);
      AddCharacter(c, text.substr(begin, position - begin));
      if (result_.size() < kMostAtOnce) continue;
      ANNULUS_RETURN_IF_ERROR(output_.Push(result_, false));
      result_.clear();
    }
    if (end) EndCluster();
    return output_.Push(result_, end);
  }

 private:
  static constexpr size_t kMostAtOnce = 1 << 20;

  void AddCharacter(char32_t c, absl::string_view bytes) {
    const auto code_point = static_cast<utf8proc_int32_t>(c);
    if (in_cluster_ && utf8proc_grapheme_break_stateful(last_, code_point, &break_state_)) {
      EndCluster();
    }
    in_cluster_ = true;
    last_ = code_point;
    if (is_long_) {
      AppendCharacter(bytes);
      return;
    }
    cluster_.append(bytes.data(), bytes.size());
    if (cluster_.size() < kLongCluster) return;
    is_long_ = true;
    AppendCharacters();
  }

  void AppendCharacter(absl::string_view bytes) {
    const absl::string_view mapped = map_.Find(bytes).value_or(bytes);
    result_.append(mapped.data(), mapped.size());
  }

  // The characters of the cluster, one by one.
  void AppendCharacters() {
    for (size_t position = 0; position < cluster_.size();) {
      const size_t begin = position;
      NextCodePoint(cluster_, &position);
      AppendCharacter(absl::string_view(cluster_).substr(begin, position - begin));
    }
    cluster_.clear();
  }

  void EndCluster() {
    if (const auto mapped = map_.Find(cluster_); !is_long_ && mapped.has_value()) {
      result_.append(mapped->data(), mapped->size());
      cluster_.clear();
    } else {
      AppendCharacters();
    }
    in_cluster_ = is_long_ = false;
    break_state_ = 0;
  }

  const CharacterMap& map_;
  NormalizerOutput output_;
  std::string result_;
  std::string cluster_;      // its characters that were not passed on
  bool in_cluster_ = false;  // a cluster has begun, of which
  bool is_long_ = false;     // there are kLongCluster bytes
  utf8proc_int32_t last_ = 0;
  utf8proc_int32_t break_state_ = 0;
};

class Precompiled : public TextFilter {
 public:
  explicit Precompiled(CharacterMap map) : map_(std::move(map)) {}

  std::unique_ptr<TextStage> NewStage(EncodeState* state, TextStage* next) const override {
    return std::make_unique<PrecompiledStage>(&map_, state, next);
  }

 private:
  CharacterMap map_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TextFilter>> ParsePrecompiled(const JsonNode& node) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode member, node.Require("precompiled_charsmap"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, member.String());
  std::string bytes;
  if (!absl::Base64Unescape(text, &bytes)) return member.Error("not in base 64");
  std::optional<CharacterMap> map = CharacterMap::Parse(bytes);
  if (!map.has_value()) return member.Error("no character map of sentencepiece");
  return std::make_unique<Precompiled>(*std::move(map));
}

}  // namespace annulus
