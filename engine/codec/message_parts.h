#ifndef ANNULUS_ENGINE_CODEC_MESSAGE_PARTS_H_
#define ANNULUS_ENGINE_CODEC_MESSAGE_PARTS_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// What both codecs share; for engine/codec alone.

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

}  // namespace annulus::codec

#endif  // ANNULUS_ENGINE_CODEC_MESSAGE_PARTS_H_
