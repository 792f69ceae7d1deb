#ifndef ANNULUS_SERVER_METRICS_MEMORY_REPORT_H_
#define ANNULUS_SERVER_METRICS_MEMORY_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/api.h"

namespace annulus::server {

// The most bytes at a time that the server itself has held so far.
struct HeldMost {
  size_t documents = 0;
  size_t replay = 0;  // answers that are kept for retries
};

// Returns the most bytes that the process should have needed at a time so far, according to
// admission, by purpose: the names of the members of both.
std::map<std::string, int64_t> ForeseenMemory(const MemoryForecast& engine, const HeldMost& held);

// The same as metrics, together with the resident memory that the system reports.
std::vector<MetricFamily> MemoryMetrics(const EngineLoad& load, const HeldMost& held);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_METRICS_MEMORY_REPORT_H_
