#include "engine/text/pre_tokenizer.h"

#include <string>
#include <utility>
#include <vector>

#include "engine/text/pattern_splitter.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Radford et al. (2019), "Language Models are Unsupervised Multitask Learners", released encoder.
constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class PrefixSpace : public PreTokenizer {
 public:
  absl::Status Split(absl::string_view text, Sink sink) const override {
    if (text.front() == ' ') return sink(text);
    std::string prefixed(1, ' ');
    prefixed.append(text.data(), text.size());
    return sink(prefixed);
  }
};

class Sequence : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> stages)
      : stages_(std::move(stages)) {}

  absl::Status Split(absl::string_view text, Sink sink) const override {
    return Run(0, text, sink);
  }

 private:
  absl::Status Run(size_t stage, absl::string_view text, Sink sink) const {
    if (stage == stages_.size()) return sink(text);
    return stages_[stage]->Split(
        text, [&](absl::string_view piece) { return Run(stage + 1, piece, sink); });
  }

  std::vector<std::unique_ptr<PreTokenizer>> stages_;
};

constexpr size_t kMaxStages = 32;  // Run nests as deep

class Parser {
 public:
  absl::Status Parse(const JsonNode& node) {
    ANNULUS_ASSIGN_OR_RETURN(const JsonNode type_node, node.Require("type"));
    ANNULUS_ASSIGN_OR_RETURN(const absl::string_view type, type_node.String());
    if (byte_level_) return node.Error("nothing may follow ByteLevel in a Sequence");
    if (stages_.size() >= kMaxStages) return node.Error("too many pre-tokenizers");
    if (type == "Split") {
      ANNULUS_ASSIGN_OR_RETURN(std::unique_ptr<PreTokenizer> split, PatternSplitter::Parse(node));
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
    if (stages_.size() == 1) result.splitter = std::move(stages_.front());
    if (stages_.size() > 1) result.splitter = std::make_unique<Sequence>(std::move(stages_));
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

  std::vector<std::unique_ptr<PreTokenizer>> stages_;
  bool byte_level_ = false;
};

}  // namespace

absl::StatusOr<PreTokenizers> ParsePreTokenizer(const JsonNode& node) {
  Parser parser;
  if (!node.is_null()) ANNULUS_RETURN_IF_ERROR(parser.Parse(node));
  return parser.Take();
}

}  // namespace annulus
