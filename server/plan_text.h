#ifndef ANNULUS_SERVER_PLAN_TEXT_H_
#define ANNULUS_SERVER_PLAN_TEXT_H_

#include <string>

#include "engine/capacity.h"

namespace annulus::server {

// Formats the output of annulusd --plan: the model, the machine, a row for each case, and notes
// that explain the columns. `machine` describes the machine or GPU whose memory is meant.
// table.cases must not be empty.
std::string PlanText(const CapacityTable& table, const std::string& machine);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_PLAN_TEXT_H_
