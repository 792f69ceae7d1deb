#include "engine/text/stages/post_processor.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

absl::Status AppendSpecialToken(const JsonNode& piece, const JsonNode& special_tokens,
                                const Vocabulary& vocabulary, std::vector<int32_t>* ids) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode name_node, piece.Require("id"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view name, name_node.String());
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode token, special_tokens.Require(name));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode members, token.Require("ids"));
  return members.ForEachElement([&](const JsonNode& member) -> absl::Status {
    ANNULUS_ASSIGN_OR_RETURN(const int64_t id, member.Integer(0, Vocabulary::kMaxSize - 1));
    if (!vocabulary.Token(static_cast<int32_t>(id)).has_value()) {
      return member.Error(absl::StrCat("no token has the id ", id));
    }
    ids->push_back(static_cast<int32_t>(id));
    return absl::OkStatus();
  });
}

absl::StatusOr<PostProcessor> ParseTemplate(const JsonNode& node, const Vocabulary& vocabulary) {
  PostProcessor result;
  result.has_template = true;
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode single, node.Require("single"));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode special_tokens, node.Require("special_tokens"));
  int texts = 0;
  ANNULUS_RETURN_IF_ERROR(single.ForEachElement([&](const JsonNode& piece) -> absl::Status {
    ANNULUS_ASSIGN_OR_RETURN(const JsonNode token, piece.Find("SpecialToken"));
    if (!token.is_null()) {
      return AppendSpecialToken(token, special_tokens, vocabulary,
                                texts == 0 ? &result.prefix : &result.suffix);
    }
    ANNULUS_ASSIGN_OR_RETURN(const JsonNode sequence, piece.Require("Sequence"));
    ANNULUS_ASSIGN_OR_RETURN(const std::string name, sequence.StringMember("id", ""));
    if (name != "A")
      return sequence.Error("the template for a single text has the sequence A only");
    ++texts;
    return absl::OkStatus();
  }));
  if (texts != 1)
    return single.Error(absl::StrCat("the text appears ", texts, " times in it, not 1"));
  return result;
}

// [token, id], which must agree with the vocabulary.
absl::StatusOr<int32_t> ParseTokenPair(const JsonNode& node, const Vocabulary& vocabulary) {
  std::vector<JsonNode> parts;
  ANNULUS_RETURN_IF_ERROR(node.ForEachElement([&](const JsonNode& part) {
    parts.push_back(part);
    return absl::OkStatus();
  }));
  if (parts.size() != 2) return node.Error("expected [token, id]");
  ANNULUS_RETURN_IF_ERROR(parts[0].String().status());
  ANNULUS_ASSIGN_OR_RETURN(const int64_t id, parts[1].Integer(0, Vocabulary::kMaxSize - 1));
  if (!vocabulary.Token(static_cast<int32_t>(id)).has_value()) {
    return parts[1].Error(absl::StrCat("no token has the id ", id));
  }
  return static_cast<int32_t>(id);
}

// `cls` in front of a text and `sep` behind it: RobertaProcessing and BertProcessing.
absl::StatusOr<PostProcessor> ParseEnds(const JsonNode& node, const Vocabulary& vocabulary) {
  PostProcessor result;
  result.has_template = true;
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode cls, node.Require("cls"));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode sep, node.Require("sep"));
  ANNULUS_ASSIGN_OR_RETURN(const int32_t first, ParseTokenPair(cls, vocabulary));
  ANNULUS_ASSIGN_OR_RETURN(const int32_t last, ParseTokenPair(sep, vocabulary));
  result.prefix = {first};
  result.suffix = {last};
  return result;
}

absl::StatusOr<PostProcessor> ParseSequence(const JsonNode& node, const Vocabulary& vocabulary) {
  PostProcessor result;
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode members, node.Require("processors"));
  ANNULUS_RETURN_IF_ERROR(members.ForEachElement([&](const JsonNode& member) -> absl::Status {
    ANNULUS_ASSIGN_OR_RETURN(const PostProcessor outer, ParsePostProcessor(member, vocabulary));
    result.prefix.insert(result.prefix.begin(), outer.prefix.begin(), outer.prefix.end());
    result.suffix.insert(result.suffix.end(), outer.suffix.begin(), outer.suffix.end());
    result.has_template |= outer.has_template;
    return absl::OkStatus();
  }));
  return result;
}

}  // namespace

absl::StatusOr<PostProcessor> ParsePostProcessor(const JsonNode& node,
                                                 const Vocabulary& vocabulary) {
  if (node.is_null()) return PostProcessor();
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode type_node, node.Require("type"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view type, type_node.String());
  if (type == "ByteLevel") return PostProcessor();
  if (type == "TemplateProcessing") return ParseTemplate(node, vocabulary);
  if (type == "RobertaProcessing" || type == "BertProcessing") return ParseEnds(node, vocabulary);
  if (type == "Sequence") return ParseSequence(node, vocabulary);
  return type_node.Unsupported(
      "post-processor", type,
      {"TemplateProcessing", "ByteLevel", "RobertaProcessing", "BertProcessing", "Sequence"});
}

}  // namespace annulus
