#include "engine/text/stages/pattern_splitter.h"

#include <utility>

#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Whether a range joins the piece in front of it. A piece counts as a match when the last range
// that joined it is one.
bool Joins(SplitBehavior behavior, bool piece_is_match, bool range_is_match) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      return false;
    case SplitBehavior::kMergedWithPrevious:
      return !piece_is_match && range_is_match;
    case SplitBehavior::kMergedWithNext:
      return piece_is_match && !range_is_match;
    case SplitBehavior::kContiguous:
      return piece_is_match == range_is_match;
  }
  return false;
}

class SplitStage : public TextStage {
 public:
  SplitStage(std::unique_ptr<RangeScanner> scanner, SplitBehavior behavior, bool invert,
             EncodeState* state, TextStage* next)
      : scanner_(std::move(scanner)),
        behavior_(behavior),
        invert_(invert),
        state_(state),
        next_(next) {}

  absl::Status Push(absl::string_view text, bool end) override {
    ANNULUS_RETURN_IF_ERROR(
        scanner_->Push(text, end, [this](absl::string_view range, bool is_match) {
          return is_match ? Match(range) : Gap(range);
        }));
    if (!end) return absl::OkStatus();
    in_gap_ = false;
    return EndPiece();
  }

 private:
  absl::Status Gap(absl::string_view part) {
    if (!in_gap_) ANNULUS_RETURN_IF_ERROR(StartRange(invert_));
    in_gap_ = true;
    if (Removes(invert_)) return absl::OkStatus();
    return next_->Push(part, false);
  }

  absl::Status Match(absl::string_view match) {
    in_gap_ = false;
    ANNULUS_RETURN_IF_ERROR(StartRange(!invert_));
    if (Removes(!invert_)) return absl::OkStatus();
    // What no range can join any more goes in one call.
    open_ = Joins(behavior_, !invert_, false) || Joins(behavior_, !invert_, true);
    return next_->Push(match, !open_);
  }

  bool Removes(bool is_match) {
    if (behavior_ != SplitBehavior::kRemoved || !is_match) return false;
    state_->at_text_start = false;
    return true;
  }

  absl::Status StartRange(bool is_match) {
    if (open_ && !Joins(behavior_, is_match_, is_match)) ANNULUS_RETURN_IF_ERROR(EndPiece());
    open_ = true;
    is_match_ = is_match;
    return absl::OkStatus();
  }

  absl::Status EndPiece() {
    const bool was_open = std::exchange(open_, false);
    return was_open ? next_->Push("", true) : absl::OkStatus();
  }

  std::unique_ptr<RangeScanner> scanner_;
  SplitBehavior behavior_;
  bool invert_;
  EncodeState* state_;
  TextStage* next_;
  bool in_gap_ = false;
  bool open_ = false;  // a piece was started and not ended
  bool is_match_ = false;
};

}  // namespace

absl::StatusOr<SplitBehavior> ParseSplitBehavior(const JsonNode& node) {
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view name, node.String());
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return node.Unsupported(
      "behavior", name,
      {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"});
}

PatternSplitter::PatternSplitter(Pattern pattern, SplitBehavior behavior, bool invert)
    : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

absl::StatusOr<std::unique_ptr<TextFilter>> PatternSplitter::Parse(const JsonNode& node) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode pattern_node, node.Require("pattern"));
  ANNULUS_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(pattern_node));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode behavior_node, node.Require("behavior"));
  ANNULUS_ASSIGN_OR_RETURN(const SplitBehavior behavior, ParseSplitBehavior(behavior_node));
  ANNULUS_ASSIGN_OR_RETURN(const bool invert, node.BoolMember("invert", false));
  return std::make_unique<PatternSplitter>(std::move(pattern), behavior, invert);
}

std::unique_ptr<TextStage> PatternSplitter::NewStage(EncodeState* state, TextStage* next) const {
  return std::make_unique<SplitStage>(pattern_.NewScanner(state->work), behavior_, invert_, state,
                                      next);
}

}  // namespace annulus
