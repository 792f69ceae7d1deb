#include "engine/text/tokenizer.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(absl::string_view text, bool add_special,
                                                       const CancelFlag& cancel) const {
  return EncodeWith(*NewStream(add_special, cancel), text);
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodePlain(absl::string_view text,
                                                            const CancelFlag& cancel) const {
  return EncodeWith(*NewPlainStream(cancel), text);
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeWith(StreamingEncoder& stream,
                                                           absl::string_view text) const {
  ANNULUS_RETURN_IF_ERROR(usable());
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text has ", text.size(), " bytes; at most ", kMaxTextBytes));
  }
  std::vector<int32_t> ids;
  ANNULUS_RETURN_IF_ERROR(stream.Finish(text, &ids));
  return ids;
}

absl::StatusOr<std::string> Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special,
                                              const CancelFlag& cancel) const {
  ANNULUS_RETURN_IF_ERROR(usable());
  std::string bytes;
  WorkMeter work("decoding", std::numeric_limits<int64_t>::max(), cancel);
  DecodeState state;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!HasToken(ids[i])) {
      return absl::InvalidArgumentError(absl::StrCat("token id ", ids[i], " at index ", i,
                                                     " has no token; ids are in 0..",
                                                     vocabulary_size() - 1));
    }
    if (skip_special && IsSpecial(ids[i])) continue;
    const size_t before = bytes.size();
    DecodeNext(ids[i], &state, &bytes);
    ANNULUS_RETURN_IF_ERROR(work.Step(StepsFor(bytes.size() - before)));
  }
  return bytes;
}

}  // namespace annulus
