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

// Channels over the communicators of Backend::OpenGroup (NCCL), rank r on device r. A round is a
// row of groups of sends and receives that meet one by one, so no two ranks can wait for each
// other. Tags, sizes and host parts go from thread to thread. Receive waits on the host until the
// group has ended, and looks at the communicator's errors meanwhile: a stream that waited for a
// group that never ends could not be freed. Thread-safe.
class GroupRing final : public RingGroup {
 public:
  // `timeout`: longest wait for the ranks to find each other, here and in Reset. Errors of
  // OpenGroup. `backend` must outlive the ring.
  static absl::StatusOr<std::unique_ptr<GroupRing>> Create(Backend& backend, int ranks,
                                                           std::chrono::milliseconds timeout);
  ~GroupRing() override;

  // What a rank puts messages together in has room for a piece to every peer: long beside what a
  // group of the library costs, short beside the pages of a long document.
  static constexpr size_t kPieceBytes = size_t{8} << 20;
  static size_t SendBytes(int ranks) { return (static_cast<size_t>(ranks) - 1) * kPieceBytes; }

  RingChannel& channel(int rank) override;
  // Opens the group anew.
  absl::Status Reset() override;
  std::string description() const override { return "NCCL"; }

 private:
  class End;

  GroupRing(Backend& backend, int ranks, std::chrono::milliseconds timeout);

  Backend& backend_;
  const std::chrono::milliseconds timeout_;
  Mailboxes<RingMessage> mail_;
  std::vector<std::unique_ptr<Communicator>> members_;  // [rank]
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_GROUP_CHANNEL_H_
