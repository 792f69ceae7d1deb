#include "tests/support/cuda/emulated_nccl.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/cuda/nccl/nccl.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/cuda/emulated_memory.h"
#include "tests/support/cuda/emulated_streams.h"

namespace annulus::cuda {
namespace {

// One half of a transfer.
struct Half {
  std::byte* data = nullptr;
  size_t bytes = 0;
  bool begun = false;
  bool ended = false;
};

struct Ring;

struct Member {
  std::shared_ptr<Ring> ring;
  int rank = 0;
  int ordinal = 0;
  StreamHandle stream = nullptr;  // of its exchanges
  bool aborted = false;
  int looks = 0;  // at what is under way
};

// The halves of all transfers in the order in which ranks asked for them.
struct Ring {
  std::recursive_mutex mutex;
  std::vector<std::weak_ptr<Member>> members;  // their handles keep them, and they the ring
  std::map<std::pair<int, int>, std::vector<std::shared_ptr<Half>>> sent;      // by (from, to)
  std::map<std::pair<int, int>, std::vector<std::shared_ptr<Half>>> received;  // by (from, to)
};

// A half and the list that its other one is in, at the same place.
struct Piece {
  std::shared_ptr<Half> half;
  std::pair<int, int> link;
  bool sends = false;
  size_t place = 0;
};

void CopyHalf(const Half& from, const Half& to) {
  ANNULUS_CHECK(from.bytes == to.bytes) << "ranks disagree about the bytes of a transfer";
  Move(to.data, from.data, from.bytes);
}

// Ends a piece whose other half has begun.
void TryPiece(Ring& ring, const Piece& piece) {
  if (piece.half->ended) return;
  auto& others = piece.sends ? ring.received[piece.link] : ring.sent[piece.link];
  if (others.size() <= piece.place) return;
  Half& other = *others[piece.place];
  if (!other.begun) return;
  CopyHalf(piece.sends ? *piece.half : other, piece.sends ? other : *piece.half);
  piece.half->ended = other.ended = true;
}

// Whether the group has ended. Begins it, and lets the peers' streams go as far as they can.
bool RunGroup(Member& member, const std::vector<Piece>& pieces) {
  Ring& ring = *member.ring;
  std::lock_guard lock(ring.mutex);
  if (member.aborted) return true;
  if (member.rank == EmulatedNccl::Get().silent_rank) return false;
  for (const Piece& piece : pieces) piece.half->begun = true;
  for (const auto& kept : ring.members) {
    const std::shared_ptr<Member> peer = kept.lock();
    if (peer == nullptr || peer.get() == &member || peer->stream == nullptr) continue;
    EmulatedStreams::Get().Run(peer->stream);
  }
  bool all = true;
  for (const Piece& piece : pieces) {
    TryPiece(ring, piece);
    all = all && piece.half->ended;
  }
  if (all) ++EmulatedNccl::Get().groups;
  return all;
}

class EmulatedLibrary final : public Nccl {
 public:
  absl::StatusOr<std::vector<NcclHandle>> Begin(std::span<const int> ordinals) override {
    auto ring = std::make_shared<Ring>();
    std::vector<NcclHandle> handles;
    for (size_t rank = 0; rank < ordinals.size(); ++rank) {
      auto member = std::make_shared<Member>();
      member->ring = ring;
      member->rank = static_cast<int>(rank);
      member->ordinal = ordinals[rank];
      for (const auto& other : ring->members) {
        ANNULUS_CHECK(other.lock()->ordinal != member->ordinal) << "two ranks on one device";
      }
      ring->members.push_back(member);
      handles.push_back(new std::shared_ptr<Member>(member));
    }
    return handles;
  }

  absl::Status Exchange(NcclHandle handle, StreamHandle stream, std::span<const NcclTransfer> sends,
                        std::span<const NcclTransfer> receives) override {
    ANNULUS_CHECK(EmulatedStreams::Get().late()) << "streams must be late";
    const std::shared_ptr<Member> member = Of(handle);
    ANNULUS_CHECK(CurrentDevice() == member->ordinal) << "the thread's device is another";
    const size_t asked = sends.size() + receives.size();
    if (asked > kMostTransfers) {
      return absl::InternalError(absl::StrCat("a group of ", asked, " transfers"));
    }
    EmulatedNccl::Get().transfers += static_cast<int64_t>(asked);
    std::vector<Piece> pieces;
    {
      std::lock_guard lock(member->ring->mutex);
      member->stream = stream;
      member->looks = 0;
      for (const auto& part : sends) pieces.push_back(Post(*member, part, true));
      for (const auto& part : receives) pieces.push_back(Post(*member, part, false));
    }
    EmulatedStreams::Get().Enqueue(stream, [member, pieces] { return RunGroup(*member, pieces); });
    return absl::OkStatus();
  }

  // What is asked is first under way for a while.
  absl::StatusOr<bool> Settled(NcclHandle handle) override {
    const std::shared_ptr<Member> member = Of(handle);
    std::lock_guard lock(member->ring->mutex);
    if (member->rank == EmulatedNccl::Get().failing_rank) {
      return absl::UnavailableError("an exchange: a peer is gone, says the emulated NCCL");
    }
    return EmulatedNccl::Get().opens && ++member->looks > 2;
  }

  // Waits for what its kernels have begun.
  void Abort(NcclHandle handle) override {
    WaitWhileHanging(Of(handle)->ordinal);
    {
      const std::shared_ptr<Member> member = Of(handle);
      std::lock_guard lock(member->ring->mutex);
      member->aborted = true;
      member->stream = nullptr;
    }
    delete static_cast<std::shared_ptr<Member>*>(handle);
  }

 private:
  static std::shared_ptr<Member>& Of(NcclHandle handle) {
    return *static_cast<std::shared_ptr<Member>*>(handle);
  }

  static Piece Post(Member& member, const NcclTransfer& part, bool sends) {
    const std::pair<int, int> link =
        sends ? std::pair(member.rank, part.peer) : std::pair(part.peer, member.rank);
    auto& list = sends ? member.ring->sent[link] : member.ring->received[link];
    list.push_back(std::make_shared<Half>(Half{part.data, part.bytes}));
    return {list.back(), link, sends, list.size() - 1};
  }
};

}  // namespace

EmulatedNccl& EmulatedNccl::Get() {
  static EmulatedNccl nccl;
  return nccl;
}

absl::StatusOr<std::unique_ptr<Nccl>> OpenNccl() {
  if (!EmulatedNccl::Get().library) {
    return absl::FailedPreconditionError("the emulated devices have no NCCL");
  }
  return std::make_unique<EmulatedLibrary>();
}

}  // namespace annulus::cuda
