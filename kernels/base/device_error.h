#ifndef ANNULUS_KERNELS_BASE_DEVICE_ERROR_H_
#define ANNULUS_KERNELS_BASE_DEVICE_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// Marks errors of a device or its driver, to tell them from errors that no machine could avoid (a
// broken model, options that do not fit). A start that fails with a device error may succeed once
// the machine is repaired; the others never will.

namespace annulus {

// The payload that marks a status as a device error.
inline constexpr char kDevicePayload[] = "annulus/device";

// Returns `status`, which must not be OK, marked as a device error.
inline absl::Status OfDevice(absl::Status status) {
  status.SetPayload(kDevicePayload, absl::Cord());
  return status;
}

inline bool IsOfDevice(const absl::Status& status) {
  return status.GetPayload(kDevicePayload).has_value();
}

// Returns `status` with `prefix` before its message; keeps its payloads.
inline absl::Status WithPrefix(absl::string_view prefix, const absl::Status& status) {
  absl::Status longer(status.code(), absl::StrCat(prefix, status.message()));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& value) { longer.SetPayload(url, value); });
  return longer;
}

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_DEVICE_ERROR_H_
