#include "engine/text/stages/precompiled.h"

#include <utf8proc.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "engine/text/models/byte_trie.h"
#include "engine/text/stages/character_map.h"
#include "engine/text/stages/normalizer_output.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kLongCluster = 6;       // bytes; such clusters are not looked up as a whole
constexpr size_t kMostAtOnce = 1 << 20;  // bytes

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
    const absl::string_view mapped = map_.FindShortest(bytes).value_or(bytes);
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
    if (const auto mapped = map_.FindShortest(cluster_); !is_long_ && mapped.has_value()) {
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

// What MakeLongestMatch replaces and keeps.
struct LongestMatchRules {
  CharacterMap map;
  ByteTrie kept;
  size_t longest_kept = 0;  // bytes
};

class LongestMatchStage : public TextStage {
 public:
  LongestMatchStage(const LongestMatchRules* rules, const EncodeState* state, TextStage* next)
      : rules_(*rules), output_(state, next) {}

  absl::Status Push(absl::string_view text, bool end) override {
    held_.append(text.data(), text.size());
    std::string result;
    size_t position = 0;
    while (position < held_.size()) {
      if (result.size() >= kMostAtOnce) {
        ANNULUS_RETURN_IF_ERROR(output_.Push(result, false));
        result.clear();
      }
      const absl::string_view rest = absl::string_view(held_).substr(position);
      if (rest.size() < rules_.longest_kept && !end) break;
      size_t kept = 0;
      rules_.kept.ForEachPrefix(rest, [&](size_t length, int32_t) { kept = length; });
      const CharacterMap::Match match = rules_.map.FindLongest(rest);
      if (kept > 0) {
        result.append(rest.data(), kept);
        position += kept;
        continue;
      }
      if (match.may_go_on && !end) break;
      if (match.length > 0) {
        result.append(match.replacement.data(), match.replacement.size());
        position += match.length;
      } else {
        const size_t begin = position;
        NextCodePoint(held_, &position);
        result.append(held_, begin, position - begin);
      }
    }
    held_.erase(0, position);
    return output_.Push(result, end);
  }

 private:
  const LongestMatchRules& rules_;
  NormalizerOutput output_;
  std::string held_;  // what more text could make a longer match of
};

class LongestMatch : public TextFilter {
 public:
  explicit LongestMatch(LongestMatchRules rules) : rules_(std::move(rules)) {}

  std::unique_ptr<TextStage> NewStage(EncodeState* state, TextStage* next) const override {
    return std::make_unique<LongestMatchStage>(&rules_, state, next);
  }

 private:
  LongestMatchRules rules_;
};

}  // namespace

std::unique_ptr<TextFilter> MakeLongestMatch(CharacterMap map,
                                             const std::vector<std::string>& kept) {
  LongestMatchRules rules;
  rules.map = std::move(map);
  std::vector<std::pair<std::string, int32_t>> texts;
  for (const std::string& text : kept) {
    rules.longest_kept = std::max(rules.longest_kept, text.size());
    texts.emplace_back(text, 0);
  }
  rules.kept = ByteTrie(std::move(texts));
  return std::make_unique<LongestMatch>(std::move(rules));
}

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
