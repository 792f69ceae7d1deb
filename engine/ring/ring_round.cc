#include "engine/ring/ring_round.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/memory/align.h"

namespace annulus {

void RingRound::Clear() {
  sent_.clear();
  expected_.clear();
}

absl::Status RingRound::Add(int peer, uint64_t tag, RingParts parts,
                            const std::vector<size_t>& bytes, std::span<std::byte>& slot) {
  if (link_.copies() && !bytes.empty()) {
    size_t needed = 0;
    for (const size_t part : bytes) needed += AlignUp(part);
    if (needed > slot.size()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "rank ", link_.rank(), " has ", slot.size(), " bytes left for data from its peers, but ",
          needed, " arrive from rank ", peer, "; lower chunk-tokens, or use pass-Q"));
    }
    expected_.push_back({peer, tag, bytes, slot.data()});
    slot = slot.subspan(needed);
  }
  if (!parts.empty()) sent_.push_back({peer, tag, std::move(parts)});
  return absl::OkStatus();
}

absl::Status RingRound::Post() {
  const absl::Status status = link_.Post(sent_, expected_);
  Clear();
  return status;
}

}  // namespace annulus
