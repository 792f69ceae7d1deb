#ifndef ANNULUS_ENGINE_METRICS_METRICS_H_
#define ANNULUS_ENGINE_METRICS_METRICS_H_

// Counters, gauges and histograms that any thread may update, and the set that reports them as
// plain data (MetricFamily in engine/api.h).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "engine/api/load.h"
#include "kernels/base/check.h"

namespace annulus {

// Only grows. Integers stay exact up to 2^53. Thread-safe, lock-free.
class Counter {
 public:
  static constexpr MetricFamily::Type kType = MetricFamily::Type::kCounter;

  // amount >= 0; anything else, NaN included, is our own bug.
  void Add(double amount);
  void Increment() { Add(1); }
  // For something counted elsewhere: grows to `total`, and stays where that is less.
  void Raise(double total);
  double value() const { return value_.load(std::memory_order_relaxed); }
  void Collect(MetricSample& sample) const { sample.value = value(); }

 private:
  std::atomic<double> value_{0};
};

// The latest value of something. Thread-safe, lock-free.
class Gauge {
 public:
  static constexpr MetricFamily::Type kType = MetricFamily::Type::kGauge;

  void Set(double value) { value_.store(value, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }
  void Collect(MetricSample& sample) const { sample.value = value(); }

 private:
  std::atomic<double> value_{0};
};

// Counts of observations by upper bound (value <= bound). Thread-safe, lock-free. A snapshot taken
// during updates may lack the newest ones, but its count always equals its last bucket.
class Histogram {
 public:
  static constexpr MetricFamily::Type kType = MetricFamily::Type::kHistogram;

  // `bounds`: finite, strictly ascending, at least one.
  explicit Histogram(std::vector<double> bounds);

  // NaN is not counted.
  void Observe(double value);
  // Buckets are cumulative; the last has the bound +infinity.
  void Collect(MetricSample& sample) const;

 private:
  const std::vector<double> bounds_;
  std::vector<std::atomic<uint64_t>> counts_;  // bounds_.size() + 1; not cumulative
  std::atomic<double> sum_{0};
};

// What MetricSet needs to know of a family.
class FamilyBase {
 public:
  virtual ~FamilyBase() = default;
  virtual MetricFamily Collect() const = 0;
};

// All metrics of one name, told apart by the values of the same labels. Label values must come from
// small closed sets: a child is never forgotten. Thread-safe.
template <typename Metric>
class Family final : public FamilyBase {
 public:
  // `arguments` go to the constructor of every child.
  template <typename... Arguments>
  Family(std::string name, std::string help, std::vector<std::string> labels,
         Arguments... arguments)
      : name_(std::move(name)),
        help_(std::move(help)),
        labels_(std::move(labels)),
        make_([=] { return std::make_unique<Metric>(arguments...); }) {}

  // The child with these label values, in the order of the family's labels; made on first use.
  // Valid as long as the family: hold on to it where updates are frequent.
  Metric& With(const std::vector<std::string>& values) {
    ANNULUS_CHECK(values.size() == labels_.size())
        << name_ << " has " << labels_.size() << " labels, got " << values.size();
    std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Metric>& child = children_[values];
    if (child == nullptr) child = make_();
    return *child;
  }

  MetricFamily Collect() const override {
    MetricFamily family{name_, help_, Metric::kType, {}};
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [values, child] : children_) {
      MetricSample& sample = family.samples.emplace_back();
      for (size_t i = 0; i < labels_.size(); ++i) sample.labels.emplace_back(labels_[i], values[i]);
      child->Collect(sample);
    }
    return family;
  }

 private:
  const std::string name_;
  const std::string help_;
  const std::vector<std::string> labels_;
  const std::function<std::unique_ptr<Metric>()> make_;
  mutable std::mutex mutex_;
  std::map<std::vector<std::string>, std::unique_ptr<Metric>> children_ ABSL_GUARDED_BY(mutex_);
};

// Owns families and collects them in the order in which they were added. Names get the prefix
// "annulus_" and must be unique. Adding is not thread-safe: do it before threads start. The
// references live as long as the set.
class MetricSet {
 public:
  Family<Counter>& AddCounters(absl::string_view name, absl::string_view help,
                               std::vector<std::string> labels);
  Family<Gauge>& AddGauges(absl::string_view name, absl::string_view help,
                           std::vector<std::string> labels);

  // The same without labels: one metric, reported from the start.
  Counter& AddCounter(absl::string_view name, absl::string_view help);
  Gauge& AddGauge(absl::string_view name, absl::string_view help);
  Histogram& AddHistogram(absl::string_view name, absl::string_view help,
                          std::vector<double> bounds);

  // Thread-safe.
  std::vector<MetricFamily> Collect() const;

 private:
  template <typename Metric, typename... Arguments>
  Family<Metric>& Add(absl::string_view name, absl::string_view help,
                      std::vector<std::string> labels, Arguments... arguments);

  std::vector<std::pair<std::string, std::unique_ptr<FamilyBase>>> families_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_METRICS_METRICS_H_
