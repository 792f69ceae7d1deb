#ifndef ANNULUS_SERVER_METRICS_RING_METRICS_H_
#define ANNULUS_SERVER_METRICS_RING_METRICS_H_

#include <vector>

#include "engine/api.h"

namespace annulus::server {

// Of a coordinator: its workers, and the links between them. `waits`: the ring misses ranks, so the
// server cannot serve yet.
std::vector<MetricFamily> RingMetrics(const EngineLoad& load, bool waits);

// Of a worker's process: what it does.
std::vector<MetricFamily> WorkerMetrics(const WorkerStatus& worker);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_METRICS_RING_METRICS_H_
