#include "engine/text/stages/pre_tokenizer.h"

#include <optional>
#include <string>
#include <utility>

#include "engine/text/models/byte_alphabet.h"
#include "engine/text/stages/metaspace.h"
#include "engine/text/stages/pattern_splitter.h"
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

// Text in the byte alphabet, for what follows ByteLevel in a Sequence.
class IntoByteAlphabet : public TextFilter {
 public:
  std::unique_ptr<TextStage> NewStage(EncodeState*, TextStage* next) const override {
    return std::make_unique<Stage>(next);
  }

 private:
  class Stage : public TextStage {
   public:
    explicit Stage(TextStage* next) : next_(next) {}
    absl::Status Push(absl::string_view text, bool end) override {
      return next_->Push(ToByteAlphabet(text), end);
    }

   private:
    TextStage* next_;
  };
};

// The bytes again, for the model.
class OutOfByteAlphabet : public TextFilter {
 public:
  std::unique_ptr<TextStage> NewStage(EncodeState*, TextStage* next) const override {
    return std::make_unique<Stage>(next);
  }

 private:
  class Stage : public TextStage {
   public:
    explicit Stage(TextStage* next) : next_(next) {}
    absl::Status Push(absl::string_view text, bool end) override {
      const std::optional<std::string> bytes = FromByteAlphabet(text);
      if (!bytes.has_value()) return absl::InternalError("text outside of the byte alphabet");
      return next_->Push(*bytes, end);
    }

   private:
    TextStage* next_;
  };
};

constexpr size_t kMostPreTokenizers = 32;  // calls nest as deep

// The other kinds of split, as patterns.
constexpr char kDigit[] = R"(\p{N})";
constexpr char kWhitespace[] = R"(\s)";
constexpr char kPunctuation[] = R"([!-/:-@\[-`{-~\p{P}])";
constexpr char kWordOrOther[] = R"(\w+|[^\w\s]+)";

class Parser {
 public:
  absl::Status Parse(const JsonNode& node) {
    ANNULUS_ASSIGN_OR_RETURN(const JsonNode type_node, node.Require("type"));
    ANNULUS_ASSIGN_OR_RETURN(const absl::string_view type, type_node.String());
    if (byte_level_ && type != "Sequence") {
      ANNULUS_RETURN_IF_ERROR(StartAfterByteLevel(type_node, type));
    }
    if (stages_.size() >= kMostPreTokenizers) return node.Error("too many pre-tokenizers");
    if (type == "Split") return ParseSplit(node);
    if (type == "ByteLevel") return ParseByteLevel(node);
    if (type == "Metaspace") {
      ANNULUS_ASSIGN_OR_RETURN(MetaspaceOptions options, ParseMetaspace(node));
      stages_.push_back(MakeMetaspace(std::move(options)));
      return absl::OkStatus();
    }
    if (type == "Digits") {
      ANNULUS_ASSIGN_OR_RETURN(const bool individual, node.BoolMember("individual_digits", false));
      return AddSplit(kDigit, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                      false);
    }
    if (type == "Punctuation") {
      ANNULUS_ASSIGN_OR_RETURN(const JsonNode behavior_node, node.Find("behavior"));
      SplitBehavior behavior = SplitBehavior::kIsolated;
      if (!behavior_node.is_null()) {
        ANNULUS_ASSIGN_OR_RETURN(behavior, ParseSplitBehavior(behavior_node));
      }
      return AddSplit(kPunctuation, behavior, false);
    }
    if (type == "Whitespace") return AddSplit(kWordOrOther, SplitBehavior::kRemoved, true);
    if (type == "WhitespaceSplit") return AddSplit(kWhitespace, SplitBehavior::kRemoved, false);
    if (type == "Sequence") {
      ANNULUS_ASSIGN_OR_RETURN(const JsonNode members, node.Require("pretokenizers"));
      return members.ForEachElement([this](const JsonNode& member) { return Parse(member); });
    }
    return type_node.Unsupported("pre-tokenizer", type,
                                 {"Split", "ByteLevel", "Metaspace", "Digits", "Punctuation",
                                  "Whitespace", "WhitespaceSplit", "Sequence"});
  }

  PreTokenizers Take() {
    if (in_alphabet_) stages_.push_back(std::make_unique<OutOfByteAlphabet>());
    return {std::move(stages_), byte_level_};
  }

 private:
  absl::Status StartAfterByteLevel(const JsonNode& type_node, absl::string_view type) {
    if (type == "ByteLevel" || type == "Metaspace") {
      return type_node.Unsupported(
          "a pre-tokenizer after ByteLevel", type,
          {"Split", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit"});
    }
    if (!in_alphabet_) stages_.push_back(std::make_unique<IntoByteAlphabet>());
    in_alphabet_ = true;
    return absl::OkStatus();
  }

  absl::Status AddSplit(absl::string_view regex, SplitBehavior behavior, bool invert) {
    ANNULUS_ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromRegex(regex));
    stages_.push_back(std::make_unique<PatternSplitter>(std::move(pattern), behavior, invert));
    return absl::OkStatus();
  }

  absl::Status ParseSplit(const JsonNode& node) {
    ANNULUS_ASSIGN_OR_RETURN(std::unique_ptr<TextFilter> split, PatternSplitter::Parse(node));
    stages_.push_back(std::move(split));
    return absl::OkStatus();
  }

  absl::Status ParseByteLevel(const JsonNode& node) {
    byte_level_ = true;
    ANNULUS_ASSIGN_OR_RETURN(const bool prefix, node.BoolMember("add_prefix_space", true));
    ANNULUS_ASSIGN_OR_RETURN(const bool use_regex, node.BoolMember("use_regex", true));
    if (prefix) stages_.push_back(std::make_unique<PrefixSpace>());
    return use_regex ? AddSplit(kGpt2Pattern, SplitBehavior::kIsolated, false) : absl::OkStatus();
  }

  TextFilters stages_;
  bool byte_level_ = false;
  bool in_alphabet_ = false;  // stages after ByteLevel see its alphabet
};

}  // namespace

absl::StatusOr<PreTokenizers> ParsePreTokenizer(const JsonNode& node) {
  Parser parser;
  if (!node.is_null()) ANNULUS_RETURN_IF_ERROR(parser.Parse(node));
  return parser.Take();
}

}  // namespace annulus
