#ifndef ANNULUS_ENGINE_RING_CHECK_MESSAGE_H_
#define ANNULUS_ENGINE_RING_CHECK_MESSAGE_H_

#include <span>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/ring/channel.h"

namespace annulus {

// The message that a rank expects next.
struct WantedMessage {
  uint64_t tag = 0;
  std::span<const size_t> part_bytes;
};

// INTERNAL if the message that came from `peer` is not the one `rank` wants.
inline absl::Status CheckMessage(int rank, int peer, const WantedMessage& wanted,
                                 const RingMessage& came) {
  bool equal = came.tag == wanted.tag && came.parts.size() == wanted.part_bytes.size();
  for (size_t i = 0; equal && i < wanted.part_bytes.size(); ++i) {
    equal = came.parts[i].bytes == wanted.part_bytes[i];
  }
  if (equal) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("rank ", rank, " expected message ", wanted.tag, " of ",
                                          wanted.part_bytes.size(), " parts from rank ", peer,
                                          ", got ", came.tag, " of ", came.parts.size(),
                                          " parts, or other sizes"));
}

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_CHECK_MESSAGE_H_
