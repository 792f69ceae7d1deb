#ifndef ANNULUS_ENGINE_RING_COPY_CHANNEL_H_
#define ANNULUS_ENGINE_RING_COPY_CHANNEL_H_

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/ring/channel.h"
#include "engine/ring/event_pool.h"
#include "engine/ring/mailbox_end.h"

namespace annulus {

// Channels between ranks that are threads of one process on several devices; rank r uses device r
// modulo the number of devices. Data for another device is copied by a DeviceLink once both the
// message and its expectation have been posted: whichever rank posts second enqueues the copy,
// ordered after an event of the sender's stream and one of the receiver's. The receiver's stream
// waits for the copy by an event. Ranks on the same device pass addresses, together with an event
// of the sender's stream. Thread-safe.
class CopyRing final : public RingGroup {
 public:
  // FAILED_PRECONDITION if the devices cannot be linked by `kind`; RESOURCE_EXHAUSTED if a link
  // gets no memory. Deadlines are times of `clock`; it and `backend` must outlive the ring.
  static absl::StatusOr<std::unique_ptr<CopyRing>> Create(Backend& backend, int ranks,
                                                          LinkKind kind, const Clock& clock);
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
    SharedEvent unread;  // on the receiver's stream: all earlier reads of `into` are done
  };
  // All messages from one rank to another.
  struct Lane {
    std::mutex mutex;
    std::unique_ptr<DeviceLink> link;  // null: both ranks are on one device
    std::deque<Outgoing> sent;
    std::deque<Incoming> expected;
  };

  CopyRing(Backend& backend, int ranks, LinkKind kind, const Clock& clock);
  absl::Status OpenLinks();
  Backend& device(int rank) const;
  Lane& lane(int from, int to) { return *lanes_[from * mail_.ranks() + to]; }
  absl::Status Match(int from, int to, Lane& lane);
  RingLetter Send(int from, int to, Lane& lane, Outgoing outgoing, const Incoming& incoming);
  absl::Status StartCopy(int to, Lane& lane, const Outgoing& outgoing, const Incoming& incoming,
                         SharedEvent& arrived);

  Backend& backend_;
  const LinkKind kind_;
  Mailboxes<RingLetter> mail_;
  std::vector<std::shared_ptr<EventPool>> events_;  // [rank]
  std::vector<std::unique_ptr<Lane>> lanes_;        // [from][to]
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_COPY_CHANNEL_H_
