#include "engine/text/character_filters.h"

#include <string>

#include "engine/text/normalizer_output.h"
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

}  // namespace

std::unique_ptr<TextFilter> MakeUnicodeNormalizer(NormalForm form) {
  return std::make_unique<UnicodeNormalizer>(form);
}
std::unique_ptr<TextFilter> MakeLowercase() { return std::make_unique<Lowercase>(); }
std::unique_ptr<TextFilter> MakeStrip(bool left, bool right) {
  return std::make_unique<Strip>(left, right);
}

}  // namespace annulus
