#include "engine/text/stages/metaspace.h"

#include <utility>

#include "absl/strings/match.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kMostHeld = 4 << 10;

class MetaspaceStage : public TextStage {
 public:
  MetaspaceStage(const MetaspaceOptions* options, const EncodeState* state, TextStage* next)
      : options_(*options), state_(*state), next_(next) {}

  absl::Status Push(absl::string_view text, bool end) override {
    if (at_start_ && !text.empty()) {
      const bool has_prefix = text.front() == ' ' || absl::StartsWith(text, options_.replacement);
      if (!has_prefix && Prepends()) piece_ = options_.replacement;
      at_start_ = false;
    }
    while (!text.empty()) {
      const size_t space = FindSpace(text);
      piece_.append(text.data(), space);
      text.remove_prefix(space);
      if (text.empty()) break;
      if (options_.split) ANNULUS_RETURN_IF_ERROR(Give(true));
      piece_.append(options_.replacement);
      text.remove_prefix(text.front() == ' ' ? 1 : options_.replacement.size());
    }
    if (end) {
      is_first_ &= at_start_;
      at_start_ = true;
      return Give(true);
    }
    return piece_.size() > kMostHeld ? Give(false) : absl::OkStatus();
  }

 private:
  bool Prepends() const {
    if (options_.prepend != MetaspaceOptions::Prepend::kFirst) {
      return options_.prepend == MetaspaceOptions::Prepend::kAlways;
    }
    return is_first_ && state_.at_text_start;
  }

  // Where the next space or replacement is, or the end.
  size_t FindSpace(absl::string_view text) const {
    const char lead = options_.replacement.front();
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == ' ') return i;
      if (text[i] == lead && absl::StartsWith(text.substr(i), options_.replacement)) return i;
    }
    return text.size();
  }

  absl::Status Give(bool end) {
    const absl::Status status = next_->Push(piece_, end);
    piece_.clear();
    return status;
  }

  const MetaspaceOptions& options_;
  const EncodeState& state_;
  TextStage* next_;
  std::string piece_;
  bool at_start_ = true;  // of a stretch
  bool is_first_ = true;  // of all stretches
};

class Metaspace : public TextFilter {
 public:
  explicit Metaspace(MetaspaceOptions options) : options_(std::move(options)) {}

  std::unique_ptr<TextStage> NewStage(EncodeState* state, TextStage* next) const override {
    return std::make_unique<MetaspaceStage>(&options_, state, next);
  }

 private:
  MetaspaceOptions options_;
};

}  // namespace

absl::StatusOr<MetaspaceOptions> ParseMetaspace(const JsonNode& node) {
  using Prepend = MetaspaceOptions::Prepend;
  MetaspaceOptions options;
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode replacement, node.Require("replacement"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, replacement.String());
  size_t position = 0;
  if (!text.empty()) NextCodePoint(text, &position);
  if (text.empty() || position != text.size()) return replacement.Error("expected one character");
  options.replacement = std::string(text);
  ANNULUS_ASSIGN_OR_RETURN(options.split, node.BoolMember("split", true));
  ANNULUS_ASSIGN_OR_RETURN(const bool prefix, node.BoolMember("add_prefix_space", true));
  ANNULUS_ASSIGN_OR_RETURN(const std::string scheme,
                           node.StringMember("prepend_scheme", prefix ? "always" : "never"));
  if (scheme == "always") {
    options.prepend = Prepend::kAlways;
  } else if (scheme == "first") {
    options.prepend = Prepend::kFirst;
  } else if (scheme == "never") {
    options.prepend = Prepend::kNever;
  } else {
    ANNULUS_ASSIGN_OR_RETURN(const JsonNode member, node.Find("prepend_scheme"));
    return member.Unsupported("prepend_scheme", scheme, {"always", "first", "never"});
  }
  return options;
}

std::unique_ptr<TextFilter> MakeMetaspace(MetaspaceOptions options) {
  return std::make_unique<Metaspace>(std::move(options));
}

}  // namespace annulus
