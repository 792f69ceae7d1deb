#ifndef ANNULUS_ENGINE_RING_COPY_CHANNEL_H_
#define ANNULUS_ENGINE_RING_COPY_CHANNEL_H_

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/ring/channel.h"
#include "engine/ring/event_pool.h"
#include "engine/ring/mailbox.h"

namespace annulus {

// Channels between ranks that are threads of one process, on several devices: rank r on device r
// modulo their number. What lies on another device is copied by a link of the two, as soon as both
// the message and its expectation have been posted: whoever comes second enqueues the copy, behind
// an event of the sender's stream and one of the receiver's. The receiver's stream waits for the
// copy by an event. Between ranks of one device addresses are handed over, with an event in place
// of the copy's. Thread-safe.
class CopyRing final : public RingGroup {
 public:
  // FAILED_PRECONDITION where there can be no such link; RESOURCE_EXHAUSTED where one gets no
  // memory. `backend` must outlive the ring.
  static absl::StatusOr<std::unique_ptr<CopyRing>> Create(Backend& backend, int ranks,
                                                          LinkKind kind);
  ~CopyRing() override;

  RingChannel& channel(int rank) override;
  absl::Status Reset() override;
  std::string description() const override;

 private:
  class End;
  using SharedEvent = std::shared_ptr<Event>;

  struct Outgoing {
    RingMessage message;
    SharedEvent written;  // on the sender's stream
  };
  struct Incoming {
    RingExpectation expectation;
    SharedEvent unread;  // on the receiver's stream: nothing earlier reads `into`
  };
  // What is there for the receiver, or on its way.
  struct Letter {
    absl::Status status;
    RingMessage message;  // parts as the receiver reads them
    SharedEvent arrived;  // null: there is nothing to wait for
    bool copied = false;
  };
  // From one rank to another.
  struct Lane {
    std::mutex mutex;
    std::unique_ptr<DeviceLink> link;  // null: both are on one device
    std::deque<Outgoing> sent;
    std::deque<Incoming> expected;
  };

  CopyRing(Backend& backend, int ranks, LinkKind kind);
  absl::Status OpenLinks();
  Backend& device(int rank) const;
  Lane& lane(int from, int to) { return *lanes_[from * mail_.ranks() + to]; }
  absl::Status Match(int from, int to, Lane& lane);
  Letter Send(int from, int to, Lane& lane, Outgoing outgoing, const Incoming& incoming);
  absl::Status StartCopy(int to, Lane& lane, const Outgoing& outgoing, const Incoming& incoming,
                         Letter& letter);

  Backend& backend_;
  const LinkKind kind_;
  Mailboxes<Letter> mail_;
  std::vector<std::shared_ptr<EventPool>> events_;  // [rank]
  std::vector<std::unique_ptr<Lane>> lanes_;        // [from][to]
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_COPY_CHANNEL_H_
