#ifndef ANNULUS_ENGINE_RING_IN_PROCESS_CHANNEL_H_
#define ANNULUS_ENGINE_RING_IN_PROCESS_CHANNEL_H_

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/ring/channel.h"

namespace annulus {

// Channels between ranks that are threads of one process: a message is a list of addresses, nothing
// is copied. Thread-safe.
class InProcessRing {
 public:
  explicit InProcessRing(int ranks);
  ~InProcessRing();
  InProcessRing(const InProcessRing&) = delete;
  InProcessRing& operator=(const InProcessRing&) = delete;

  // The end of `rank`; lives as long as the ring.
  RingChannel& channel(int rank);

  // Forgets all messages and an abort. Only while no rank is in a call.
  void Reset();

 private:
  struct Message {
    uint64_t tag = 0;
    std::vector<RingPart> parts;
  };
  // Everything that has been sent to one rank and not received. std::condition_variable waits on
  // the steady clock; absl::Mutex would turn the deadline into wall-clock time.
  struct Mailbox {
    std::mutex mutex;
    std::condition_variable arrived;
    std::vector<std::deque<Message>> from;  // [sender]
    absl::Status aborted;
  };
  class End;

  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_IN_PROCESS_CHANNEL_H_
