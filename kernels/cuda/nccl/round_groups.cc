#include "kernels/cuda/nccl/round_groups.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/cuda/copy_many.h"

namespace annulus::cuda {
namespace {

using Message = Communicator::Message;
using Part = Communicator::Part;

size_t Aligned(size_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

// A message of many parts, as it travels.
struct Layout {
  std::vector<size_t> offsets;  // [part]
  size_t bytes = 0;
};

Layout LayoutOf(const Message& message) {
  Layout layout;
  for (const Part& part : message.parts) {
    layout.offsets.push_back(Aligned(layout.bytes));
    layout.bytes = layout.offsets.back() + part.bytes;
  }
  return layout;
}

// Adds a copy, or extends the last one if the new one is contiguous.
void AddCopy(const DeviceCopy& copy, std::vector<DeviceCopy>& copies) {
  const bool goes_on = !copies.empty() && copies.back().to + copies.back().bytes == copy.to &&
                       copies.back().from + copies.back().bytes == copy.from;
  if (goes_on) {
    copies.back().bytes += copy.bytes;
  } else {
    copies.push_back(copy);
  }
}

// Fills the groups with the messages of one direction, one after the other.
class Cutter {
 public:
  Cutter(size_t piece_bytes, std::vector<RoundGroup>& groups)
      : piece_bytes_(piece_bytes), groups_(groups) {}

  // `region`: of the area, for this peer.
  void Send(const Message& message, std::byte* region) {
    if (message.parts.size() < kFewestPulls) return AddSingly(message, &RoundGroup::sends);
    const Layout layout = LayoutOf(message);
    const size_t first = Place(message.peer, layout.bytes);
    const std::vector<std::vector<DeviceCopy>> pieces = CutParts(message, layout, region);
    for (size_t n = 0; n < pieces.size(); ++n) {
      RoundGroup& group = groups_[first + n];
      const size_t bytes = std::min(piece_bytes_, layout.bytes - n * piece_bytes_);
      std::byte* from = region;
      if (pieces[n].size() == 1 && pieces[n][0].bytes == bytes) {
        // Transfers have one type for both directions; sent parts are only read.
        from = const_cast<std::byte*>(pieces[n][0].from);
      } else {
        group.packs.insert(group.packs.end(), pieces[n].begin(), pieces[n].end());
      }
      group.sends.push_back({message.peer, from, bytes});
    }
  }

  void Receive(const Message& message) {
    if (message.parts.size() < kFewestPulls) return AddSingly(message, &RoundGroup::receives);
    const Layout layout = LayoutOf(message);
    std::byte* const into = message.parts[0].data;
    for (size_t i = 0; i < message.parts.size(); ++i) {
      ANNULUS_CHECK(message.parts[i].data == into + layout.offsets[i])
          << "part " << i << " of a message is not received at its place";
    }
    const size_t first = Place(message.peer, layout.bytes);
    for (size_t n = 0; n < Pieces(layout.bytes); ++n) {
      const size_t begin = n * piece_bytes_;
      groups_[first + n].receives.push_back(
          {message.peer, into + begin, std::min(piece_bytes_, layout.bytes - begin)});
    }
  }

 private:
  // Where the next message of a peer may begin.
  struct Next {
    size_t group = 0;
    bool region_taken = false;  // in that group
  };

  size_t Pieces(size_t bytes) const { return (bytes + piece_bytes_ - 1) / piece_bytes_; }

  // The copies that put each piece together in the region.
  std::vector<std::vector<DeviceCopy>> CutParts(const Message& message, const Layout& layout,
                                                std::byte* region) const {
    std::vector<std::vector<DeviceCopy>> pieces(Pieces(layout.bytes));
    for (size_t i = 0; i < message.parts.size(); ++i) {
      const Part& part = message.parts[i];
      for (size_t begin = 0; begin < part.bytes;) {
        const size_t at = layout.offsets[i] + begin;
        const size_t bytes = std::min(part.bytes - begin, piece_bytes_ - at % piece_bytes_);
        AddCopy({region + at % piece_bytes_, part.data + begin, bytes}, pieces[at / piece_bytes_]);
        begin += bytes;
      }
    }
    return pieces;
  }

  void AddSingly(const Message& message, std::vector<NcclTransfer> RoundGroup::*list) {
    const size_t group = next_[message.peer].group;
    if (groups_.size() <= group) groups_.resize(group + 1);
    for (const Part& part : message.parts) {
      (groups_[group].*list).push_back({message.peer, part.data, part.bytes});
    }
  }

  // The group of the first piece. Messages of a peer meet in order, and a group has one piece of
  // the peer's region.
  size_t Place(int peer, size_t bytes) {
    Next& next = next_[peer];
    const size_t first = next.region_taken ? next.group + 1 : next.group;
    next = {first + Pieces(bytes) - 1, true};
    if (groups_.size() <= next.group) groups_.resize(next.group + 1);
    return first;
  }

  const size_t piece_bytes_;
  std::vector<RoundGroup>& groups_;
  std::map<int, Next> next_;  // [peer]
};

}  // namespace

absl::StatusOr<std::vector<RoundGroup>> CutRound(std::span<const Message> sends,
                                                 std::span<const Message> receives,
                                                 std::span<std::byte> area, int rank, int ranks) {
  const size_t peers = static_cast<size_t>(ranks) - 1;
  const size_t piece = peers == 0 ? 0 : area.size() / peers / kPartAlignment * kPartAlignment;
  if (piece == 0) {
    return absl::InternalError(absl::StrCat("rank ", rank, " of ", ranks, " has ", area.size(),
                                            " bytes to put messages together; it needs ",
                                            kPartAlignment, " for each peer"));
  }
  std::vector<RoundGroup> groups;
  Cutter sent(piece, groups);
  for (const Message& message : sends) {
    const auto index = static_cast<size_t>(message.peer < rank ? message.peer : message.peer - 1);
    sent.Send(message, area.data() + index * piece);
  }
  Cutter received(piece, groups);
  for (const Message& message : receives) received.Receive(message);
  return groups;
}

}  // namespace annulus::cuda
