#include "engine/metrics/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace annulus {

void Counter::Add(double amount) {
  ANNULUS_CHECK(amount >= 0) << "a counter cannot grow by " << amount;
  value_.fetch_add(amount, std::memory_order_relaxed);
}

void Counter::Raise(double total) {
  double value = value_.load(std::memory_order_relaxed);
  while (value < total && !value_.compare_exchange_weak(value, total, std::memory_order_relaxed)) {
  }
}

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {
  ANNULUS_CHECK(!bounds_.empty() && std::isfinite(bounds_.front()) && std::isfinite(bounds_.back()))
      << "histogram bounds must be finite, at least one";
  for (size_t i = 1; i < bounds_.size(); ++i) {
    ANNULUS_CHECK(bounds_[i - 1] < bounds_[i]) << "histogram bounds must ascend at " << i;
  }
}

void Histogram::Observe(double value) {
  if (std::isnan(value)) return;
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  counts_[bound - bounds_.begin()].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

void Histogram::Collect(MetricSample& sample) const {
  sample.sum = sum_.load(std::memory_order_relaxed);
  sample.count = 0;
  sample.buckets.reserve(counts_.size());
  for (size_t i = 0; i < counts_.size(); ++i) {
    sample.count += counts_[i].load(std::memory_order_relaxed);
    const double bound = i < bounds_.size() ? bounds_[i] : std::numeric_limits<double>::infinity();
    sample.buckets.emplace_back(bound, sample.count);
  }
}

template <typename Metric, typename... Arguments>
Family<Metric>& MetricSet::Add(absl::string_view name, absl::string_view help,
                               std::vector<std::string> labels, Arguments... arguments) {
  std::string full_name = absl::StrCat("annulus_", name);
  for (const auto& [known, family] : families_) {
    ANNULUS_CHECK(known != full_name) << "metric " << full_name << " was added twice";
  }
  auto family = std::make_unique<Family<Metric>>(full_name, std::string(help), std::move(labels),
                                                 std::move(arguments)...);
  Family<Metric>& added = *family;
  families_.emplace_back(std::move(full_name), std::move(family));
  return added;
}

Family<Counter>& MetricSet::AddCounters(absl::string_view name, absl::string_view help,
                                        std::vector<std::string> labels) {
  return Add<Counter>(name, help, std::move(labels));
}

Family<Gauge>& MetricSet::AddGauges(absl::string_view name, absl::string_view help,
                                    std::vector<std::string> labels) {
  return Add<Gauge>(name, help, std::move(labels));
}

Counter& MetricSet::AddCounter(absl::string_view name, absl::string_view help) {
  return Add<Counter>(name, help, {}).With({});
}

Gauge& MetricSet::AddGauge(absl::string_view name, absl::string_view help) {
  return Add<Gauge>(name, help, {}).With({});
}

Histogram& MetricSet::AddHistogram(absl::string_view name, absl::string_view help,
                                   std::vector<double> bounds) {
  return Add<Histogram>(name, help, {}, std::move(bounds)).With({});
}

std::vector<MetricFamily> MetricSet::Collect() const {
  std::vector<MetricFamily> families;
  families.reserve(families_.size());
  for (const auto& [name, family] : families_) families.push_back(family->Collect());
  return families;
}

}  // namespace annulus
