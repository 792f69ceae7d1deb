#include "server/metrics_endpoint.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <exception>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

prometheus::MetricType ToType(MetricFamily::Type type) {
  switch (type) {
    case MetricFamily::Type::kCounter:
      return prometheus::MetricType::Counter;
    case MetricFamily::Type::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricFamily::Type::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric ToMetric(const MetricSample& sample, MetricFamily::Type type) {
  prometheus::ClientMetric metric;
  for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
  metric.counter.value = sample.value;
  metric.gauge.value = sample.value;
  if (type != MetricFamily::Type::kHistogram) return metric;
  metric.histogram.sample_count = sample.count;
  metric.histogram.sample_sum = sample.sum;
  for (const auto& [upper_bound, cumulative_count] : sample.buckets) {
    prometheus::ClientMetric::Bucket bucket;
    bucket.upper_bound = upper_bound;
    bucket.cumulative_count = cumulative_count;
    metric.histogram.bucket.push_back(bucket);
  }
  return metric;
}

class CollectorAdapter final : public prometheus::Collectable {
 public:
  explicit CollectorAdapter(MetricsEndpoint::Collector collector)
      : collector_(std::move(collector)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families;
    for (const MetricFamily& family : collector_()) {
      prometheus::MetricFamily& out = families.emplace_back();
      out.name = family.name;
      out.help = family.help;
      out.type = ToType(family.type);
      for (const MetricSample& sample : family.samples) {
        out.metric.push_back(ToMetric(sample, family.type));
      }
    }
    return families;
  }

 private:
  const MetricsEndpoint::Collector collector_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(const std::string& address,
                                                                        Collector collector) {
  // Few threads and short waits: a client that connects and says nothing cannot hold it up for
  // long.
  const std::vector<std::string> options = {
      "listening_ports",    address, "num_threads",       "4",
      "request_timeout_ms", "5000",  "enable_keep_alive", "no"};
  auto collectable = std::make_shared<CollectorAdapter>(std::move(collector));
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(options);
    exposer->RegisterCollectable(collectable);
    return std::unique_ptr<MetricsEndpoint>(
        new MetricsEndpoint(std::move(collectable), std::move(exposer)));
  } catch (const std::exception&) {  // how the library reports an address that cannot be had
    return absl::UnavailableError(absl::StrCat(
        "cannot serve metrics on ", address,
        ": the port is in use, or not this machine's address; choose another with --metrics, or "
        "--metrics off"));
  }
}

MetricsEndpoint::MetricsEndpoint(std::shared_ptr<prometheus::Collectable> collectable,
                                 std::unique_ptr<prometheus::Exposer> exposer)
    : collectable_(std::move(collectable)), exposer_(std::move(exposer)) {}

MetricsEndpoint::~MetricsEndpoint() = default;

int MetricsEndpoint::port() const {
  const std::vector<int> ports = exposer_->GetListeningPorts();
  return ports.empty() ? 0 : ports.front();
}

}  // namespace annulus
