#ifndef ANNULUS_CLIENT_FORMAT_UNITS_H_
#define ANNULUS_CLIENT_FORMAT_UNITS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus {

// Numbers for people. All are ASCII.

// 65536 -> "65,536".
std::string FormatCount(int64_t count);

// Of a whole, with three digits: 0.12345 -> "0.123", 1 -> "1".
std::string FormatShare(double share);

// 1536 -> "1.5 KiB"; below 1 KiB "512 B".
std::string FormatBytes(int64_t bytes);

// 0.0123 -> "12 ms", 4.2 -> "4.20 s", 42 -> "42.0 s", 183 -> "3 min 3 s", 3840 -> "1 h 4 min".
// Negative and non-finite durations are "?".
std::string FormatDuration(double seconds);

// "2h", "1.5d", "30m", "90s" or a bare number of seconds -> seconds. Nothing for other texts,
// negative numbers and what is not finite.
std::optional<double> ParseSeconds(absl::string_view text);

// A rate per second with two to four digits: "3.21", "18.8", "812", "5,244"; "?" if not finite or
// negative.
std::string FormatRate(double per_second);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_FORMAT_UNITS_H_
