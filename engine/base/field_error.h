#ifndef ANNULUS_ENGINE_BASE_FIELD_ERROR_H_
#define ANNULUS_ENGINE_BASE_FIELD_ERROR_H_

#include <chrono>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Returns an error about one field of a request: `field` ("sampling.top_p") becomes the payload
// kFieldPayload. `code` must not be OK; `message` should say what was given and what is allowed.
absl::Status FieldError(absl::StatusCode code, absl::string_view field, absl::string_view message);

// Returns RESOURCE_EXHAUSTED for a temporary shortage: the payload kRetryPayload holds the delay
// after which to try again, in decimal milliseconds, never negative.
absl::Status RetryError(absl::string_view message, std::chrono::milliseconds retry_after);

// Returns the RetryError for a request for which the system had no memory.
absl::Status NoMemoryError();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_FIELD_ERROR_H_
