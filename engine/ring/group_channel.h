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

// Channels over the communicators of Backend::OpenGroup (NCCL), rank r on device r. A round is one
// group of sends and receives, so no two ranks can wait for each other. Tags, sizes and host parts
// go from thread to thread. Receive waits on the host until the group has ended, and looks at the
// communicator's errors meanwhile: a stream that waited for a group that never ends could not be
// freed. Thread-safe.
class GroupRing final : public RingGroup {
 public:
  // `timeout`: longest wait for the ranks to find each other, here and in Reset. Errors of
  // OpenGroup. `backend` must outlive the ring.
  static absl::StatusOr<std::unique_ptr<GroupRing>> Create(Backend& backend, int ranks,
                                                           std::chrono::milliseconds timeout);
  ~GroupRing() override;

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
