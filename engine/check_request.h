#ifndef ANNULUS_ENGINE_CHECK_REQUEST_H_
#define ANNULUS_ENGINE_CHECK_REQUEST_H_

#include "absl/status/status.h"
#include "engine/api/request.h"

// What of a request can be checked without a model. INVALID_ARGUMENT with the field and the range.

namespace annulus {

absl::Status CheckPrefixes(const RequestSpec& spec);

// RequestSpec::pin and ttl.
absl::Status CheckKeeping(const RequestSpec& spec);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_CHECK_REQUEST_H_
