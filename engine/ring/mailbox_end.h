#ifndef ANNULUS_ENGINE_RING_MAILBOX_END_H_
#define ANNULUS_ENGINE_RING_MAILBOX_END_H_

#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ring/channel.h"
#include "engine/ring/check_message.h"
#include "engine/ring/mailbox.h"
#include "engine/ring/work_timer.h"
#include "kernels/base/status_macros.h"

namespace annulus {

// A message that the receiver may read, or that is being copied to it.
struct RingLetter {
  RingMessage message;             // parts as the receiver will read them
  std::shared_ptr<Event> arrived;  // what the receiver's stream must wait for; null: nothing
  absl::Status status;
};

// A rank's end of a ring whose messages arrive in Mailboxes. How they get there is Post's.
class MailboxEnd : public RingChannel {
 public:
  // `mail` and `device`, the rank's, must outlive the end.
  MailboxEnd(Mailboxes<RingLetter>& mail, Backend& device, int rank)
      : mail_(mail), rank_(rank), waits_(device) {}

  int rank() const final { return rank_; }
  int size() const final { return mail_.ranks(); }

  absl::StatusOr<RingParts> Receive(Stream& stream, int peer, uint64_t tag,
                                    std::span<const size_t> part_bytes, SteadyTime deadline) final {
    ANNULUS_RETURN_IF_ERROR(mail_.Peek(rank_, peer, deadline).status());
    RingLetter letter = mail_.Pop(rank_, peer);
    ANNULUS_RETURN_IF_ERROR(letter.status);
    ANNULUS_RETURN_IF_ERROR(CheckMessage(rank_, peer, {tag, part_bytes}, letter.message));
    if (letter.arrived != nullptr) {
      ANNULUS_RETURN_IF_ERROR(waits_.Time(stream, [&] { return stream.Await(*letter.arrived); }));
    }
    return std::move(letter.message.parts);
  }

  absl::StatusOr<double> TakeStreamWaits() final { return waits_.Take(); }

  void Abort(const absl::Status& status) final { mail_.Abort(status); }

  // Discards the waits that nobody has taken: see RingGroup::Reset.
  void Forget() { waits_.Forget(); }

 private:
  Mailboxes<RingLetter>& mail_;
  const int rank_;
  WorkTimer waits_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_MAILBOX_END_H_
