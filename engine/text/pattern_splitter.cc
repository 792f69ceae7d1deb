#include "engine/text/pattern_splitter.h"

#include <cstddef>
#include <utility>

#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

struct Range {
  size_t begin = 0;
  size_t end = 0;  // equal to begin: none
  bool is_match = false;
};

// Adds `next`, which starts where `last` ends, to it if the behaviour says so. A range made of both
// kinds is marked so that it joins nothing more.
bool Join(SplitBehavior behavior, const Range& next, Range* last) {
  bool joins = false;
  switch (behavior) {
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kMergedWithPrevious:
      joins = !last->is_match && next.is_match;
      break;
    case SplitBehavior::kMergedWithNext:
      joins = last->is_match && !next.is_match;
      break;
    case SplitBehavior::kContiguous:
      joins = last->is_match == next.is_match;
      break;
  }
  if (joins) {
    last->end = next.end;
    last->is_match = next.is_match;
  }
  return joins;
}

absl::StatusOr<SplitBehavior> ParseBehavior(const JsonNode& node) {
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

}  // namespace

PatternSplitter::PatternSplitter(Pattern pattern, SplitBehavior behavior, bool invert)
    : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

absl::StatusOr<std::unique_ptr<PreTokenizer>> PatternSplitter::Parse(const JsonNode& node) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode pattern_node, node.Require("pattern"));
  ANNULUS_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(pattern_node));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode behavior_node, node.Require("behavior"));
  ANNULUS_ASSIGN_OR_RETURN(const SplitBehavior behavior, ParseBehavior(behavior_node));
  ANNULUS_ASSIGN_OR_RETURN(const bool invert, node.BoolMember("invert", false));
  return std::make_unique<PatternSplitter>(std::move(pattern), behavior, invert);
}

absl::Status PatternSplitter::Split(absl::string_view text, Sink sink) const {
  Range last;
  const auto emit = [&] {
    if (last.begin == last.end || (behavior_ == SplitBehavior::kRemoved && last.is_match)) {
      return absl::OkStatus();
    }
    return sink(text.substr(last.begin, last.end - last.begin));
  };
  ANNULUS_RETURN_IF_ERROR(pattern_.ForEachRange(text, [&](size_t begin, size_t end, bool is_match) {
    const Range next{begin, end, is_match != invert_};
    if (last.begin != last.end && Join(behavior_, next, &last)) return absl::OkStatus();
    ANNULUS_RETURN_IF_ERROR(emit());
    last = next;
    return absl::OkStatus();
  }));
  return emit();
}

}  // namespace annulus
