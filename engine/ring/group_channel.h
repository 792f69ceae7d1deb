#ifndef ANNULUS_ENGINE_RING_GROUP_CHANNEL_H_
#define ANNULUS_ENGINE_RING_GROUP_CHANNEL_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "engine/ring/channel.h"
#include "engine/ring/event_pool.h"
#include "engine/ring/mailbox.h"

namespace annulus {

// Channels over the communicators of Backend::OpenGroup (NCCL); rank r is on device r. A round is a
// sequence of groups of sends and receives that both sides go through in the same order, so ranks
// cannot deadlock. Tags, sizes and host parts are passed between threads directly. Receive blocks
// the host until the group has ended and meanwhile checks the communicator for errors, since a
// stream waiting for a group that never ends could not be freed. Thread-safe.
class GroupRing final : public RingGroup {
 public:
  // `timeout`: how long ranks may take to find each other, here and in Reset. Returns the errors of
  // OpenGroup. Deadlines are times of `clock`; it and `backend` must outlive the ring.
  static absl::StatusOr<std::unique_ptr<GroupRing>> Create(Backend& backend, int ranks,
                                                           std::chrono::milliseconds timeout,
                                                           const Clock& clock);
  ~GroupRing() override;

  // A rank assembles messages in pieces, and its send area has room for one piece per peer.
  // Transferring a piece takes long compared with a group's overhead, but a piece is small compared
  // with the pages of a long document.
  static constexpr size_t kPieceBytes = size_t{8} << 20;
  static size_t SendBytes(int ranks) { return (static_cast<size_t>(ranks) - 1) * kPieceBytes; }

  RingChannel& channel(int rank) override;
  // Opens the group again.
  absl::Status Reset() override;
  std::string description() const override { return "NCCL"; }

 private:
  class End;

  GroupRing(Backend& backend, int ranks, std::chrono::milliseconds timeout, const Clock& clock);

  Backend& backend_;
  const Clock& clock_;
  const std::chrono::milliseconds timeout_;
  Mailboxes<RingMessage> mail_;
  std::vector<std::unique_ptr<Communicator>> members_;  // [rank]
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_GROUP_CHANNEL_H_
