#include "engine/check_request.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"

namespace annulus {

absl::Status CheckPrefixes(const RequestSpec& spec) {
  const std::vector<int32_t>& lengths = spec.shared_prefixes;
  const bool ordered = std::is_sorted(lengths.begin(), lengths.end());
  const int32_t prompt = static_cast<int32_t>(spec.prompt.size());
  if (lengths.empty() ||
      (ordered && lengths.size() <= 64 && lengths.front() >= 0 && lengths.back() <= prompt)) {
    return absl::OkStatus();
  }
  return FieldError(absl::StatusCode::kInvalidArgument, "shared_prefixes",
                    absl::StrCat("shared prefixes are at most 64 ascending lengths up to the "
                                 "prompt's ",
                                 prompt, " tokens"));
}

absl::Status CheckKeeping(const RequestSpec& spec) {
  if (!spec.pin && !spec.ttl.has_value()) return absl::OkStatus();
  if (!spec.prefill_only || spec.documents.empty()) {
    return FieldError(absl::StatusCode::kInvalidArgument, spec.pin ? "pin" : "ttl",
                      "only a document that is read ahead can be pinned or have a time to live");
  }
  constexpr auto kLongest = std::chrono::hours(365 * 24);
  if (!spec.ttl.has_value() || (*spec.ttl >= std::chrono::seconds(1) && *spec.ttl <= kLongest)) {
    return absl::OkStatus();
  }
  return FieldError(absl::StatusCode::kInvalidArgument, "ttl",
                    absl::StrCat("a time to live of ", spec.ttl->count(),
                                 " ms is not allowed; give 1 s to 31,536,000 s, a year"));
}

}  // namespace annulus
