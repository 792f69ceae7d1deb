#include "engine/text/stages/normalizer.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/text/stages/character_filters.h"
#include "engine/text/stages/normalizer_output.h"
#include "engine/text/stages/pattern.h"
#include "engine/text/stages/precompiled.h"
#include "engine/text/unicode.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kMostNormalizers = 64;  // calls nest as deep

class Replace : public TextFilter {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  std::unique_ptr<TextStage> NewStage(EncodeState* state, TextStage* next) const override {
    return std::make_unique<Stage>(pattern_.NewScanner(state->work), content_, state, next);
  }

 private:
  class Stage : public TextStage {
   public:
    Stage(std::unique_ptr<RangeScanner> scanner, absl::string_view content,
          const EncodeState* state, TextStage* next)
        : scanner_(std::move(scanner)), content_(content), output_(state, next) {}

    absl::Status Push(absl::string_view text, bool end) override {
      result_.clear();
      ANNULUS_RETURN_IF_ERROR(
          scanner_->Push(text, end, [this](absl::string_view range, bool is_match) -> absl::Status {
            const absl::string_view part = is_match ? content_ : range;
            result_.append(part.data(), part.size());
            if (result_.size() < kMostAtOnce) return absl::OkStatus();
            ANNULUS_RETURN_IF_ERROR(output_.Push(result_, false));
            result_.clear();
            return absl::OkStatus();
          }));
      return output_.Push(result_, end);
    }

   private:
    static constexpr size_t kMostAtOnce = 1 << 20;

    std::unique_ptr<RangeScanner> scanner_;
    absl::string_view content_;
    std::string result_;
    NormalizerOutput output_;
  };

  Pattern pattern_;
  std::string content_;
};

absl::StatusOr<std::unique_ptr<TextFilter>> ParsePrepend(const JsonNode& node) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode prefix, node.Require("prepend"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, prefix.String());
  return MakePrepend(std::string(text), /*at_start=*/false);
}

absl::StatusOr<std::unique_ptr<TextFilter>> ParseReplace(const JsonNode& node) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode pattern_node, node.Require("pattern"));
  ANNULUS_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(pattern_node));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode content, node.Require("content"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, content.String());
  return MakeReplace(std::move(pattern), std::string(text));
}

std::optional<NormalForm> NamedForm(absl::string_view type) {
  if (type == "NFC") return NormalForm::kNfc;
  if (type == "NFD") return NormalForm::kNfd;
  if (type == "NFKC") return NormalForm::kNfkc;
  if (type == "NFKD") return NormalForm::kNfkd;
  return std::nullopt;
}

absl::Status AppendNormalizer(const JsonNode& node, TextFilters* filters) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode type_node, node.Require("type"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view type, type_node.String());
  if (type == "Sequence") {
    ANNULUS_ASSIGN_OR_RETURN(const JsonNode members, node.Require("normalizers"));
    return members.ForEachElement(
        [&](const JsonNode& member) { return AppendNormalizer(member, filters); });
  }
  if (filters->size() >= kMostNormalizers) return node.Error("too many normalizers");
  std::unique_ptr<TextFilter> filter;
  if (const std::optional<NormalForm> form = NamedForm(type); form.has_value()) {
    filter = MakeUnicodeNormalizer(*form);
  } else if (type == "Lowercase") {
    filter = MakeLowercase();
  } else if (type == "Strip") {
    ANNULUS_ASSIGN_OR_RETURN(const bool left, node.BoolMember("strip_left", false));
    ANNULUS_ASSIGN_OR_RETURN(const bool right, node.BoolMember("strip_right", false));
    filter = MakeStrip(left, right);
  } else if (type == "Precompiled") {
    ANNULUS_ASSIGN_OR_RETURN(filter, ParsePrecompiled(node));
  } else if (type == "Prepend") {
    ANNULUS_ASSIGN_OR_RETURN(filter, ParsePrepend(node));
  } else if (type == "Replace") {
    ANNULUS_ASSIGN_OR_RETURN(filter, ParseReplace(node));
  } else {
    return type_node.Unsupported("normalizer", type,
                                 {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "Precompiled",
                                  "Prepend", "Replace", "Sequence"});
  }
  filters->push_back(std::move(filter));
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<TextFilter> MakeReplace(Pattern pattern, std::string content) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}

absl::StatusOr<TextFilters> ParseNormalizer(const JsonNode& node) {
  TextFilters filters;
  if (!node.is_null()) ANNULUS_RETURN_IF_ERROR(AppendNormalizer(node, &filters));
  return filters;
}

}  // namespace annulus
