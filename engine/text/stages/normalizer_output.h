#ifndef ANNULUS_ENGINE_TEXT_STAGES_NORMALIZER_OUTPUT_H_
#define ANNULUS_ENGINE_TEXT_STAGES_NORMALIZER_OUTPUT_H_

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/text/stages/normalizer.h"
#include "engine/text/stages/text_stage.h"

namespace annulus {

// Passes on a normalizer's output and enforces the limit on its length.
class NormalizerOutput {
 public:
  NormalizerOutput(const EncodeState* state, TextStage* next) : state_(state), next_(next) {}

  absl::Status Push(absl::string_view text, bool end) {
    bytes_ += text.size();
    const uint64_t most = MaxNormalizedBytes(state_->text_bytes);
    if (bytes_ <= most) return next_->Push(text, end);
    return absl::InvalidArgumentError(absl::StrCat("the tokenizer's normalizer turns ",
                                                   state_->text_bytes, " bytes of text into over ",
                                                   most, ", the maximum; shorten the text"));
  }

 private:
  const EncodeState* state_;
  TextStage* next_;
  uint64_t bytes_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_NORMALIZER_OUTPUT_H_
