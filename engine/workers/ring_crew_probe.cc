// How RingCrew has workers time the links of the ring.

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/codec/status_message.h"
#include "engine/workers/ring_crew.h"
#include "kernels/base/device_error.h"
#include "kernels/base/status_macros.h"

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

absl::StatusOr<double> RingCrew::AwaitProbe() {
  std::unique_lock lock(mutex_);
  double slowest = 0;
  const auto done = [&] {
    if (!broken_.ok()) return true;
    slowest = 0;
    for (const MemberId id : InEpoch()) {
      const std::optional<double>& probed = Find(id)->probed;
      if (!probed.has_value()) return false;
      slowest = std::max(slowest, *probed);
    }
    return true;
  };
  ANNULUS_RETURN_IF_ERROR(Await(done, lock));
  ANNULUS_RETURN_IF_ERROR(broken_);
  return slowest;
}

}  // namespace annulus
