#ifndef ANNULUS_SERVER_GENERATION_MEMORY_REPORT_H_
#define ANNULUS_SERVER_GENERATION_MEMORY_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/api.h"
#include "server/documents/document_store.h"
#include "server/generation/shared_generation.h"

namespace annulus::server {

// Returns the most bytes that the process should have needed at a time so far, according to
// admission, by purpose: the names of MemoryForecast's members, "documents", and "replay" for the
// answers that are kept for retries.
std::map<std::string, int64_t> ForeseenMemory(const MemoryForecast& engine,
                                              const DocumentStore& documents,
                                              const AttachTable& attach);

// The same as metrics, together with the resident memory that the system reports.
std::vector<MetricFamily> MemoryMetrics(const EngineLoad& load, const DocumentStore& documents,
                                        const AttachTable& attach);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_MEMORY_REPORT_H_
