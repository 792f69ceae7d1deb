#ifndef ANNULUS_ENGINE_RING_WIRE_WIRE_H_
#define ANNULUS_ENGINE_RING_WIRE_WIRE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/ring/channel.h"
#include "engine/ring/wire/carrier.h"

namespace annulus {

// Frames that a wire has dropped.
struct WireCounters {
  int64_t old_epochs = 0;  // of rings before this one
  // Not a frame; for or from another rank; of a later epoch; or one that came already.
  int64_t strays = 0;
};

// The end of one rank of a ring whose ranks lie in several processes, for one epoch of that ring:
// when a ring forms anew, its ranks open new wires. Messages between two ranks are matched in the
// order in which one sends and the other expects them, in whatever order they travel.
//
// - Nothing is received without a place to arrive in: a frame whose expectation is not there yet
//   waits, with the sender if it is long. A peer that runs ahead by more than kMostEarlyFrames, or
//   by more than kMostEarlyBytes kept here, ends the epoch (RESOURCE_EXHAUSTED).
// - What arrives is compared with the expectation: another tag or other sizes are INTERNAL, a wrong
//   checksum is DATA_LOSS. Both name the peer and end the epoch. Frames that are none of this
//   ring's are dropped and counted.
// - A peer whose link fails ends the epoch with UNAVAILABLE, naming the peer.
// - Once the epoch has ended, by the above or by Abort, all calls return the first reason, and
//   waits end at once. Places may still be written, and parts read, until the wire is destroyed.
//
// Waits sleep. Local deadlines do not end the epoch. Thread-safe, except that messages of one peer
// must be sent, expected and received by one thread at a time.
class Wire final : private CarrierSink {
 public:
  static constexpr size_t kMostEarlyFrames = 4096;
  static constexpr size_t kMostEarlyBytes = size_t{64} << 20;

  // The end of `rank`, in [0, ranks). Deadlines are times of `clock`, which must outlive the wire.
  Wire(std::unique_ptr<Carrier> carrier, int rank, int ranks, uint64_t epoch, const Clock& clock);
  // Ends all transfers. Whoever wants its last messages to arrive flushes before.
  ~Wire() override;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(peers_.size()); }

  // See Carrier.
  const std::string& address() const { return carrier_->address(); }
  // Connects with all others, whose addresses are given by rank. Call once, before Send. Frames of
  // ranks that have connected already may arrive before. A rank that has left already is lost: the
  // epoch ends. INVALID_ARGUMENT if an address is none.
  absl::Status Connect(std::span<const std::string> addresses);

  // Begins to send a message. `parts` must stay unchanged until the peer has received it, and their
  // memory must stay until Flush has returned as well.
  absl::Status Send(int peer, uint64_t tag, const RingParts& parts);

  // Gives the next message of `peer` its place: parts are laid out from `into` on, each aligned to
  // kMemoryAlignment. The memory belongs to the wire until Receive has returned the message.
  absl::Status Expect(int peer, uint64_t tag, std::span<const size_t> part_bytes, std::byte* into);

  // Waits for the first message of `peer` that was expected and not yet received, which must be the
  // one described. DEADLINE_EXCEEDED, naming the peer, if `deadline` passes; the call may then be
  // repeated. INTERNAL if no message, or another one, was expected.
  absl::StatusOr<RingParts> Receive(int peer, uint64_t tag, std::span<const size_t> part_bytes,
                                    SteadyTime deadline);

  // Waits until all that was sent has left: nothing reads its memory any more. The wire may be
  // destroyed once the others have it. DEADLINE_EXCEEDED if `deadline` passes.
  absl::Status Flush(SteadyTime deadline);

  // Ends the epoch here; others are not told. The first status wins; it must not be OK.
  void Abort(const absl::Status& status);

  WireCounters counters() const;

 private:
  enum class Progress { kAwaited, kArriving, kArrived };

  struct Expected {
    uint64_t tag = 0;
    uint64_t layout = 0;
    size_t bytes = 0;
    std::vector<RingPlace> places;
    RingParts parts;
    Progress progress = Progress::kAwaited;
  };
  // A frame that came before it was expected.
  struct Early {
    FrameHeader header;
    size_t memory = 0;
    uint64_t frame = 0;
  };
  struct Peer {
    uint64_t sent = 0;                // messages
    uint64_t received = 0;            // messages that Receive has returned
    std::deque<Expected> expected;    // those after; addresses of entries stay valid
    std::map<uint64_t, Early> early;  // [number]
    size_t early_memory = 0;
  };
  // What a frame leads to once the lock is released, as a carrier may call back.
  struct Landing {
    enum What { kKeep, kDrop, kReceive } what = kKeep;
    std::vector<RingPlace> places;
  };

  void OnFrame(std::span<const std::byte> header, size_t bytes, size_t memory,
               uint64_t frame) override;
  void OnLost(int peer, const absl::Status& why) override;

  void EndEpoch(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndByLoss(int peer, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Landing Sort(const FrameHeader& header, size_t bytes, size_t memory, uint64_t frame)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Landing KeepEarly(const FrameHeader& header, size_t memory, uint64_t frame)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Landing Match(const FrameHeader& header, Expected& expected)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Land(const FrameHeader& header, uint64_t frame, Landing landing);
  void FinishReceive(const FrameHeader& header, const absl::Status& status);
  std::string Name(const FrameHeader& header) const;

  const int rank_;
  const uint64_t epoch_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);   // OK: the epoch lasts
  std::vector<Peer> peers_;                      // [rank]; what is in them is guarded by mutex_
  int64_t leaving_ ABSL_GUARDED_BY(mutex_) = 0;  // messages that have not left
  WireCounters counters_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Carrier> carrier_;  // the last: it calls until it is destroyed
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_WIRE_WIRE_H_
