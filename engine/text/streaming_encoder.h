#ifndef ANNULUS_ENGINE_TEXT_STREAMING_ENCODER_H_
#define ANNULUS_ENGINE_TEXT_STREAMING_ENCODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/base/work_meter.h"

namespace annulus {

// Encodes one text given in parts. The ids together equal Tokenizer::Encode of the whole text,
// however it is cut.
//
// Returns ids that no further text can change. Not always at once: text that could not be split is
// tried again only when there is twice as much of it, so that the work stays linear. So it holds
// back at most twice what the tokenizer cannot split yet, plus the longest added token: for
// ordinary text a few words. A stretch without any place to split it (one letter, repeated) is held
// back completely, and refused if it is longer than kMaxUncutBytes (text_stage.h). Memory is
// proportional to the text held back and to the largest part, of which at most 64 KiB count.
//
// Created by Tokenizer::NewStream. Not thread-safe, but may be passed between threads.
class StreamingEncoder {
 public:
  // `cancel` must outlive the stream. Once it is set, calls soon return CANCELLED.
  explicit StreamingEncoder(const CancelFlag& cancel);
  virtual ~StreamingEncoder() = default;

  // Takes the next bytes of the text, cut anywhere, even inside a character, and appends final ids
  // to `ids`. INVALID_ARGUMENT if the text is not UTF-8, with the offset of the first bad byte in
  // the whole text, or cannot be encoded. After an error every call returns that error, and the ids
  // returned so far are useless.
  absl::Status Append(absl::string_view bytes, std::vector<int32_t>* ids);

  // Ends the text: appends the held-back ids and those added after every text. Must be the last
  // call; later ones are FAILED_PRECONDITION.
  absl::Status Finish(std::vector<int32_t>* ids) { return Finish("", ids); }

  // Append followed by Finish.
  absl::Status Finish(absl::string_view last_bytes, std::vector<int32_t>* ids);

 protected:
  // Counts the work on the text. Allows a number of steps proportional to the text.
  WorkMeter& work() { return work_; }

  // Takes the next `text`, in whole UTF-8 characters. `end` is true in the last call, and only
  // then.
  virtual absl::Status Push(absl::string_view text, bool end, std::vector<int32_t>* ids) = 0;

 private:
  absl::Status Take(absl::string_view bytes, bool end, std::vector<int32_t>* ids);
  absl::Status PushSlices(absl::string_view text, bool end, std::vector<int32_t>* ids);

  absl::Status PushSlice(absl::string_view text, bool end, std::vector<int32_t>* ids);

  WorkMeter work_;
  std::string partial_;  // an incomplete character at the end of the bytes so far
  uint64_t offset_ = 0;  // of the next byte to push
  absl::Status status_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STREAMING_ENCODER_H_
