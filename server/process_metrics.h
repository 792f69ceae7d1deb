#ifndef ANNULUS_SERVER_PROCESS_METRICS_H_
#define ANNULUS_SERVER_PROCESS_METRICS_H_

#include <vector>

#include "engine/api.h"

namespace annulus {

// What Prometheus' client libraries tell of every process, under their names:
// process_cpu_seconds_total, process_resident_memory_bytes, process_virtual_memory_bytes,
// process_open_fds, process_max_fds and process_start_time_seconds. Asks the system each time; a
// figure that it does not tell is left out.
std::vector<MetricFamily> ProcessMetrics();

}  // namespace annulus

#endif  // ANNULUS_SERVER_PROCESS_METRICS_H_
