#ifndef ANNULUS_ENGINE_RING_IN_PROCESS_CHANNEL_H_
#define ANNULUS_ENGINE_RING_IN_PROCESS_CHANNEL_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/ring/channel.h"
#include "engine/ring/event_pool.h"
#include "engine/ring/mailbox_end.h"

namespace annulus {

// Channels between ranks that are threads of one process and share one memory: a message is a list
// of addresses, and nothing is copied. If the device enqueues ops, the message carries an event
// that the sender's stream records after its current work and the receiver's stream waits for; no
// host thread waits for a stream. An event returns to its pool once all receivers of its round have
// made their streams wait for it, or when the ring discards the message. Streams only wait for
// events recorded earlier, so they cannot deadlock. Thread-safe.
class InProcessRing final : public RingGroup {
 public:
  // `device`: the device of all ranks. Deadlines are times of `clock`. Both must outlive the ring.
  InProcessRing(Backend& device, int ranks, const Clock& clock = Clock::Real());
  ~InProcessRing() override;
  InProcessRing(const InProcessRing&) = delete;
  InProcessRing& operator=(const InProcessRing&) = delete;

  RingChannel& channel(int rank) override;
  absl::Status Reset() override;
  std::string description() const override { return "addresses"; }

 private:
  class End;

  const std::shared_ptr<EventPool> events_;  // null: ops are done when they return
  Mailboxes<RingLetter> mail_;
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_IN_PROCESS_CHANNEL_H_
