#include "server/request_balance.h"

#include <numeric>
#include <utility>

namespace annulus {

RequestBalance::Fate RequestBalance::FateOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return Fate::kCompleted;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
      return Fate::kCancelled;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kAborted:
      return Fate::kFailed;
    default:
      return Fate::kRejected;
  }
}

void RequestBalance::Offer() {
  std::lock_guard lock(mutex_);
  ++offered_;
}

void RequestBalance::Settle(absl::StatusCode code) {
  std::lock_guard lock(mutex_);
  ++settled_[static_cast<size_t>(FateOf(code))];
}

std::vector<MetricFamily> RequestBalance::Collect() const {
  using Type = MetricFamily::Type;
  std::lock_guard lock(mutex_);
  MetricFamily offered{"annulus_requests_offered_total",
                       "Calls, and questions of AskMany, that asked for a generation.",
                       Type::kCounter,
                       {}};
  offered.samples.emplace_back().value = static_cast<double>(offered_);
  MetricFamily settled{
      "annulus_requests_settled_total",
      "Offered requests that ended, by what became of them: with the open ones they "
      "are all offered.",
      Type::kCounter,
      {}};
  static constexpr std::array<const char*, kFates> kNames = {"completed", "rejected", "cancelled",
                                                             "failed"};
  for (size_t i = 0; i < kFates; ++i) {
    MetricSample sample;
    sample.labels = {{"fate", kNames[i]}};
    sample.value = static_cast<double>(settled_[i]);
    settled.samples.push_back(std::move(sample));
  }
  MetricFamily open{
      "annulus_requests_open", "Offered requests that have not ended.", Type::kGauge, {}};
  open.samples.emplace_back().value = static_cast<double>(
      offered_ - std::accumulate(settled_.begin(), settled_.end(), uint64_t{0}));
  return {std::move(offered), std::move(settled), std::move(open)};
}

}  // namespace annulus
