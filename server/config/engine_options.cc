// The rows of the engine's options (engine/api/options.h): how their values are written.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "kernels/base/activations.h"
#include "kernels/base/dtype.h"
#include "server/config/option_rows.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;

// Reads the value of a field of EngineOptions with the parser for its type.
absl::StatusOr<std::string> ParseAny(absl::string_view text, const std::string*) {
  return ParseText(text);
}
absl::StatusOr<Activations> ParseAny(absl::string_view text, const Activations*) {
  return ParseActivations(text);
}
absl::StatusOr<AttentionAssignment> ParseAny(absl::string_view text, const AttentionAssignment*) {
  return ParseAssignment(text);
}
absl::StatusOr<std::optional<DType>> ParseAny(absl::string_view text, const std::optional<DType>*) {
  if (text == "auto") return std::nullopt;
  return ParseDType(text);
}

std::string AnyText(const std::string& value) { return value; }
std::string AnyText(Activations value) { return std::string(ActivationsName(value)); }
std::string AnyText(const AttentionAssignment& value) { return AssignmentText(value); }
std::string AnyText(const std::optional<DType>& value) {
  return value.has_value() ? std::string(DTypeName(*value)) : "auto";
}

template <typename T>
std::string NumberText(T value) {
  if constexpr (std::is_same_v<T, int>) {
    return absl::StrCat(value);
  } else {
    return value == 0 ? "0" : FormatBytes(static_cast<uint64_t>(value));
  }
}

// ---- What an option accepts, and how its value is written. One pair for each kind of values in
// engine/api/option_values.h.

template <typename T>
OptionValue ValueOf(T EngineOptions::*field, option::Within allowed) {
  return Within(field, static_cast<T>(allowed.low), static_cast<T>(allowed.high));
}
template <typename T>
std::string TextOf(const T& value, option::Within) {
  return NumberText(value);
}

template <typename T>
OptionValue ValueOf(T EngineOptions::*field, option::WithinOrAuto allowed) {
  return WithinOrAuto(field, static_cast<T>(allowed.low), static_cast<T>(allowed.high));
}
template <typename T>
std::string TextOf(const T& value, option::WithinOrAuto) {
  return value == 0 ? "auto" : NumberText(value);
}

OptionValue ValueOf(milliseconds EngineOptions::*field, option::TimeWithin allowed) {
  return Within(field, allowed.low, allowed.high);
}
std::string TextOf(milliseconds value, option::TimeWithin) { return FormatMilliseconds(value); }

OptionValue ValueOf(std::optional<milliseconds> EngineOptions::*field,
                    option::TimeOffOrAuto allowed) {
  const auto parse = [=](absl::string_view text) -> absl::StatusOr<std::optional<milliseconds>> {
    if (text == "auto") return std::nullopt;
    if (text == "off") return milliseconds(0);
    const absl::StatusOr<milliseconds> time = ParseDuration(text, allowed.low, allowed.high);
    if (time.ok()) return *time;
    return absl::InvalidArgumentError(absl::StrCat(time.status().message(), ", or auto, or off"));
  };
  return Into(field, parse, RangeText(allowed.low, allowed.high));
}
std::string TextOf(std::optional<milliseconds> value, option::TimeOffOrAuto) {
  if (!value.has_value()) return "auto";
  return *value == milliseconds(0) ? "off" : FormatMilliseconds(*value);
}

OptionValue ValueOf(double EngineOptions::*field, option::Share) {
  return Into(field, ParseShare, "0 to 100");
}
std::string TextOf(double value, option::Share) { return absl::StrCat(value * 100); }

template <typename T>
OptionValue ValueOf(T EngineOptions::*field, const option::OneOf<T>& allowed) {
  return OneOf(field, allowed.choices);
}
template <typename T>
std::string TextOf(const T& value, const option::OneOf<T>& allowed) {
  for (const auto& [name, choice] : allowed.choices) {
    if (choice == value) return name;
  }
  return "";
}

template <typename T>
OptionValue ValueOf(T EngineOptions::*field, option::Any) {
  return Into(field, [](absl::string_view text) {
    const T* const type = nullptr;
    return ParseAny(text, type);
  });
}
template <typename T>
std::string TextOf(const T& value, option::Any) {
  return AnyText(value);
}

OptionValue ValueOf(std::string EngineOptions::*field, const option::Required& allowed) {
  const auto parse = [allowed](absl::string_view text) -> absl::StatusOr<std::string> {
    if (!text.empty()) return ParseText(text);
    return absl::InvalidArgumentError(absl::StrCat("\"\" is not allowed: ", allowed.examples));
  };
  return Into(field, parse);
}
std::string TextOf(const std::string& value, const option::Required&) { return value; }

}  // namespace

std::vector<Option> EngineRows() {
  std::vector<Option> rows;
  VisitOptions([&](const char* name, const char* value_name, const char* help, auto field,
                   const auto& allowed) {
    rows.push_back(
        {name, value_name, TextOf(EngineOptions().*field, allowed), help, ValueOf(field, allowed)});
  });
  return rows;
}

}  // namespace annulus::server
