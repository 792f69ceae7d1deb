#ifndef ANNULUS_ENGINE_RING_IN_PROCESS_CHANNEL_H_
#define ANNULUS_ENGINE_RING_IN_PROCESS_CHANNEL_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/ring/channel.h"
#include "engine/ring/event_pool.h"
#include "engine/ring/mailbox.h"

namespace annulus {

// Channels between ranks that are threads of one process and share one memory: a message is a list
// of addresses, and nothing is copied. Where ops are enqueued, it comes with an event that the
// sender's stream records behind what it has so far, and that the receiver's stream awaits: no host
// waits for a stream. An event goes back to its pool when the last receiver of its round has let
// its stream await it, or when the ring forgets the message. Streams wait only for what had been
// recorded before, so never in a circle. Thread-safe.
class InProcessRing final : public RingGroup {
 public:
  // `device`: that of all ranks; must outlive the ring.
  InProcessRing(Backend& device, int ranks);
  ~InProcessRing() override;
  InProcessRing(const InProcessRing&) = delete;
  InProcessRing& operator=(const InProcessRing&) = delete;

  RingChannel& channel(int rank) override;
  absl::Status Reset() override;
  std::string description() const override { return "addresses"; }

 private:
  class End;
  struct Letter {
    RingMessage message;
    std::shared_ptr<Event> written;  // on the sender's stream; null: when it was posted
  };

  const std::shared_ptr<EventPool> events_;  // null: ops are done when they return
  Mailboxes<Letter> mail_;
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_IN_PROCESS_CHANNEL_H_
