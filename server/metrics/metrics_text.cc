#include "server/metrics/metrics_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

namespace annulus::server {
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

}  // namespace

std::string MetricsText(const std::vector<MetricFamily>& families) {
  std::vector<prometheus::MetricFamily> converted;
  for (const MetricFamily& family : families) {
    prometheus::MetricFamily& out = converted.emplace_back();
    out.name = family.name;
    out.help = family.help;
    out.type = ToType(family.type);
    for (const MetricSample& sample : family.samples) {
      out.metric.push_back(ToMetric(sample, family.type));
    }
  }
  return prometheus::TextSerializer().Serialize(converted);
}

}  // namespace annulus::server
