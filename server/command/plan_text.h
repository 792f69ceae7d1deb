#ifndef ANNULUS_SERVER_COMMAND_PLAN_TEXT_H_
#define ANNULUS_SERVER_COMMAND_PLAN_TEXT_H_

#include <cstddef>
#include <string>

#include "engine/capacity.h"

namespace annulus::server {

// Bounds, in bytes, of what clients can make the services hold in the host's memory.
struct ServiceMemory {
  size_t replay = 0;     // AttachLimits::memory; CapacityQuestion::services_bytes must include it
  size_t documents = 0;  // DocumentLimits::max_memory
  size_t prompts = 0;    // ServerConfig::max_prompts_memory
};

// Formats the output of annulusd --plan: the model, the machine, a row for each case, and notes
// that explain the columns. `machine` describes the machine or GPU whose memory is meant.
// table.cases must not be empty.
std::string PlanText(const CapacityTable& table, const std::string& machine,
                     const ServiceMemory& services);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_COMMAND_PLAN_TEXT_H_
