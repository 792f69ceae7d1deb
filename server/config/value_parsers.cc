#include "server/config/value_parsers.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/format_bytes.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"

namespace annulus::server {
namespace {

constexpr size_t kLongestQuote = 80;

struct Quantity {
  double number = 0;
  absl::string_view unit;
};

// Splits "1.5GiB" into 1.5 and "GiB". Signs, exponents, infinities and NaN are not numbers here.
bool SplitQuantity(absl::string_view text, Quantity* quantity) {
  const size_t end = text.find_first_not_of("0123456789.");
  const absl::string_view digits = text.substr(0, end);
  quantity->unit = end == absl::string_view::npos
                       ? absl::string_view()
                       : absl::StripLeadingAsciiWhitespace(text.substr(end));
  return !digits.empty() && absl::SimpleAtod(digits, &quantity->number);
}

// The multiplier of `unit`, or 0 when the table has no such unit.
double UnitFactor(absl::string_view unit, const NamedValues<double>& units) {
  for (const auto& [name, factor] : units) {
    if (absl::EqualsIgnoreCase(unit, name)) return factor;
  }
  return 0;
}

}  // namespace

std::string FormatMilliseconds(std::chrono::milliseconds value) {
  const int64_t count = value.count();
  if (count % 1000 != 0) return absl::StrCat(count, "ms");
  if (count == 0 || count % 60'000 != 0) return absl::StrCat(count / 1000, "s");
  if (count % 3'600'000 != 0) return absl::StrCat(count / 60'000, "m");
  return absl::StrCat(count / 3'600'000, "h");
}

std::string QuoteValue(absl::string_view text) {
  if (text.size() <= kLongestQuote) return absl::StrCat("\"", text, "\"");
  return absl::StrCat("\"", text.substr(0, kLongestQuote), "...\"");
}

absl::StatusOr<int64_t> ParseInteger(absl::string_view text, int64_t low, int64_t high) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < low || value > high) {
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteValue(text), " is not allowed: a whole number from ", low, " to ", high));
  }
  return value;
}

absl::StatusOr<double> ParseShare(absl::string_view text) {
  ANNULUS_ASSIGN_OR_RETURN(const int64_t percent, ParseInteger(text, 0, 100));
  return static_cast<double>(percent) / 100;
}

absl::StatusOr<std::string> ParseText(absl::string_view text) {
  if (text.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError("the text has a NUL byte, which is not allowed");
  }
  return std::string(text);
}

absl::StatusOr<size_t> ParseSize(absl::string_view text, size_t low, size_t high) {
  static const NamedValues<double> kUnits = {
      {"", 1},      {"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
  };
  Quantity quantity;
  const bool split = SplitQuantity(text, &quantity);
  const double factor = split ? UnitFactor(quantity.unit, kUnits) : 0;
  const double bytes = quantity.number * factor;
  if (factor == 0 || bytes < static_cast<double>(low) || bytes > static_cast<double>(high)) {
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteValue(text), " is not allowed: a size from ", FormatBytes(low), " to ",
                     FormatBytes(high), ", written like 512MB or 4GiB"));
  }
  return static_cast<size_t>(bytes);
}

absl::StatusOr<std::chrono::milliseconds> ParseDuration(absl::string_view text,
                                                        std::chrono::milliseconds low,
                                                        std::chrono::milliseconds high) {
  static const NamedValues<double> kUnits = {
      {"", 1e3}, {"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}};
  Quantity quantity;
  const bool split = SplitQuantity(text, &quantity);
  const double factor = split ? UnitFactor(quantity.unit, kUnits) : 0;
  const double value = std::round(quantity.number * factor);
  if (factor == 0 || value < static_cast<double>(low.count()) ||
      value > static_cast<double>(high.count())) {
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteValue(text), " is not allowed: a time from ", FormatMilliseconds(low),
                     " to ", FormatMilliseconds(high), ", written like 500ms, 30s, 5m or 1h"));
  }
  return std::chrono::milliseconds(static_cast<int64_t>(value));
}

absl::StatusOr<std::string> ParseHostPort(absl::string_view text) {
  const size_t colon = text.rfind(':');
  const bool has_host = colon != absl::string_view::npos && colon > 0;
  const absl::string_view host = has_host ? text.substr(0, colon) : absl::string_view();
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const bool plain = host.find_first_of(":[]/ ,") == absl::string_view::npos;
  if (!has_host || !(bracketed || plain)) {
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteValue(text),
                     " is not allowed: HOST:PORT, for example 127.0.0.1:50051 or [::1]:50051"));
  }
  const auto port = ParseInteger(text.substr(colon + 1), 0, 65535);
  if (!port.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        QuoteValue(text), " is not allowed: the port must be a number from 0 to 65535"));
  }
  return std::string(text);
}

absl::Status UnknownChoice(absl::string_view text, const std::vector<std::string>& known) {
  return absl::InvalidArgumentError(absl::StrCat(QuoteValue(text), " is not allowed: one of ",
                                                 absl::StrJoin(known, ", "), " (the nearest is ",
                                                 NearestName(text, known), ")"));
}

}  // namespace annulus::server
