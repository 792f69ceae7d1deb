#include "engine/text/normalizer.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/text/pattern.h"
#include "engine/text/unicode.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

absl::Status TooLong(size_t max_bytes) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the normalizer of the tokenizer makes the text longer than ", max_bytes, " bytes"));
}

class Nfc : public Normalizer {
 public:
  absl::Status Apply(size_t max_bytes, std::string* text) const override {
    NormalizeNfc(text);
    return text->size() > max_bytes ? TooLong(max_bytes) : absl::OkStatus();
  }
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}

  absl::Status Apply(size_t max_bytes, std::string* text) const override {
    if (text->empty()) return absl::OkStatus();
    if (text->size() + prefix_.size() > max_bytes) return TooLong(max_bytes);
    text->insert(0, prefix_);
    return absl::OkStatus();
  }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  absl::Status Apply(size_t max_bytes, std::string* text) const override {
    std::string result;
    result.reserve(text->size());
    ANNULUS_RETURN_IF_ERROR(
        pattern_.ForEachRange(*text, [&](size_t begin, size_t end, bool is_match) {
          if (is_match) {
            result.append(content_);
          } else {
            result.append(*text, begin, end - begin);
          }
          return result.size() > max_bytes ? TooLong(max_bytes) : absl::OkStatus();
        }));
    *text = std::move(result);
    return absl::OkStatus();
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> stages) : stages_(std::move(stages)) {}

  absl::Status Apply(size_t max_bytes, std::string* text) const override {
    for (const auto& stage : stages_) {
      ANNULUS_RETURN_IF_ERROR(stage->Apply(max_bytes, text));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> stages_;
};

absl::StatusOr<std::unique_ptr<Normalizer>> ParsePrepend(const JsonNode& node) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode prefix, node.Require("prepend"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, prefix.String());
  return std::make_unique<Prepend>(std::string(text));
}

absl::StatusOr<std::unique_ptr<Normalizer>> ParseReplace(const JsonNode& node) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode pattern_node, node.Require("pattern"));
  ANNULUS_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(pattern_node));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode content, node.Require("content"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, content.String());
  return std::make_unique<Replace>(std::move(pattern), std::string(text));
}

absl::StatusOr<std::unique_ptr<Normalizer>> ParseSequence(const JsonNode& node) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode members, node.Require("normalizers"));
  std::vector<std::unique_ptr<Normalizer>> stages;
  ANNULUS_RETURN_IF_ERROR(members.ForEachElement([&](const JsonNode& member) -> absl::Status {
    ANNULUS_ASSIGN_OR_RETURN(std::unique_ptr<Normalizer> stage, ParseNormalizer(member));
    if (stage == nullptr) return member.Error("expected a normalizer, got null");
    stages.push_back(std::move(stage));
    return absl::OkStatus();
  }));
  return std::make_unique<Sequence>(std::move(stages));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Normalizer>> ParseNormalizer(const JsonNode& node) {
  if (node.is_null()) return nullptr;
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode type_node, node.Require("type"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view type, type_node.String());
  if (type == "NFC") return std::make_unique<Nfc>();
  if (type == "Prepend") return ParsePrepend(node);
  if (type == "Replace") return ParseReplace(node);
  if (type == "Sequence") return ParseSequence(node);
  return type_node.Unsupported("normalizer", type, {"NFC", "Prepend", "Replace", "Sequence"});
}

}  // namespace annulus
