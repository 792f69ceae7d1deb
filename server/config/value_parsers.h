#ifndef ANNULUS_SERVER_CONFIG_VALUE_PARSERS_H_
#define ANNULUS_SERVER_CONFIG_VALUE_PARSERS_H_

// Text to value, for flags, variables and YAML alike. Every error is INVALID_ARGUMENT, quotes what
// was given and says what is allowed; the caller adds where the text came from.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// A decimal integer in [low, high].
absl::StatusOr<int64_t> ParseInteger(absl::string_view text, int64_t low, int64_t high);

// "1024", "512MB" (10^6), "1.5GiB" (2^30): a number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, in
// any case, in [low, high] bytes.
absl::StatusOr<size_t> ParseSize(absl::string_view text, size_t low, size_t high);

// "30s", "500ms", "5m", "1h"; a bare number is seconds.
absl::StatusOr<std::chrono::milliseconds> ParseDuration(absl::string_view text,
                                                        std::chrono::milliseconds low,
                                                        std::chrono::milliseconds high);

// "HOST:PORT" or "[IPV6]:PORT" with a port in 0..65535 (0: any free one). Returns the text.
absl::StatusOr<std::string> ParseHostPort(absl::string_view text);

// One of the names; the error lists them all and names the nearest.
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

}  // namespace annulus

#endif  // ANNULUS_SERVER_CONFIG_VALUE_PARSERS_H_
