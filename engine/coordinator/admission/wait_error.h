#ifndef ANNULUS_ENGINE_COORDINATOR_ADMISSION_WAIT_ERROR_H_
#define ANNULUS_ENGINE_COORDINATOR_ADMISSION_WAIT_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "engine/request/request.h"

namespace annulus {

// UNAVAILABLE: what the client of `request` is told if the ranks have waited for `awaited` longer
// than requests should: how to go on elsewhere from what it has.
absl::Status WaitError(const Request& request, const std::string& awaited);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_ADMISSION_WAIT_ERROR_H_
