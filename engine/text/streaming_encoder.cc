#include "engine/text/streaming_encoder.h"

#include <algorithm>

#include "engine/text/stages/text_stage.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kSliceBytes =
    64 << 10;  // stays in the second cache level, with what is made of it

}  // namespace

StreamingEncoder::StreamingEncoder(const CancelFlag& cancel)
    : work_("the text's encoding", kStepsPerText, cancel) {}

absl::Status StreamingEncoder::Append(absl::string_view bytes, std::vector<int32_t>* ids) {
  if (status_.ok()) status_ = Take(bytes, false, ids);
  return status_;
}

absl::Status StreamingEncoder::Finish(absl::string_view last_bytes, std::vector<int32_t>* ids) {
  ANNULUS_RETURN_IF_ERROR(status_);
  const absl::Status result = Take(last_bytes, true, ids);
  status_ = result.ok() ? absl::FailedPreconditionError("the text has ended") : result;
  return result;
}

absl::Status StreamingEncoder::Take(absl::string_view bytes, bool end, std::vector<int32_t>* ids) {
  while (!partial_.empty() && !bytes.empty()) {
    partial_.push_back(bytes.front());
    bytes.remove_prefix(1);
    if (IncompleteUtf8Suffix(partial_) == partial_.size()) continue;
    if (FirstInvalidUtf8(partial_).has_value()) return InvalidUtf8Error(offset_);
    ANNULUS_RETURN_IF_ERROR(PushSlices(partial_, false, ids));
    partial_.clear();
  }
  if (end && !partial_.empty()) return InvalidUtf8Error(offset_);
  const absl::string_view rest = bytes.substr(bytes.size() - IncompleteUtf8Suffix(bytes));
  const absl::string_view whole = bytes.substr(0, bytes.size() - rest.size());
  if (const auto bad = FirstInvalidUtf8(whole); bad.has_value()) {
    return InvalidUtf8Error(offset_ + *bad);
  }
  if (end && !rest.empty()) return InvalidUtf8Error(offset_ + whole.size());
  partial_.append(rest.data(), rest.size());
  return PushSlices(whole, end, ids);
}

absl::Status StreamingEncoder::PushSlices(absl::string_view text, bool end,
                                          std::vector<int32_t>* ids) {
  while (text.size() > kSliceBytes) {
    const absl::string_view slice = TruncateUtf8(text, kSliceBytes);
    ANNULUS_RETURN_IF_ERROR(PushSlice(slice, false, ids));
    offset_ += slice.size();
    text.remove_prefix(slice.size());
  }
  offset_ += text.size();
  return text.empty() && !end ? absl::OkStatus() : PushSlice(text, end, ids);
}

absl::Status StreamingEncoder::PushSlice(absl::string_view text, bool end,
                                         std::vector<int32_t>* ids) {
  work_.Allow(kStepsPerByte * static_cast<int64_t>(text.size()));
  ANNULUS_RETURN_IF_ERROR(work_.Step(StepsFor(text.size())));
  return Push(text, end, ids);
}

}  // namespace annulus
