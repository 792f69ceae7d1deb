#ifndef ANNULUS_SERVER_CONFIG_VALUE_PARSERS_H_
#define ANNULUS_SERVER_CONFIG_VALUE_PARSERS_H_

// Parsers of option values, for flags, variables and YAML. Errors are INVALID_ARGUMENT, quote the
// text and say what is allowed; the caller adds the source of the text.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus::server {

// Quotes what was given for a message, cut after 80 bytes.
std::string QuoteValue(absl::string_view text);

// Parses a decimal integer in [low, high].
absl::StatusOr<int64_t> ParseInteger(absl::string_view text, int64_t low, int64_t high);

// Parses a whole percentage from 0 to 100 as a share from 0 to 1.
absl::StatusOr<double> ParseShare(absl::string_view text);

// Returns the text, unless it has a NUL byte.
absl::StatusOr<std::string> ParseText(absl::string_view text);

// Parses a size in [low, high] bytes: a number and an optional unit (B, kB, MB, GB, TB, KiB, MiB,
// GiB or TiB in any case), for example "1024", "512MB" (10^6) or "1.5GiB" (2^30).
absl::StatusOr<size_t> ParseSize(absl::string_view text, size_t low, size_t high);

// Parses a duration in [low, high]: "30s", "500ms", "5m" or "1h". A plain number means seconds.
absl::StatusOr<std::chrono::milliseconds> ParseDuration(absl::string_view text,
                                                        std::chrono::milliseconds low,
                                                        std::chrono::milliseconds high);

// In the largest unit of h, m, s and ms that leaves no fraction: "2h", "90s". 0 is "0s".
std::string FormatMilliseconds(std::chrono::milliseconds value);

// Checks "HOST:PORT" or "[IPV6]:PORT" with a port in 0..65535 (0: any free one). Returns the text.
absl::StatusOr<std::string> ParseHostPort(absl::string_view text);

// A choice between names. ParseChoice returns the value of the given name; its error lists all
// names and the nearest one.
template <typename T>
using NamedValues = std::vector<std::pair<std::string, T>>;
absl::Status UnknownChoice(absl::string_view text, const std::vector<std::string>& known);

template <typename T>
absl::StatusOr<T> ParseChoice(absl::string_view text, const NamedValues<T>& choices) {
  std::vector<std::string> known;
  for (const auto& [name, value] : choices) {
    if (text == name) return value;
    known.push_back(name);
  }
  return UnknownChoice(text, known);
}

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CONFIG_VALUE_PARSERS_H_
