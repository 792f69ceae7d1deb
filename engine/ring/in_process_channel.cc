#include "engine/ring/in_process_channel.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace annulus {

class InProcessRing::End : public RingChannel {
 public:
  End(InProcessRing* ring, int rank) : ring_(ring), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ring_->mailboxes_.size()); }

  absl::Status Send(int peer, uint64_t tag, std::vector<RingPart> parts) override {
    Mailbox& box = *ring_->mailboxes_[peer];
    {
      std::lock_guard lock(box.mutex);
      if (!box.aborted.ok()) return box.aborted;
      box.from[rank_].push_back({tag, std::move(parts)});
    }
    box.arrived.notify_one();
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<RingPart>> Receive(int peer, uint64_t tag,
                                                std::span<const size_t> part_bytes,
                                                SteadyTime deadline) override {
    Mailbox& box = *ring_->mailboxes_[rank_];
    std::unique_lock lock(box.mutex);
    const bool ready = box.arrived.wait_until(
        lock, deadline, [&] { return !box.aborted.ok() || !box.from[peer].empty(); });
    if (!ready) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank ", rank_, " waited too long for rank ", peer));
    }
    if (!box.aborted.ok()) return box.aborted;
    Message message = std::move(box.from[peer].front());
    box.from[peer].pop_front();
    return Checked(std::move(message), peer, tag, part_bytes);
  }

  void Abort(const absl::Status& status) override {
    ANNULUS_CHECK(!status.ok()) << "an abort needs its reason";
    for (const auto& box : ring_->mailboxes_) {
      {
        std::lock_guard lock(box->mutex);
        if (box->aborted.ok()) box->aborted = status;
      }
      box->arrived.notify_all();
    }
  }

 private:
  absl::StatusOr<std::vector<RingPart>> Checked(Message message, int peer, uint64_t tag,
                                                std::span<const size_t> part_bytes) const {
    bool equal = message.tag == tag && message.parts.size() == part_bytes.size();
    for (size_t i = 0; equal && i < part_bytes.size(); ++i) {
      equal = message.parts[i].bytes == part_bytes[i];
    }
    if (equal) return std::move(message.parts);
    return absl::InternalError(absl::StrCat(
        "rank ", rank_, " expected message ", tag, " of ", part_bytes.size(), " parts from rank ",
        peer, ", got ", message.tag, " of ", message.parts.size(), " parts, or other sizes"));
  }

  InProcessRing* ring_;
  int rank_;
};

InProcessRing::InProcessRing(int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    mailboxes_.push_back(std::make_unique<Mailbox>());
    mailboxes_.back()->from.resize(ranks);
    ends_.push_back(std::make_unique<End>(this, rank));
  }
}

InProcessRing::~InProcessRing() = default;

RingChannel& InProcessRing::channel(int rank) { return *ends_[rank]; }

void InProcessRing::Reset() {
  for (const auto& box : mailboxes_) {
    std::lock_guard lock(box->mutex);
    for (auto& queue : box->from) queue.clear();
    box->aborted = absl::OkStatus();
  }
}

}  // namespace annulus
