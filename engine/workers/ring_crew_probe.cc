// How RingCrew has workers time the links of the ring.

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/codec/status_message.h"
#include "engine/workers/ring_crew.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/status_mark.h"

namespace annulus {
namespace {

constexpr double kMostSeconds = 24 * 60 * 60;

}  // namespace

absl::Status RingCrew::TakeProbed(Member& member, const wire::Probed& probed) {
  const bool due = membership_.IsInEpoch(member.id) && probed.epoch() == membership_.epoch();
  if (!due || !broken_.ok()) return absl::OkStatus();
  if (probed.has_status()) {
    const absl::Status failure = codec::FromMessage(probed.status());
    if (failure.ok()) return WrongMessage("OK as the reason of a failure");
    Break(WithPrefix(absl::StrCat("worker \"", member.hello.name(), "\": "), failure));
    return absl::OkStatus();
  }
  if (!(probed.seconds() >= 0 && probed.seconds() <= kMostSeconds) || member.probed.has_value()) {
    return WrongMessage(absl::StrCat("a probe of ", probed.seconds(), " s that is not due"));
  }
  member.probed = probed.seconds();
  return absl::OkStatus();
}

void RingCrew::BeginProbe(size_t bytes) {
  std::lock_guard lock(mutex_);
  if (membership_.aborted()) return;  // AwaitProbe will tell
  wire::ToWorker message;
  message.mutable_probe()->set_epoch(membership_.epoch());
  message.mutable_probe()->set_bytes(bytes);
  for (const MemberId id : InEpoch()) Find(id)->probed.reset();
  Send(InEpoch(), message);
}

std::vector<MemberId> RingCrew::Unprobed() const {
  std::vector<MemberId> hosts = InEpoch();
  std::erase_if(hosts, [this](MemberId id) { return Find(id)->probed.has_value(); });
  return hosts;
}

absl::StatusOr<double> RingCrew::AwaitProbe() {
  std::unique_lock lock(mutex_);
  const auto over = [this] { return stop_ || !broken_.ok() || Unprobed().empty(); };
  const SteadyTime deadline = options_.clock->Now() + options_.patience;
  if (!options_.clock->WaitUntil(deadline, lock, changed_, over)) {
    for (const MemberId id : Unprobed()) {
      Lose(*Find(id), RingLoss::kSilent,
           absl::DeadlineExceededError(
               absl::StrCat("it has not timed its links within ", TimeText(options_.patience))));
    }
  }
  if (stop_) return absl::CancelledError("the ring ends");
  ANNULUS_RETURN_IF_ERROR(broken_);
  double slowest = 0;
  for (const MemberId id : InEpoch()) slowest = std::max(slowest, *Find(id)->probed);
  return slowest;
}

}  // namespace annulus
