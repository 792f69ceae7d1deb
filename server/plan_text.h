#ifndef ANNULUS_SERVER_PLAN_TEXT_H_
#define ANNULUS_SERVER_PLAN_TEXT_H_

#include <string>

#include "engine/capacity.h"

namespace annulus {

// What annulusd --plan prints: the model, the machine, and a line for each case, with notes on what
// the columns count. `machine`: what the memory is of, for people. `cases` is not empty.
std::string PlanText(const CapacityTable& table, const std::string& machine);

}  // namespace annulus

#endif  // ANNULUS_SERVER_PLAN_TEXT_H_
