#ifndef ANNULUS_ENGINE_RING_IN_PROCESS_CHANNEL_H_
#define ANNULUS_ENGINE_RING_IN_PROCESS_CHANNEL_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/ring/channel.h"
#include "engine/ring/mailbox.h"

namespace annulus {

// Channels between ranks that are threads of one process and share one memory: a message is a list
// of addresses, nothing is copied, and Post waits for the stream that has written them.
// Thread-safe.
class InProcessRing final : public RingGroup {
 public:
  explicit InProcessRing(int ranks);
  ~InProcessRing() override;
  InProcessRing(const InProcessRing&) = delete;
  InProcessRing& operator=(const InProcessRing&) = delete;

  RingChannel& channel(int rank) override;
  absl::Status Reset() override;
  std::string description() const override { return "addresses"; }

 private:
  class End;

  Mailboxes<RingMessage> mail_;
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_IN_PROCESS_CHANNEL_H_
