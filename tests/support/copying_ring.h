#ifndef ANNULUS_TESTS_SUPPORT_COPYING_RING_H_
#define ANNULUS_TESTS_SUPPORT_COPYING_RING_H_

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/memory/align.h"
#include "engine/ring/in_process_channel.h"
#include "kernels/base/status_macros.h"

namespace annulus::testing {

// A ring of ranks on one device whose memory the host reads, that copies all the same: as ranks in
// other processes do, every message arrives in the memory that the receiver expects it in.
class CopyingRing final : public RingGroup {
 public:
  CopyingRing(Backend& device, int ranks) : ring_(device, ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      ends_.push_back(std::make_unique<End>(ring_.channel(rank)));
    }
  }

  RingChannel& channel(int rank) override { return *ends_[rank]; }
  absl::Status Reset() override {
    for (const auto& end : ends_) end->Forget();
    return ring_.Reset();
  }
  std::string description() const override { return "copies on one device"; }

 private:
  class End final : public RingChannel {
   public:
    explicit End(RingChannel& link) : link_(link) {}

    int rank() const override { return link_.rank(); }
    int size() const override { return link_.size(); }
    bool copies() const override { return true; }
    bool copies_host() const override { return true; }

    absl::Status Post(Stream& stream, std::span<const RingMessage> sent,
                      std::span<const RingExpectation> expected, SteadyTime deadline) override {
      for (const RingExpectation& each : expected) into_[each.peer].push_back(each.into);
      return link_.Post(stream, sent, expected, deadline);
    }

    absl::StatusOr<RingParts> Receive(Stream& stream, int peer, uint64_t tag,
                                      std::span<const size_t> part_bytes,
                                      SteadyTime deadline) override {
      ANNULUS_ASSIGN_OR_RETURN(const RingParts parts,
                               link_.Receive(stream, peer, tag, part_bytes, deadline));
      std::deque<std::byte*>& expected = into_[peer];
      std::byte* const into = expected.front();
      expected.pop_front();
      std::byte* at = into;
      for (size_t i = 0; i < parts.size(); ++i) {
        std::memcpy(at, parts[i].data, parts[i].bytes);
        at += AlignUp(parts[i].bytes);
      }
      return parts.CopiedTo(into);
    }

    absl::StatusOr<double> TakeStreamWaits() override { return link_.TakeStreamWaits(); }
    void Abort(const absl::Status& status) override { link_.Abort(status); }
    void Forget() { into_.clear(); }

   private:
    RingChannel& link_;
    std::map<int, std::deque<std::byte*>> into_;  // [peer] of messages that have not come
  };

  InProcessRing ring_;
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_COPYING_RING_H_
