#include "client/format/units.h"

#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace annulus::client {
namespace {

// Limits above which durations and rates are shown as "?"; values far above would not fit an
// integer.
constexpr double kLongestDuration = 1e9;
constexpr double kHighestRate = 1e15;

}  // namespace

std::string FormatCount(int64_t count) {
  const std::string digits = absl::StrCat(count);
  std::string result;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool starts_group = (digits.size() - i) % 3 == 0;
    if (starts_group && i > (count < 0 ? 1 : 0)) result += ',';
    result += digits[i];
  }
  return result;
}

std::string FormatBytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes > -1024 && bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.95 would be printed as 1024.0.
  while (std::abs(value) >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string FormatShare(double share) { return absl::StrFormat("%.3g", share); }

std::string FormatDuration(double seconds) {
  if (!(seconds >= 0 && seconds < kLongestDuration)) return "?";
  if (seconds < 0.9995) return absl::StrFormat("%.0f ms", seconds * 1e3);
  if (seconds < 9.995) return absl::StrFormat("%.2f s", seconds);
  if (seconds < 59.95) return absl::StrFormat("%.1f s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return absl::StrFormat("%d min %d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %d min", whole / 3600, whole % 3600 / 60);
}

std::string FormatNumbers(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    parts.push_back(end == i ? absl::StrCat(numbers[i])
                             : absl::StrCat(numbers[i], " to ", numbers[end]));
    i = end + 1;
  }
  constexpr size_t kMostShown = 20;
  if (parts.size() > kMostShown) {
    const size_t more = parts.size() - kMostShown;
    parts.resize(kMostShown);
    return absl::StrCat(absl::StrJoin(parts, ", "), " and ", more, " more");
  }
  if (parts.size() < 2) return absl::StrJoin(parts, "");
  const std::string last = parts.back();
  parts.pop_back();
  return absl::StrCat(absl::StrJoin(parts, ", "), " and ", last);
}

std::optional<double> ParseSeconds(absl::string_view text) {
  constexpr std::array<std::pair<const char*, double>, 4> kUnits = {
      {{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 24 * 3600}}};
  double unit = 1;
  for (const auto& [name, seconds] : kUnits) {
    if (!absl::ConsumeSuffix(&text, name)) continue;
    unit = seconds;
    break;
  }
  double value = 0;
  const bool is_number = absl::SimpleAtod(text, &value) && std::isfinite(value) && value >= 0;
  return is_number ? std::optional(value * unit) : std::nullopt;
}

std::string FormatRate(double per_second) {
  if (!(per_second >= 0 && per_second < kHighestRate)) return "?";
  if (per_second < 9.995) return absl::StrFormat("%.2f", per_second);
  if (per_second < 99.95) return absl::StrFormat("%.1f", per_second);
  return FormatCount(std::llround(per_second));
}

}  // namespace annulus::client
