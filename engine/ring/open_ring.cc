#include "engine/ring/open_ring.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/ring/copy_channel.h"
#include "engine/ring/group_channel.h"
#include "engine/ring/in_process_channel.h"

namespace annulus {
namespace {

// A ring that was not the first choice.
class ExplainedRing final : public RingGroup {
 public:
  ExplainedRing(std::unique_ptr<RingGroup> ring, std::string why)
      : ring_(std::move(ring)), why_(std::move(why)) {}

  RingChannel& channel(int rank) override { return ring_->channel(rank); }
  absl::Status Reset() override { return ring_->Reset(); }
  std::string description() const override {
    return absl::StrCat(ring_->description(), " (", why_, ")");
  }

 private:
  const std::unique_ptr<RingGroup> ring_;
  const std::string why_;
};

using OpenedRing = absl::StatusOr<std::unique_ptr<RingGroup>>;

OpenedRing OpenNamed(RingTransport transport, Backend& backend, int ranks,
                     std::chrono::milliseconds timeout, const Clock& clock) {
  if (transport == RingTransport::kNccl) return GroupRing::Create(backend, ranks, timeout, clock);
  const LinkKind kind = transport == RingTransport::kPeer ? LinkKind::kPeer : LinkKind::kStaged;
  return CopyRing::Create(backend, ranks, kind, clock);
}

}  // namespace

RingNeeds NeedsOf(RingTransport transport, int devices, int ranks) {
  if (devices == 1) return {};
  const bool groups = transport == RingTransport::kAuto || transport == RingTransport::kNccl;
  return {.copies = true, .send_bytes = groups ? GroupRing::SendBytes(ranks) : 0};
}

absl::StatusOr<std::unique_ptr<RingGroup>> OpenRing(RingTransport transport, Backend& backend,
                                                    int ranks, std::chrono::milliseconds timeout,
                                                    const Clock& clock) {
  const bool one_device = std::min(ranks, backend.capabilities().devices) == 1;
  if (ranks == 1 || (one_device && transport == RingTransport::kAuto)) {
    return std::make_unique<InProcessRing>(backend, ranks, clock);
  }
  if (one_device) {
    return absl::FailedPreconditionError(
        absl::StrCat("ring-transport sets a transport between devices, but all ", ranks,
                     " ranks are on one device; set it to auto, or make more GPUs visible"));
  }
  if (transport != RingTransport::kAuto)
    return OpenNamed(transport, backend, ranks, timeout, clock);
  std::string why;
  for (const RingTransport next :
       {RingTransport::kPeer, RingTransport::kNccl, RingTransport::kStaged}) {
    OpenedRing ring = OpenNamed(next, backend, ranks, timeout, clock);
    if (ring.ok() && !why.empty()) {
      return std::make_unique<ExplainedRing>(*std::move(ring), std::move(why));
    }
    if (ring.ok() || !absl::IsFailedPrecondition(ring.status())) return ring;
    absl::StrAppend(&why, why.empty() ? "" : "; ", ring.status().message());
  }
  return absl::FailedPreconditionError(why);
}

}  // namespace annulus
