#ifndef ANNULUS_ENGINE_TEXT_STAGES_PATTERN_SPLITTER_H_
#define ANNULUS_ENGINE_TEXT_STAGES_PATTERN_SPLITTER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/base/json_node.h"
#include "engine/text/stages/pattern.h"
#include "engine/text/stages/text_stage.h"

namespace annulus {

// What to do with the matches of a pattern. Results for "a-b--c" and "-":
enum class SplitBehavior {
  kRemoved,             // a, b, c
  kIsolated,            // a, -, b, -, -, c
  kMergedWithPrevious,  // a-, b-, -, c
  kMergedWithNext,      // a, -b, -, -c
  kContiguous,          // a, -, b, --, c
};

absl::StatusOr<SplitBehavior> ParseSplitBehavior(const JsonNode& node);

// The pre-tokenizer `Split`: splits at matches of a pattern. With `invert`, the ranges between
// matches are treated as matches.
class PatternSplitter : public TextFilter {
 public:
  PatternSplitter(Pattern pattern, SplitBehavior behavior, bool invert);

  // {"type": "Split", "pattern": ..., "behavior": ..., "invert": ...}
  static absl::StatusOr<std::unique_ptr<TextFilter>> Parse(const JsonNode& node);

  std::unique_ptr<TextStage> NewStage(EncodeState* state, TextStage* next) const override;

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_PATTERN_SPLITTER_H_
