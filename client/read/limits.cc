#include "client/read/limits.h"

#include "absl/strings/str_cat.h"

namespace annulus::client {

absl::Status ReadBudget::TakeBytes(absl::string_view what, int64_t bytes) {
  bytes_left_ -= bytes;
  if (bytes_left_ >= 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(what, " unpacks to more than ",
                                                   limits_.unpacked_bytes >> 20,
                                                   " MiB; unpack it and give the files"));
}

absl::Status ReadBudget::TakeEntry(absl::string_view what) {
  if (--entries_left_ >= 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(what, " holds more than ", limits_.entries,
                                                   " files; unpack it and give the relevant ones"));
}

absl::Status ReadBudget::CheckTime(absl::string_view what) const {
  if (!TimeIsUp()) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat(what, " takes longer than ",
                   std::chrono::duration_cast<std::chrono::seconds>(limits_.time).count(),
                   " seconds to read; convert it to plain text first"));
}

}  // namespace annulus::client
