#ifndef ANNULUS_ENGINE_BASE_FIELD_ERROR_H_
#define ANNULUS_ENGINE_BASE_FIELD_ERROR_H_

#include <chrono>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// An error about one field of a request: `field` ("sampling.top_p") goes into the payload
// kFieldPayload. `code` is not OK; the message says what was given and what is allowed.
absl::Status FieldError(absl::StatusCode code, absl::string_view field, absl::string_view message);

// RESOURCE_EXHAUSTED that passes: the payload kRetryPayload holds the delay after which to try
// again, in decimal milliseconds, never negative.
absl::Status RetryError(absl::string_view message, std::chrono::milliseconds retry_after);

// RetryError of a request for which the system had no memory.
absl::Status NoMemoryError();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_FIELD_ERROR_H_
