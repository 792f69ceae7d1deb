#ifndef ANNULUS_ENGINE_API_FIELD_ERRORS_H_
#define ANNULUS_ENGINE_API_FIELD_ERRORS_H_

// Several fields of a request that are wrong, in one status.

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_replace.h"
#include "engine/base/error_payloads.h"

namespace annulus {

// The most violations that one error lists: all of it must fit into gRPC's trailers.
inline constexpr size_t kMostFieldErrors = 8;

// Joins errors about one field each, or several: the fields in kFieldPayload, and their sentences
// in the message, have a line each, in the same order. OK if there are none. An error that is not
// INVALID_ARGUMENT about a field is returned alone: the first one.
inline absl::Status JoinFieldErrors(const std::vector<absl::Status>& errors) {
  std::string fields, messages;
  size_t count = 0;
  for (const absl::Status& error : errors) {
    const auto payload = error.GetPayload(kFieldPayload);
    if (!absl::IsInvalidArgument(error) || !payload.has_value()) return error;
    if (errors.size() == 1) return error;
    const std::string field(*payload);
    const bool joined = field.find('\n') != std::string::npos;
    const std::string message(error.message());
    if (count++ == kMostFieldErrors) break;
    fields += (count > 1 ? "\n" : "") + field;
    messages +=
        (count > 1 ? "\n" : "") + (joined ? message : absl::StrReplaceAll(message, {{"\n", " "}}));
  }
  if (count == 0) return absl::OkStatus();
  absl::Status status = absl::InvalidArgumentError(messages);
  status.SetPayload(kFieldPayload, absl::Cord(fields));
  return status;
}

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_FIELD_ERRORS_H_
