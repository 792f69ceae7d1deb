#ifndef ANNULUS_SERVER_MEMORY_REPORT_H_
#define ANNULUS_SERVER_MEMORY_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/api.h"
#include "server/document_store.h"

namespace annulus {

// The most memory that the process has needed at once, as it was foreseen, in bytes by what it is
// for: MemoryForecast's members by their names, and "documents".
std::map<std::string, int64_t> ForeseenMemory(const MemoryForecast& engine,
                                              const DocumentStore& documents);

// The same as metrics, beside what the system counts.
std::vector<MetricFamily> MemoryMetrics(const EngineLoad& load, const DocumentStore& documents);

}  // namespace annulus

#endif  // ANNULUS_SERVER_MEMORY_REPORT_H_
