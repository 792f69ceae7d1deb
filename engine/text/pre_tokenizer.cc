#include "engine/text/pre_tokenizer.h"

#include <string>
#include <utility>

#include "engine/text/pattern_splitter.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Radford et al. (2019), "Language Models are Unsupervised Multitask Learners", released encoder.
constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class PrefixSpace : public TextFilter {
 public:
  std::unique_ptr<TextStage> NewStage(EncodeState*, TextStage* next) const override {
    return std::make_unique<Stage>(next);
  }

 private:
  class Stage : public TextStage {
   public:
    explicit Stage(TextStage* next) : next_(next) {}

    absl::Status Push(absl::string_view text, bool end) override {
      if (at_start_ && !text.empty() && text.front() != ' ') {
        ANNULUS_RETURN_IF_ERROR(next_->Push(" ", false));
      }
      at_start_ = end || (at_start_ && text.empty());
      return next_->Push(text, end);
    }

   private:
    TextStage* next_;
    bool at_start_ = true;
  };
};

constexpr size_t kMaxStages = 32;  // calls nest as deep

class Parser {
 public:
  absl::Status Parse(const JsonNode& node) {
    ANNULUS_ASSIGN_OR_RETURN(const JsonNode type_node, node.Require("type"));
    ANNULUS_ASSIGN_OR_RETURN(const absl::string_view type, type_node.String());
    if (byte_level_) return node.Error("nothing may follow ByteLevel in a Sequence");
    if (stages_.size() >= kMaxStages) return node.Error("too many pre-tokenizers");
    if (type == "Split") {
      ANNULUS_ASSIGN_OR_RETURN(std::unique_ptr<TextFilter> split, PatternSplitter::Parse(node));
      stages_.push_back(std::move(split));
      return absl::OkStatus();
    }
    if (type == "ByteLevel") return ParseByteLevel(node);
    if (type == "Sequence") {
      ANNULUS_ASSIGN_OR_RETURN(const JsonNode members, node.Require("pretokenizers"));
      return members.ForEachElement([this](const JsonNode& member) { return Parse(member); });
    }
    return type_node.Unsupported("pre-tokenizer", type, {"Split", "ByteLevel", "Sequence"});
  }

  PreTokenizers Take() {
    PreTokenizers result;
    result.byte_level = byte_level_;
    result.filters = std::move(stages_);
    return result;
  }

 private:
  absl::Status ParseByteLevel(const JsonNode& node) {
    byte_level_ = true;
    ANNULUS_ASSIGN_OR_RETURN(const bool prefix, node.BoolMember("add_prefix_space", true));
    ANNULUS_ASSIGN_OR_RETURN(const bool use_regex, node.BoolMember("use_regex", true));
    if (prefix) stages_.push_back(std::make_unique<PrefixSpace>());
    if (use_regex) {
      ANNULUS_ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromRegex(kGpt2Pattern));
      stages_.push_back(
          std::make_unique<PatternSplitter>(std::move(pattern), SplitBehavior::kIsolated, false));
    }
    return absl::OkStatus();
  }

  TextFilters stages_;
  bool byte_level_ = false;
};

}  // namespace

absl::StatusOr<PreTokenizers> ParsePreTokenizer(const JsonNode& node) {
  Parser parser;
  if (!node.is_null()) ANNULUS_RETURN_IF_ERROR(parser.Parse(node));
  return parser.Take();
}

}  // namespace annulus
