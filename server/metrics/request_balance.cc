#include "server/metrics/request_balance.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <utility>

#include "server/base/errors.h"

namespace annulus::server {

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

void RequestBalance::NoteIfRefused(const absl::Status& status, SteadyTime arrived) {
  if (!IsQueueFull(status)) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - arrived;
  const double seconds = took.count();
  const auto bound = std::lower_bound(kRefusalBounds.begin(), kRefusalBounds.end(), seconds);
  std::lock_guard lock(mutex_);
  ++refusals_[static_cast<size_t>(bound - kRefusalBounds.begin())];
  refusal_seconds_ += seconds;
}

MetricFamily RequestBalance::CollectRefusalsLocked() const {
  MetricFamily family{
      "annulus_refusal_seconds",
      "Seconds from the arrival of a generation call to its refusal for overload "
      "(RESOURCE_EXHAUSTED, QUEUE_FULL); for a question of AskMany, from when its turn came.",
      MetricFamily::Type::kHistogram,
      {}};
  MetricSample& sample = family.samples.emplace_back();
  sample.sum = refusal_seconds_;
  for (size_t i = 0; i < refusals_.size(); ++i) {
    sample.count += refusals_[i];
    const bool last = i == kRefusalBounds.size();
    sample.buckets.emplace_back(last ? std::numeric_limits<double>::infinity() : kRefusalBounds[i],
                                sample.count);
  }
  return family;
}

std::vector<MetricFamily> RequestBalance::Collect() const {
  using Type = MetricFamily::Type;
  std::lock_guard lock(mutex_);
  MetricFamily offered{"annulus_requests_offered_total",
                       "Generation requests: calls, and questions of AskMany.",
                       Type::kCounter,
                       {}};
  offered.samples.emplace_back().value = static_cast<double>(offered_);
  MetricFamily settled{"annulus_requests_settled_total",
                       "Offered requests that ended, by outcome. Together with the open ones they "
                       "equal the offered ones.",
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
  return {std::move(offered), std::move(settled), std::move(open), CollectRefusalsLocked()};
}

}  // namespace annulus::server
