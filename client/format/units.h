#ifndef ANNULUS_CLIENT_FORMAT_UNITS_H_
#define ANNULUS_CLIENT_FORMAT_UNITS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus::client {

// Numbers formatted for people, in ASCII.

// 65536 -> "65,536".
std::string FormatCount(int64_t count);

// Formats a fraction of a whole with up to three significant digits: 0.12345 -> "0.123", 1 -> "1".
std::string FormatShare(double share);

// 512 -> "512 B", 1536 -> "1.5 KiB".
std::string FormatBytes(int64_t bytes);

// 0.0123 -> "12 ms", 4.2 -> "4.20 s", 42 -> "42.0 s", 183 -> "3 min 3 s", 3840 -> "1 h 4 min".
// Durations that are negative, not finite, or 1e9 s and more become "?".
std::string FormatDuration(double seconds);

// Joins numbers in ascending order: "3", "3 and 5", "0 to 7", "0 to 2, 5 and 7". After 20 ranges:
// "... and 4 more".
std::string FormatNumbers(const std::vector<int>& numbers);

// Parses "2h", "1.5d", "30m", "90s" or a plain number of seconds. nullopt for any other text and
// for numbers that are negative or not finite.
std::optional<double> ParseSeconds(absl::string_view text);

// Formats a rate per second: three digits below 1000 ("3.21", "18.8", "812"), else whole numbers
// ("5,244"). Rates that are negative, not finite, or 1e15 and more become "?".
std::string FormatRate(double per_second);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_FORMAT_UNITS_H_
