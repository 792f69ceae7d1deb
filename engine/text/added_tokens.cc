#include "engine/text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/text/unicode.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Start of the white space that ends at `end` and does not reach before `least`.
size_t WhitespaceBefore(absl::string_view text, size_t least, size_t end) {
  while (end > least) {
    const absl::string_view before = text.substr(least, end - least);
    const char32_t last = LastCodePoint(before);
    if (!IsWhitespace(last)) break;
    --end;
    while ((static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  }
  return end;
}

// End of the white space that starts at `begin`.
size_t WhitespaceBehind(absl::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t next = begin;
    if (!IsWhitespace(NextCodePoint(text, &next))) break;
    begin = next;
  }
  return begin;
}

bool TouchesWord(absl::string_view text, size_t begin, size_t end) {
  if (begin > 0 && IsWordCharacter(LastCodePoint(text.substr(0, begin)))) return true;
  return end < text.size() && IsWordCharacter(NextCodePoint(text, &end));
}

}  // namespace

absl::StatusOr<AddedTokens> AddedTokens::Parse(const JsonNode& node, const Normalizer* normalizer,
                                               Vocabulary* vocabulary) {
  AddedTokens result;
  if (!node.is_null()) {
    ANNULUS_RETURN_IF_ERROR(node.ForEachElement([&](const JsonNode& element) {
      return result.ParseToken(element, normalizer, vocabulary);
    }));
  }
  result.raw_.literals.Build();
  result.normalized_.literals.Build();
  return result;
}

absl::Status AddedTokens::ParseToken(const JsonNode& node, const Normalizer* normalizer,
                                     Vocabulary* vocabulary) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode id_node, node.Require("id"));
  ANNULUS_ASSIGN_OR_RETURN(const int64_t id, id_node.Integer(0, Vocabulary::kMaxSize - 1));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode content_node, node.Require("content"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view content, content_node.String());
  ANNULUS_ASSIGN_OR_RETURN(const bool special, node.BoolMember("special", false));
  ANNULUS_ASSIGN_OR_RETURN(const bool is_normalized, node.BoolMember("normalized", !special));
  Token token;
  token.id = static_cast<int32_t>(id);
  ANNULUS_ASSIGN_OR_RETURN(token.single_word, node.BoolMember("single_word", false));
  ANNULUS_ASSIGN_OR_RETURN(token.lstrip, node.BoolMember("lstrip", false));
  ANNULUS_ASSIGN_OR_RETURN(token.rstrip, node.BoolMember("rstrip", false));

  if (vocabulary->Find(content) != token.id) {
    const absl::Status added = vocabulary->Add(content, id);
    if (!added.ok()) return node.Error(added.message());
  }
  if (!special_.emplace(token.id, special).second) {
    return node.Error(absl::StrCat("the id ", id, " is listed twice"));
  }
  std::string literal(content);
  if (is_normalized && normalizer != nullptr) {
    ANNULUS_RETURN_IF_ERROR(normalizer->Apply(MaxNormalizedBytes(content.size()), &literal));
    if (literal.empty()) return content_node.Error("the normalizer makes it empty");
    if (literal != content) normalized_forms_.emplace(token.id, literal);
  }
  Finder& finder = is_normalized ? normalized_ : raw_;
  const absl::Status added = finder.literals.Add(literal);
  if (!added.ok()) return content_node.Error(added.message());
  finder.tokens.push_back(token);
  return absl::OkStatus();
}

absl::Status AddedTokens::Finder::Split(absl::string_view text, Sink sink) const {
  if (text.empty()) return absl::OkStatus();
  if (literals.empty()) return sink(text, -1);
  size_t done = 0;
  for (const LiteralSet::Match& match : literals.Find(text)) {
    const Token& token = tokens[static_cast<size_t>(match.index)];
    if (match.begin < done) continue;  // inside the white space that the token before took
    if (token.single_word && TouchesWord(text, match.begin, match.end)) continue;
    const size_t begin = token.lstrip ? WhitespaceBefore(text, done, match.begin) : match.begin;
    const size_t end = token.rstrip ? WhitespaceBehind(text, match.end) : match.end;
    if (begin > done) ANNULUS_RETURN_IF_ERROR(sink(text.substr(done, begin - done), -1));
    ANNULUS_RETURN_IF_ERROR(sink(text.substr(begin, end - begin), token.id));
    done = end;
  }
  return done < text.size() ? sink(text.substr(done), -1) : absl::OkStatus();
}

absl::Status AddedTokens::SplitRaw(absl::string_view text, Sink sink) const {
  return raw_.Split(text, sink);
}

absl::Status AddedTokens::SplitNormalized(absl::string_view text, Sink sink) const {
  return normalized_.Split(text, sink);
}

bool AddedTokens::IsSpecial(int32_t id) const {
  const auto found = special_.find(id);
  return found != special_.end() && found->second;
}

}  // namespace annulus
