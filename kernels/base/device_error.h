#ifndef ANNULUS_KERNELS_BASE_DEVICE_ERROR_H_
#define ANNULUS_KERNELS_BASE_DEVICE_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// What a device or its driver refuses, is told apart from what nobody could compute: a model that
// is broken, options that do not fit. The first may be repaired on the machine, and the same start
// then works; the second may not.

namespace annulus {

// On a status: it is of the device.
inline constexpr char kDevicePayload[] = "annulus/device";

// `status`, which is not OK, marked as the device's.
inline absl::Status OfDevice(absl::Status status) {
  status.SetPayload(kDevicePayload, absl::Cord());
  return status;
}

inline bool IsOfDevice(const absl::Status& status) {
  return status.GetPayload(kDevicePayload).has_value();
}

// `status` with `prefix` before its message; its payloads stay.
inline absl::Status WithPrefix(absl::string_view prefix, const absl::Status& status) {
  absl::Status longer(status.code(), absl::StrCat(prefix, status.message()));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& value) { longer.SetPayload(url, value); });
  return longer;
}

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_DEVICE_ERROR_H_
