#ifndef ANNULUS_ENGINE_TEXT_TEXT_STAGE_H_
#define ANNULUS_ENGINE_TEXT_TEXT_STAGE_H_

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

// What the stages that encode one text share.
struct EncodeState {
  explicit EncodeState(WorkMeter* work) : work(work) {}

  WorkMeter* const work;                // counts the steps of all stages
  std::vector<int32_t>* ids = nullptr;  // where ids go, during a push
  uint64_t text_bytes = 0;              // length of the text so far
  bool at_text_start = true;  // no added token was found and nothing was left out of the text yet
};

// A step on the way from a text to ids. A stage is given a stretch of text in parts, changes or
// cuts it, and gives stretches to the next stage, until the model appends ids.
//
// What comes out does not depend on where the parts are cut: a stage holds back what text still to
// come could change, and no more. Not thread-safe; made anew for each text.
class TextStage {
 public:
  virtual ~TextStage() = default;

  // The next part of a stretch: whole characters of UTF-8, may be empty. With `end` the stretch
  // ends behind it: nothing is held back, and the next call starts a new stretch. A stretch without
  // text is none. After an error the stage must not be used again.
  virtual absl::Status Push(absl::string_view text, bool end) = 0;
};

// A kind of stage that gives text to another one: a normalizer, which makes one stretch of each
// stretch, or a pre-tokenizer, which cuts stretches into more. Immutable and thread-safe.
class TextFilter {
 public:
  virtual ~TextFilter() = default;

  // A stage for one text. The filter, `state` and `next` must outlive it.
  virtual std::unique_ptr<TextStage> NewStage(EncodeState* state, TextStage* next) const = 0;
};

using TextFilters = std::vector<std::unique_ptr<TextFilter>>;

// Steps that all stages together may take for a text. Ordinary text takes about two for each byte.
// A pattern that explodes ends after a few hundredths of a second.
inline constexpr int64_t kStepsPerText = 1'000'000;
inline constexpr int64_t kStepsPerByte = 64;
inline constexpr int64_t EncodeSteps(size_t bytes) {
  return kStepsPerText + kStepsPerByte * static_cast<int64_t>(bytes);
}

// Steps that finding a file's whole tokens may take.
inline constexpr int64_t kTokenizerFileSteps = int64_t{1} << 30;

// Makes the stages of `filters`, in order, and gives the first one, or `last` where there is none.
// `stages` owns them.
TextStage* ChainStages(const TextFilters& filters, EncodeState* state, TextStage* last,
                       std::vector<std::unique_ptr<TextStage>>* stages);

// Runs a whole text through `filters` and gives the stretches that come out.
absl::StatusOr<std::vector<std::string>> RunFilters(const TextFilters& filters,
                                                    absl::string_view text);

// A stretch that a tokenizer cannot cut is held back until it ends, and the model needs up to 24
// times as much memory to encode it.
inline constexpr size_t kMaxUncutBytes = 32 << 20;

// INVALID_ARGUMENT for text with such a stretch.
absl::Status UncutTextError();

// The text that a stage has been given and has not passed on yet.
class HeldText {
 public:
  // Adds a part. False: it is not worth looking at yet, since that could take quadratic time; only
  // when `end` is false. INVALID_ARGUMENT for more than kMaxUncutBytes of old text.
  absl::StatusOr<bool> Add(absl::string_view text, bool end);

  // All there is; valid until the next Add or Drop, and as long as the text last added.
  absl::string_view view() const { return view_; }

  // Drops the first `count` bytes and keeps a copy of the rest.
  void Drop(size_t count);

 private:
  std::string held_;
  absl::string_view view_;
  size_t enough_ = 0;  // text shorter than this was looked at in vain
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_TEXT_STAGE_H_
