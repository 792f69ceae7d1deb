#include "engine/ring/ring_round.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/memory/align.h"

namespace annulus {

absl::Status RingRound::Add(int peer, uint64_t tag, std::vector<RingPart> parts,
                            std::vector<size_t> bytes, std::span<std::byte>& slot) {
  std::byte* into = nullptr;
  if (link_.copies() && !bytes.empty()) {
    size_t needed = 0;
    for (const size_t part : bytes) needed += AlignUp(part);
    if (needed > slot.size()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "rank ", link_.rank(), " has ", slot.size(), " bytes left for what its peers send, and ",
          needed, " come from rank ", peer, "; lower chunk-tokens, or use pass-Q"));
    }
    into = slot.data();
    slot = slot.subspan(needed);
  }
  sent_.push_back({peer, tag, std::move(parts)});
  expected_.push_back({peer, tag, std::move(bytes), into});
  return absl::OkStatus();
}

absl::Status RingRound::Post() {
  return link_.Post(std::exchange(sent_, {}), std::exchange(expected_, {}));
}

}  // namespace annulus
