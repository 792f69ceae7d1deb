#ifndef ANNULUS_KERNELS_BASE_DEVICE_ERROR_H_
#define ANNULUS_KERNELS_BASE_DEVICE_ERROR_H_

#include <utility>

#include "absl/status/status.h"
#include "kernels/base/status_mark.h"

// Marks errors of a device or its driver, to tell them from errors that no machine could avoid (a
// broken model, options that do not fit). A start that fails with a device error may succeed once
// the machine is repaired; the others never will.

namespace annulus {

inline constexpr char kDeviceMark[] = "annulus/device";

// `status` must not be OK.
inline absl::Status OfDevice(absl::Status status) {
  return WithMark(std::move(status), kDeviceMark);
}

inline bool IsOfDevice(const absl::Status& status) { return HasMark(status, kDeviceMark); }

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_DEVICE_ERROR_H_
