#ifndef ANNULUS_ENGINE_COORDINATOR_FINISHED_REQUEST_H_
#define ANNULUS_ENGINE_COORDINATOR_FINISHED_REQUEST_H_

#include "engine/metrics/engine_metrics.h"
#include "engine/request/request.h"

namespace annulus {

// Adds a request that has ended for this reason to the metrics. Call after Request::Finish.
void CountFinished(const Request& request, FinishReason reason, EngineMetrics& metrics);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_FINISHED_REQUEST_H_
