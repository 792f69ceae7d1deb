#include "engine/text/normalizer.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/text/pattern.h"
#include "engine/text/unicode.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kMaxStages = 64;  // calls nest as deep

// Hands on what a normalizer made, within the limit.
class Output {
 public:
  Output(const EncodeState* state, TextStage* next) : state_(state), next_(next) {}

  absl::Status Push(absl::string_view text, bool end) {
    bytes_ += text.size();
    const uint64_t most = MaxNormalizedBytes(state_->text_bytes);
    if (bytes_ <= most) return next_->Push(text, end);
    return absl::InvalidArgumentError(absl::StrCat("the normalizer of the tokenizer makes ", most,
                                                   " bytes of ", state_->text_bytes, " and more"));
  }

 private:
  const EncodeState* state_;
  TextStage* next_;
  uint64_t bytes_ = 0;
};

class Nfc : public TextFilter {
 public:
  std::unique_ptr<TextStage> NewStage(EncodeState* state, TextStage* next) const override {
    return std::make_unique<Stage>(state, next);
  }

 private:
  class Stage : public TextStage {
   public:
    Stage(const EncodeState* state, TextStage* next) : output_(state, next) {}

    absl::Status Push(absl::string_view text, bool end) override {
      ANNULUS_ASSIGN_OR_RETURN(const bool enough, held_.Add(text, end));
      if (!enough) return absl::OkStatus();
      const size_t decided = end ? held_.view().size() : LastNfcBoundary(held_.view());
      normal_.assign(held_.view().data(), decided);
      NormalizeNfc(&normal_);
      held_.Drop(decided);
      return output_.Push(normal_, end);
    }

   private:
    HeldText held_;
    std::string normal_;
    Output output_;
  };
};

class Prepend : public TextFilter {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}

  std::unique_ptr<TextStage> NewStage(EncodeState* state, TextStage* next) const override {
    return std::make_unique<Stage>(prefix_, state, next);
  }

 private:
  class Stage : public TextStage {
   public:
    Stage(absl::string_view prefix, const EncodeState* state, TextStage* next)
        : prefix_(prefix), output_(state, next) {}

    absl::Status Push(absl::string_view text, bool end) override {
      if (at_start_ && !text.empty()) ANNULUS_RETURN_IF_ERROR(output_.Push(prefix_, false));
      at_start_ = end || (at_start_ && text.empty());
      return output_.Push(text, end);
    }

   private:
    absl::string_view prefix_;
    Output output_;
    bool at_start_ = true;
  };

  std::string prefix_;
};

class Replace : public TextFilter {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  std::unique_ptr<TextStage> NewStage(EncodeState* state, TextStage* next) const override {
    return std::make_unique<Stage>(pattern_.NewScanner(), content_, state, next);
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
    Output output_;
  };

  Pattern pattern_;
  std::string content_;
};

absl::StatusOr<std::unique_ptr<TextFilter>> ParsePrepend(const JsonNode& node) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode prefix, node.Require("prepend"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, prefix.String());
  return std::make_unique<Prepend>(std::string(text));
}

absl::StatusOr<std::unique_ptr<TextFilter>> ParseReplace(const JsonNode& node) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode pattern_node, node.Require("pattern"));
  ANNULUS_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(pattern_node));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode content, node.Require("content"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, content.String());
  return std::make_unique<Replace>(std::move(pattern), std::string(text));
}

absl::Status AppendNormalizer(const JsonNode& node, TextFilters* filters) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode type_node, node.Require("type"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view type, type_node.String());
  if (type == "Sequence") {
    ANNULUS_ASSIGN_OR_RETURN(const JsonNode members, node.Require("normalizers"));
    return members.ForEachElement(
        [&](const JsonNode& member) { return AppendNormalizer(member, filters); });
  }
  if (filters->size() >= kMaxStages) return node.Error("too many normalizers");
  std::unique_ptr<TextFilter> filter;
  if (type == "NFC") {
    filter = std::make_unique<Nfc>();
  } else if (type == "Prepend") {
    ANNULUS_ASSIGN_OR_RETURN(filter, ParsePrepend(node));
  } else if (type == "Replace") {
    ANNULUS_ASSIGN_OR_RETURN(filter, ParseReplace(node));
  } else {
    return type_node.Unsupported("normalizer", type, {"NFC", "Prepend", "Replace", "Sequence"});
  }
  filters->push_back(std::move(filter));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TextFilters> ParseNormalizer(const JsonNode& node) {
  TextFilters filters;
  if (!node.is_null()) ANNULUS_RETURN_IF_ERROR(AppendNormalizer(node, &filters));
  return filters;
}

}  // namespace annulus
