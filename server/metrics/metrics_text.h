#ifndef ANNULUS_SERVER_METRICS_METRICS_TEXT_H_
#define ANNULUS_SERVER_METRICS_METRICS_TEXT_H_

#include <string>
#include <vector>

#include "engine/api.h"

namespace annulus::server {

// Formats metrics in the text format of Prometheus; kMetricsContentType is its content type.
std::string MetricsText(const std::vector<MetricFamily>& families);
inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_METRICS_METRICS_TEXT_H_
