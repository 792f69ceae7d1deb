#ifndef ANNULUS_KERNELS_BASE_STATUS_MARK_H_
#define ANNULUS_KERNELS_BASE_STATUS_MARK_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// Marks tell kinds of errors apart that may have the same code: a mark is a payload without
// content.

namespace annulus {

// `status` must not be OK.
inline absl::Status WithMark(absl::Status status, absl::string_view mark) {
  status.SetPayload(mark, absl::Cord());
  return status;
}

inline bool HasMark(const absl::Status& status, absl::string_view mark) {
  return status.GetPayload(mark).has_value();
}

// Returns `status` with `prefix` before its message; keeps its marks and other payloads.
inline absl::Status WithPrefix(absl::string_view prefix, const absl::Status& status) {
  absl::Status longer(status.code(), absl::StrCat(prefix, status.message()));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& value) { longer.SetPayload(url, value); });
  return longer;
}

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_STATUS_MARK_H_
