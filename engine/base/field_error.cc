#include "engine/base/field_error.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "engine/base/error_payloads.h"
#include "kernels/base/check.h"

namespace annulus {

absl::Status FieldError(absl::StatusCode code, absl::string_view field, absl::string_view message) {
  ANNULUS_CHECK(code != absl::StatusCode::kOk) << "an error about " << field << " without a code";
  absl::Status status(code, absl::StrCat(field, ": ", message));
  status.SetPayload(kFieldPayload, absl::Cord(field));
  return status;
}

absl::Status RetryError(absl::string_view message, std::chrono::milliseconds retry_after) {
  absl::Status status = absl::ResourceExhaustedError(message);
  const int64_t milliseconds = std::max<int64_t>(0, retry_after.count());
  status.SetPayload(kRetryPayload, absl::Cord(absl::StrCat(milliseconds)));
  return status;
}

absl::Status NoMemoryError() {
  return RetryError(
      "the machine has no memory left for this request; try again when other requests have ended, "
      "or send a shorter one",
      std::chrono::milliseconds(500));
}

}  // namespace annulus
