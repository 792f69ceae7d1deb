#include "engine/text/stages/character_filters.h"

#include <string>
#include <utility>

#include "absl/strings/strip.h"
#include "engine/text/stages/normalizer_output.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

class NormalFormStage : public TextStage {
 public:
  NormalFormStage(NormalForm form, const EncodeState* state, TextStage* next)
      : form_(form), output_(state, next) {}

  absl::Status Push(absl::string_view text, bool end) override {
    ANNULUS_ASSIGN_OR_RETURN(const bool enough, held_.Add(text, end));
    if (!enough) return absl::OkStatus();
    const absl::string_view view = held_.view();
    const size_t decided = end ? view.size() : LastNormalBoundary(form_, view);
    normal_.assign(view.data(), decided);
    Normalize(form_, &normal_);
    held_.Drop(decided);
    return output_.Push(normal_, end);
  }

 private:
  NormalForm form_;
  HeldText held_;
  std::string normal_;
  NormalizerOutput output_;
};

class UnicodeNormalizer : public TextFilter {
 public:
  explicit UnicodeNormalizer(NormalForm form) : form_(form) {}

  std::unique_ptr<TextStage> NewStage(EncodeState* state, TextStage* next) const override {
    return std::make_unique<NormalFormStage>(form_, state, next);
  }

 private:
  NormalForm form_;
};

class LowercaseStage : public TextStage {
 public:
  LowercaseStage(const EncodeState* state, TextStage* next) : output_(state, next) {}

  absl::Status Push(absl::string_view text, bool end) override {
    lower_.clear();
    for (size_t position = 0; position < text.size();) {
      AppendLowercase(NextCodePoint(text, &position), &lower_);
    }
    return output_.Push(lower_, end);
  }

 private:
  std::string lower_;
  NormalizerOutput output_;
};

class Lowercase : public TextFilter {
 public:
  std::unique_ptr<TextStage> NewStage(EncodeState* state, TextStage* next) const override {
    return std::make_unique<LowercaseStage>(state, next);
  }
};

class StripStage : public TextStage {
 public:
  StripStage(bool left, bool right, TextStage* next) : left_(left), right_(right), next_(next) {}

  absl::Status Push(absl::string_view text, bool end) override {
    if (left_ && at_start_) {
      text.remove_prefix(WhitespacePrefix(text));
      at_start_ = text.empty();
    }
    if (right_) {
      const size_t kept = text.size() - WhitespaceSuffix(text);
      if (kept > 0) {
        ANNULUS_RETURN_IF_ERROR(next_->Push(space_, false));
        ANNULUS_RETURN_IF_ERROR(next_->Push(text.substr(0, kept), false));
        space_.clear();
      }
      space_.append(text.data() + kept, text.size() - kept);
      if (space_.size() > kMaxUncutBytes) return UncutTextError();
      text = "";
    }
    if (end) {
      space_.clear();
      at_start_ = true;
    }
    return next_->Push(text, end);
  }

 private:
  bool left_;
  bool right_;
  TextStage* next_;
  bool at_start_ = true;  // nothing but white space so far
  std::string space_;     // white space that may be the last
};

class Strip : public TextFilter {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  std::unique_ptr<TextStage> NewStage(EncodeState*, TextStage* next) const override {
    return std::make_unique<StripStage>(left_, right_, next);
  }

 private:
  bool left_;
  bool right_;
};

class CollapseSpacesStage : public TextStage {
 public:
  explicit CollapseSpacesStage(TextStage* next) : next_(next) {}

  absl::Status Push(absl::string_view text, bool end) override {
    result_.clear();
    for (const char c : text) {
      if (c == ' ') {
        after_space_ = true;
        continue;
      }
      if (after_space_ && !at_start_) result_.push_back(' ');
      result_.push_back(c);
      after_space_ = at_start_ = false;
    }
    if (end) {
      after_space_ = false;
      at_start_ = true;
    }
    return next_->Push(result_, end);
  }

 private:
  TextStage* next_;
  std::string result_;
  bool at_start_ = true;  // nothing but spaces so far
  bool after_space_ = false;
};

class CollapseSpaces : public TextFilter {
 public:
  std::unique_ptr<TextStage> NewStage(EncodeState*, TextStage* next) const override {
    return std::make_unique<CollapseSpacesStage>(next);
  }
};

class TrimEndStage : public TextStage {
 public:
  TrimEndStage(absl::string_view character, TextStage* next) : character_(character), next_(next) {}

  absl::Status Push(absl::string_view text, bool end) override {
    absl::string_view kept = text;
    while (absl::ConsumeSuffix(&kept, character_)) continue;
    if (!kept.empty()) {
      ANNULUS_RETURN_IF_ERROR(next_->Push(held_, false));
      ANNULUS_RETURN_IF_ERROR(next_->Push(kept, false));
      held_.clear();
    }
    held_.append(text.data() + kept.size(), text.size() - kept.size());
    if (held_.size() > kMaxUncutBytes) return UncutTextError();
    if (!end) return absl::OkStatus();
    held_.clear();
    return next_->Push("", true);
  }

 private:
  absl::string_view character_;
  TextStage* next_;
  std::string held_;  // what may be the end
};

class TrimEnd : public TextFilter {
 public:
  explicit TrimEnd(std::string character) : character_(std::move(character)) {}

  std::unique_ptr<TextStage> NewStage(EncodeState*, TextStage* next) const override {
    return std::make_unique<TrimEndStage>(character_, next);
  }

 private:
  std::string character_;
};

class PrependStage : public TextStage {
 public:
  PrependStage(absl::string_view prefix, bool at_start, const EncodeState* state, TextStage* next)
      : prefix_(prefix), at_start_(at_start), state_(*state), output_(state, next) {}

  absl::Status Push(absl::string_view text, bool end) override {
    if (in_front_ && !text.empty()) {
      if (!at_start_ || (is_first_ && state_.at_text_start)) {
        ANNULUS_RETURN_IF_ERROR(output_.Push(prefix_, false));
      }
      in_front_ = is_first_ = false;
    }
    in_front_ |= end;
    return output_.Push(text, end);
  }

 private:
  absl::string_view prefix_;
  bool at_start_;
  const EncodeState& state_;
  NormalizerOutput output_;
  bool in_front_ = true;  // of a stretch
  bool is_first_ = true;  // of all stretches
};

class Prepend : public TextFilter {
 public:
  Prepend(std::string prefix, bool at_start) : prefix_(std::move(prefix)), at_start_(at_start) {}

  std::unique_ptr<TextStage> NewStage(EncodeState* state, TextStage* next) const override {
    return std::make_unique<PrependStage>(prefix_, at_start_, state, next);
  }

 private:
  std::string prefix_;
  bool at_start_;
};

}  // namespace

std::unique_ptr<TextFilter> MakeUnicodeNormalizer(NormalForm form) {
  return std::make_unique<UnicodeNormalizer>(form);
}
std::unique_ptr<TextFilter> MakeLowercase() { return std::make_unique<Lowercase>(); }
std::unique_ptr<TextFilter> MakeCollapseSpaces() { return std::make_unique<CollapseSpaces>(); }
std::unique_ptr<TextFilter> MakeTrimEnd(std::string character) {
  return std::make_unique<TrimEnd>(std::move(character));
}
std::unique_ptr<TextFilter> MakePrepend(std::string prefix, bool at_start) {
  return std::make_unique<Prepend>(std::move(prefix), at_start);
}
std::unique_ptr<TextFilter> MakeStrip(bool left, bool right) {
  return std::make_unique<Strip>(left, right);
}

}  // namespace annulus
