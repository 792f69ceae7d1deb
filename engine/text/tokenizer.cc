#include "engine/text/tokenizer.h"

#include "absl/strings/str_cat.h"

namespace annulus {

absl::StatusOr<std::string> Tokenizer::Decode(std::span<const int32_t> ids,
                                              bool skip_special) const {
  std::string bytes;
  DecodeState state;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!HasToken(ids[i])) {
      return absl::InvalidArgumentError(absl::StrCat("token id ", ids[i], " at place ", i,
                                                     " has no token; ids are in 0..",
                                                     vocabulary_size() - 1));
    }
    if (skip_special && IsSpecial(ids[i])) continue;
    DecodeNext(ids[i], &state, &bytes);
  }
  return bytes;
}

}  // namespace annulus
