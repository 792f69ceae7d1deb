#include "engine/text/stages/text_stage.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

class Collector : public TextStage {
 public:
  explicit Collector(std::vector<std::string>* stretches) : stretches_(stretches) {}

  absl::Status Push(absl::string_view text, bool end) override {
    stretch_.append(text.data(), text.size());
    if (end && !stretch_.empty()) stretches_->push_back(std::move(stretch_));
    if (end) stretch_.clear();
    return absl::OkStatus();
  }

 private:
  std::string stretch_;
  std::vector<std::string>* stretches_;
};

}  // namespace

TextStage* ChainStages(const TextFilters& filters, EncodeState* state, TextStage* last,
                       std::vector<std::unique_ptr<TextStage>>* stages) {
  for (size_t i = filters.size(); i-- > 0;) {
    stages->push_back(filters[i]->NewStage(state, last));
    last = stages->back().get();
  }
  return last;
}

absl::StatusOr<std::vector<std::string>> RunFilters(const TextFilters& filters,
                                                    absl::string_view text) {
  std::vector<std::string> stretches;
  Collector collector(&stretches);
  std::vector<std::unique_ptr<TextStage>> stages;
  WorkMeter work("the text's encoding", EncodeSteps(text.size()), CancelFlag::Never());
  EncodeState state(&work);
  state.text_bytes = text.size();
  ANNULUS_RETURN_IF_ERROR(ChainStages(filters, &state, &collector, &stages)->Push(text, true));
  return stretches;
}

absl::Status UncutTextError() {
  return absl::InvalidArgumentError(
      absl::StrCat("the text has more than ", kMaxUncutBytes,
                   " bytes without a place to split it; add white space or line breaks"));
}

absl::StatusOr<bool> HeldText::Add(absl::string_view text, bool end) {
  if (held_.size() > kMaxUncutBytes) return UncutTextError();
  if (held_.empty() && (end || text.size() >= enough_)) {
    view_ = text;
    return true;
  }
  held_.append(text.data(), text.size());
  view_ = held_;
  return end || held_.size() >= enough_;
}

void HeldText::Drop(size_t count) {
  if (held_.empty()) {
    held_.assign(view_.data() + count, view_.size() - count);
  } else {
    held_.erase(0, count);
  }
  view_ = held_;
  // Looking takes time in proportion to the text, so old text is looked at again only together with
  // as much that is new.
  enough_ = 2 * held_.size();
}

}  // namespace annulus
