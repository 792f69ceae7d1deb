#ifndef ANNULUS_ENGINE_CODEC_MESSAGE_PARTS_H_
#define ANNULUS_ENGINE_CODEC_MESSAGE_PARTS_H_

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message_lite.h>
#include <google/protobuf/repeated_field.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// Helpers for the codecs of plans and results. Only for engine/codec.

namespace annulus::codec {

template <typename Element>
void Put(const std::vector<Element>& from, google::protobuf::RepeatedField<Element>* to) {
  to->Add(from.begin(), from.end());
}

template <typename Element>
std::vector<Element> Take(const google::protobuf::RepeatedField<Element>& from) {
  return {from.begin(), from.end()};
}

inline absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("the peer sent ", what));
}

// OK if low <= value < end.
inline absl::Status Within(absl::string_view what, int64_t value, int64_t low, int64_t end) {
  if (low <= value && value < end) return absl::OkStatus();
  return Wrong(absl::StrCat(what, " ", value, "; allowed are ", low, " to ", end - 1));
}

inline constexpr int64_t kPositions = int64_t{std::numeric_limits<int32_t>::max()} + 1;

// OK if the value can be summed: not NaN, not infinite, not negative.
inline absl::Status Countable(absl::string_view what, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return Wrong(absl::StrCat(what, " ", value, "; allowed are finite numbers from 0"));
}

// Serializes `message`: equal messages give equal bytes, as the entries of a map are sorted.
// RESOURCE_EXHAUSTED if it is longer than `most` bytes.
inline absl::StatusOr<std::string> Encode(const google::protobuf::MessageLite& message,
                                          absl::string_view what, size_t most) {
  const size_t size = message.ByteSizeLong();
  if (size > most) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " takes ", size, " bytes and at most ", most,
                     " are allowed; lower --chunk-tokens, or request fewer details at once"));
  }
  std::string bytes;
  bytes.reserve(size);
  bool written = false;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    written = message.SerializeToCodedStream(&coded);
  }  // gives back what was not written of the stream's last buffer
  if (!written) return absl::InternalError(absl::StrCat(what, " could not be written"));
  return bytes;
}

// Parses `bytes` into `message`. INVALID_ARGUMENT if there are more than `most` bytes (checked
// before parsing) or if they are not such a message.
inline absl::Status Parse(absl::string_view bytes, absl::string_view what, size_t most,
                          google::protobuf::MessageLite& message) {
  if (bytes.size() > most || bytes.size() > std::numeric_limits<int32_t>::max()) {
    return Wrong(
        absl::StrCat(what, " of ", bytes.size(), " bytes; at most ", most, " are accepted"));
  }
  if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return absl::OkStatus();
  return Wrong(absl::StrCat("bytes that are no ", what));
}

}  // namespace annulus::codec

#endif  // ANNULUS_ENGINE_CODEC_MESSAGE_PARTS_H_
