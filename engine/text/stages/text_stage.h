#ifndef ANNULUS_ENGINE_TEXT_STAGES_TEXT_STAGE_H_
#define ANNULUS_ENGINE_TEXT_STAGES_TEXT_STAGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/work_meter.h"

namespace annulus {

// State shared by the stages that encode one text.
struct EncodeState {
  explicit EncodeState(WorkMeter* work) : work(work) {}

  WorkMeter* const work;                // counts the steps of all stages
  std::vector<int32_t>* ids = nullptr;  // where to append ids, during a push
  uint64_t text_bytes = 0;              // length of the text so far
  bool at_text_start = true;  // no added token found, and nothing removed from the text yet
};

// A step of converting text to ids. A stage takes a stretch of text in parts, changes or splits it,
// and passes stretches to the next stage; the model at the end appends ids.
//
// The result does not depend on where the parts are cut: a stage holds back what further text could
// change, and no more. Not thread-safe; created for a single text.
class TextStage {
 public:
  virtual ~TextStage() = default;

  // Takes the next part of a stretch, in whole UTF-8 characters; may be empty. `end`: the stretch
  // ends here, so nothing is held back and the next call starts a new stretch. Stretches without
  // text are ignored. After an error the stage must not be used again.
  virtual absl::Status Push(absl::string_view text, bool end) = 0;
};

// Creates stages of one kind: a normalizer, which makes one stretch from each stretch, or a
// pre-tokenizer, which splits stretches. Immutable and thread-safe.
class TextFilter {
 public:
  virtual ~TextFilter() = default;

  // Creates a stage for one text. The filter, `state` and `next` must outlive it.
  virtual std::unique_ptr<TextStage> NewStage(EncodeState* state, TextStage* next) const = 0;
};

using TextFilters = std::vector<std::unique_ptr<TextFilter>>;

// How many steps all stages together may take for a text. Ordinary text takes about two per byte. A
// pattern with exponential backtracking ends after a few hundredths of a second.
inline constexpr int64_t kStepsPerText = 1'000'000;
inline constexpr int64_t kStepsPerByte = 64;
inline constexpr int64_t EncodeSteps(size_t bytes) {
  return kStepsPerText + kStepsPerByte * static_cast<int64_t>(bytes);
}

// How many steps computing a file's whole-piece tokens may take.
inline constexpr int64_t kTokenizerFileSteps = int64_t{1} << 30;

// Creates the stages of `filters`, in order, and returns the first one, or `last` if there are
// none. `stages` owns them.
TextStage* ChainStages(const TextFilters& filters, EncodeState* state, TextStage* last,
                       std::vector<std::unique_ptr<TextStage>>* stages);

// Runs a whole text through `filters` and returns the resulting stretches.
absl::StatusOr<std::vector<std::string>> RunFilters(const TextFilters& filters,
                                                    absl::string_view text);

// The longest stretch without a place to split it. Such a stretch is held back until it ends, and
// the model needs up to 24 times its size to encode it.
inline constexpr size_t kMaxUncutBytes = 32 << 20;

// The INVALID_ARGUMENT for text with a longer stretch.
absl::Status UncutTextError();

// The text that a stage has received and not passed on yet.
class HeldText {
 public:
  // Adds a part. Returns false if the text should not be examined yet, because doing so after every
  // part could take quadratic time; always true if `end`. INVALID_ARGUMENT if more than
  // kMaxUncutBytes of old text are held.
  absl::StatusOr<bool> Add(absl::string_view text, bool end);

  // All held text. Valid until the next Add or Drop. It may point into the text that was added
  // last, which must still exist.
  absl::string_view view() const { return view_; }

  // Drops the first `count` bytes and keeps a copy of the rest.
  void Drop(size_t count);

 private:
  std::string held_;
  absl::string_view view_;
  size_t enough_ = 0;  // bytes to hold before Add asks to examine the text again
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_TEXT_STAGE_H_
