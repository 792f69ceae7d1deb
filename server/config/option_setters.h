#ifndef ANNULUS_SERVER_CONFIG_OPTION_SETTERS_H_
#define ANNULUS_SERVER_CONFIG_OPTION_SETTERS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"
#include "server/config/options.h"
#include "server/config/value_parsers.h"

// The groups of the option table, and the functions that its rows use. Every Set function parses a
// text and stores the value in `field`. If the text is not allowed, it returns INVALID_ARGUMENT,
// which says what is, and leaves `field` as it is.

namespace annulus::server {

inline constexpr size_t kMiB = size_t{1} << 20;
inline constexpr size_t kGiB = size_t{1} << 30;
inline constexpr size_t kTiB = size_t{1} << 40;

// The rows of the table, in order: devices and model; steps, caches and exchange; serving.
std::vector<Option> ModelOptions();
std::vector<Option> SchedulingOptions();
std::vector<Option> ServiceOptions();

absl::Status SetInteger(absl::string_view text, int64_t low, int64_t high, int& field);
// Accepts 1 to `high`. "auto" sets 0: the engine chooses.
absl::Status SetIntegerOrAuto(absl::string_view text, int64_t high, int& field);
// Parses a whole percentage from 0 to 100 and stores it as a share from 0 to 1.
absl::Status SetShare(absl::string_view text, double& field);
absl::Status SetSize(absl::string_view text, size_t low, size_t high, size_t& field);
// Like SetSize; "auto" sets 0.
absl::Status SetSizeOrAuto(absl::string_view text, size_t low, size_t high, size_t& field);
absl::Status SetDuration(absl::string_view text, std::chrono::milliseconds low,
                         std::chrono::milliseconds high, std::chrono::milliseconds& field);
absl::Status SetText(absl::string_view text, std::string& field);

template <typename T>
absl::Status SetChoice(absl::string_view text, const NamedValues<T>& choices, T& field) {
  ANNULUS_ASSIGN_OR_RETURN(field, ParseChoice(text, choices));
  return absl::OkStatus();
}

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CONFIG_OPTION_SETTERS_H_
