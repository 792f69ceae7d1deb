#ifndef ANNULUS_SERVER_CONFIG_OPTION_ROWS_H_
#define ANNULUS_SERVER_CONFIG_OPTION_ROWS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/format_bytes.h"
#include "kernels/base/status_macros.h"
#include "server/config/options.h"
#include "server/config/value_parsers.h"

// The groups of the option table, and the parsers of its rows: each stores the value in one field
// of ServerConfig, or of a struct in it. If a text is not allowed, the field stays as it is.

namespace annulus::server {

inline constexpr size_t kMiB = size_t{1} << 20;
inline constexpr size_t kGiB = size_t{1} << 30;
inline constexpr size_t kTiB = size_t{1} << 40;

// The rows of the table: those of the engine, of which the first is the model's; what computes it;
// which processes form its ring; serving.
std::vector<Option> EngineRows();
std::vector<Option> DeviceOptions();
std::vector<Option> ClusterOptions();
std::vector<Option> ServiceOptions();

// The field in `config` itself or in its one member of type Part.
template <typename Part, typename T>
T& FieldOf(ServerConfig& config, T Part::*field) {
  if constexpr (std::is_same_v<Part, EngineOptions>) {
    return config.engine.*field;
  } else if constexpr (std::is_same_v<Part, DocumentLimits>) {
    return config.documents.*field;
  } else if constexpr (std::is_same_v<Part, AttachLimits>) {
    return config.attach.*field;
  } else {
    return config.*field;
  }
}

// Stores the value that `parse`, a function from a text to a StatusOr, returns.
template <typename Part, typename T, typename Parse>
OptionValue Into(T Part::*field, Parse parse, std::string range = "") {
  return {[=](absl::string_view text, ServerConfig& config) -> absl::Status {
            ANNULUS_ASSIGN_OR_RETURN(FieldOf(config, field), parse(text));
            return absl::OkStatus();
          },
          std::move(range)};
}

// The type picks the parser: an int is a whole number, milliseconds are a duration, size_t and
// int64_t are sizes in bytes.
template <typename T>
absl::StatusOr<T> ParseWithin(absl::string_view text, T low, T high) {
  if constexpr (std::is_same_v<T, int>) {
    return ParseInteger(text, low, high);
  } else if constexpr (std::is_same_v<T, std::chrono::milliseconds>) {
    return ParseDuration(text, low, high);
  } else {
    static_assert(std::is_same_v<T, size_t> || std::is_same_v<T, int64_t>);
    return ParseSize(text, low, high);
  }
}

template <typename T>
std::string RangeText(T low, T high) {
  if constexpr (std::is_same_v<T, int>) {
    return absl::StrCat(low, " to ", high);
  } else if constexpr (std::is_same_v<T, std::chrono::milliseconds>) {
    return absl::StrCat(FormatMilliseconds(low), " to ", FormatMilliseconds(high));
  } else {
    return absl::StrCat(FormatBytes(low), " to ", FormatBytes(high));
  }
}

// Parses HOST:PORT, or "off", which is the empty text.
absl::StatusOr<std::string> ParseOptionalAddress(absl::string_view text);

// Accepts values from `low` to `high`.
template <typename Part, typename T>
OptionValue Within(T Part::*field, std::type_identity_t<T> low, std::type_identity_t<T> high) {
  return Into(
      field, [=](absl::string_view text) { return ParseWithin<T>(text, low, high); },
      RangeText<T>(low, high));
}

// Also accepts "auto", which stores 0: the engine chooses.
template <typename Part, typename T>
OptionValue WithinOrAuto(T Part::*field, std::type_identity_t<T> low,
                         std::type_identity_t<T> high) {
  const auto parse = [=](absl::string_view text) -> absl::StatusOr<T> {
    if (text == "auto") return T{};
    absl::StatusOr<T> value = ParseWithin<T>(text, low, high);
    if (value.ok()) return value;
    return absl::InvalidArgumentError(absl::StrCat(value.status().message(), ", or auto"));
  };
  return Into(field, parse, RangeText<T>(low, high));
}

// Accepts the names in `choices`.
template <typename Part, typename T>
OptionValue OneOf(T Part::*field, const NamedValues<T>& choices) {
  return Into(field, [=](absl::string_view text) { return ParseChoice(text, choices); });
}

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CONFIG_OPTION_ROWS_H_
