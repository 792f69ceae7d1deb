#ifndef ANNULUS_KERNELS_BASE_STATUS_MACROS_H_
#define ANNULUS_KERNELS_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define ANNULUS_RETURN_IF_ERROR(expression)          \
  do {                                               \
    absl::Status annulus_status = (expression);      \
    if (!annulus_status.ok()) return annulus_status; \
  } while (false)

#define ANNULUS_CONCAT_INNER(a, b) a##b
#define ANNULUS_CONCAT(a, b) ANNULUS_CONCAT_INNER(a, b)
#define ANNULUS_ASSIGN_OR_RETURN_IMPL(result, left, expression) \
  auto result = (expression);                                   \
  if (!result.ok()) return std::move(result).status();          \
  left = std::move(result).value()
// ANNULUS_ASSIGN_OR_RETURN(auto x, F()): `x = *F()`, or returns F's error.
#define ANNULUS_ASSIGN_OR_RETURN(left, expression) \
  ANNULUS_ASSIGN_OR_RETURN_IMPL(ANNULUS_CONCAT(annulus_result_, __LINE__), left, expression)

#endif  // ANNULUS_KERNELS_BASE_STATUS_MACROS_H_
