#ifndef ANNULUS_ENGINE_TEXT_STREAMING_ENCODER_H_
#define ANNULUS_ENGINE_TEXT_STREAMING_ENCODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/base/work_meter.h"

namespace annulus {

// Encodes one text that comes in parts. All the ids together are Tokenizer::Encode of the whole
// text, however it is cut; Encode is this with one part.
//
// An id is given as soon as no text still to come can change it and the work is worth doing. Held
// back are at most twice what the tokenizer cannot cut yet, plus the largest added token: for
// ordinary text a few words. Where a text offers no cut (one letter, repeated) that stretch is held
// back whole; a stretch of more than kMaxUncutBytes (text_stage.h) is refused. Memory is in
// proportion to the largest part, up to 64 KiB, and what is held back.
//
// Made by Tokenizer::NewStream; not thread-safe, but may move between threads.
class StreamingEncoder {
 public:
  // `cancel` must outlive the stream. Once it is set, calls end soon with CANCELLED.
  explicit StreamingEncoder(const CancelFlag& cancel);
  virtual ~StreamingEncoder() = default;

  // Takes the next bytes of the text, cut anywhere, also inside a character, and appends the ids
  // that are final to `ids`. INVALID_ARGUMENT for text that is not UTF-8, with the offset of the
  // first bad byte in the whole text, and for text that the tokenizer cannot encode. After an error
  // every call gives that error, and the ids given are of no use.
  absl::Status Append(absl::string_view bytes, std::vector<int32_t>* ids);

  // Ends the text: the ids held back and those that come behind every text. Must be the last call;
  // it is FAILED_PRECONDITION to call anything behind it.
  absl::Status Finish(std::vector<int32_t>* ids) { return Finish("", ids); }

  // Append and Finish in one.
  absl::Status Finish(absl::string_view last_bytes, std::vector<int32_t>* ids);

 protected:
  // What the work on the text counts. It allows steps in proportion to the text.
  WorkMeter& work() { return work_; }

  // The next `text`, whole characters of UTF-8. `end` is true in the last call, and only there.
  virtual absl::Status Push(absl::string_view text, bool end, std::vector<int32_t>* ids) = 0;

 private:
  absl::Status Take(absl::string_view bytes, bool end, std::vector<int32_t>* ids);
  absl::Status PushSlices(absl::string_view text, bool end, std::vector<int32_t>* ids);

  absl::Status PushSlice(absl::string_view text, bool end, std::vector<int32_t>* ids);

  WorkMeter work_;
  std::string partial_;  // the start of a character of which more bytes must come
  uint64_t offset_ = 0;  // of the next byte to push
  absl::Status status_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STREAMING_ENCODER_H_
