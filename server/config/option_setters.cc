#include "server/config/option_setters.h"

#include "absl/strings/str_cat.h"

namespace annulus::server {

using std::chrono::milliseconds;

absl::Status SetInteger(absl::string_view text, int64_t low, int64_t high, int& field) {
  ANNULUS_ASSIGN_OR_RETURN(const int64_t value, ParseInteger(text, low, high));
  field = static_cast<int>(value);
  return absl::OkStatus();
}

absl::Status SetIntegerOrAuto(absl::string_view text, int64_t high, int& field) {
  if (text == "auto") {
    field = 0;
    return absl::OkStatus();
  }
  const absl::Status status = SetInteger(text, 1, high, field);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(status.message(), ", or auto"));
}

absl::Status SetShare(absl::string_view text, double& field) {
  ANNULUS_ASSIGN_OR_RETURN(const int64_t percent, ParseInteger(text, 0, 100));
  field = static_cast<double>(percent) / 100;
  return absl::OkStatus();
}

absl::Status SetSize(absl::string_view text, size_t low, size_t high, size_t& field) {
  ANNULUS_ASSIGN_OR_RETURN(field, ParseSize(text, low, high));
  return absl::OkStatus();
}

absl::Status SetSizeOrAuto(absl::string_view text, size_t low, size_t high, size_t& field) {
  if (text == "auto") {
    field = 0;
    return absl::OkStatus();
  }
  const absl::Status status = SetSize(text, low, high, field);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(status.message(), ", or auto"));
}

absl::Status SetDuration(absl::string_view text, milliseconds low, milliseconds high,
                         milliseconds& field) {
  ANNULUS_ASSIGN_OR_RETURN(field, ParseDuration(text, low, high));
  return absl::OkStatus();
}

absl::Status SetText(absl::string_view text, std::string& field) {
  if (text.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError("the text has a NUL byte, which is not allowed");
  }
  field = std::string(text);
  return absl::OkStatus();
}

}  // namespace annulus::server
