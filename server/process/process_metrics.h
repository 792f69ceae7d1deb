#ifndef ANNULUS_SERVER_PROCESS_PROCESS_METRICS_H_
#define ANNULUS_SERVER_PROCESS_PROCESS_METRICS_H_

#include <vector>

#include "engine/api.h"

namespace annulus::server {

// Returns the metrics that Prometheus' client libraries report for every process:
// process_cpu_seconds_total, process_resident_memory_bytes, process_virtual_memory_bytes,
// process_open_fds, process_max_fds and process_start_time_seconds. Asks the system at every call,
// and leaves out values that are not available.
std::vector<MetricFamily> ProcessMetrics();

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_PROCESS_PROCESS_METRICS_H_
