#include "client/read/office/number_format.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace annulus::client {
namespace {

constexpr double kSecondsOfDay = 86400;

// One of the up to four parts of a code (positive; negative; zero; text), without the parts that
// are not shown.
struct Section {
  std::string pattern;  // digits, points and the letters of dates
  std::string before;   // text in front of the number
  std::string after;
  bool is_date = false;
};

std::vector<std::string> SplitSections(absl::string_view code) {
  std::vector<std::string> sections(1);
  bool quoted = false;
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i] == '"') quoted = !quoted;
    if (code[i] == '\\' && i + 1 < code.size()) {
      sections.back() += code[i++];
    } else if (code[i] == ';' && !quoted) {
      sections.emplace_back();
      continue;
    }
    sections.back() += code[i];
  }
  return sections;
}

// Of "[$EUR-407]", "EUR"; of "[h]", the letter; of colours, conditions and the like, nothing.
std::string InBrackets(absl::string_view text, bool* is_letter) {
  *is_letter = !text.empty() && text.find_first_not_of("hmsHMS") == absl::string_view::npos;
  if (*is_letter) return absl::AsciiStrToLower(text);
  if (!absl::StartsWith(text, "$")) return "";
  return std::string(text.substr(1, text.find('-') - 1));
}

Section Parse(absl::string_view code) {
  Section section;
  const auto literal = [&](absl::string_view text) {
    absl::StrAppend(section.pattern.empty() ? &section.before : &section.after, text);
  };
  for (size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    if (c == '"') {
      const size_t end = std::min(code.find('"', i + 1), code.size());
      literal(code.substr(i + 1, end - i - 1));
      i = end;
    } else if (c == '\\') {
      if (++i < code.size()) literal(code.substr(i, 1));
    } else if (c == '_' || c == '*') {
      ++i;  // a blank as wide as the next character, or a filling
    } else if (c == '[') {
      const size_t end = std::min(code.find(']', i), code.size());
      bool is_letter = false;
      const std::string text = InBrackets(code.substr(i + 1, end - i - 1), &is_letter);
      if (is_letter) {
        section.pattern += text;
        section.is_date = true;
      } else {
        literal(text);
      }
      i = end;
    } else if (absl::StrContains("0#?.,%Ee/", c)) {
      section.pattern += c;
      if ((c == 'E' || c == 'e') && i + 1 < code.size() &&
          (code[i + 1] == '+' || code[i + 1] == '-')) {
        ++i;
      }
    } else if (absl::StrContains("dmyhsDMYHSaApP", c)) {
      section.pattern += absl::ascii_tolower(static_cast<unsigned char>(c));
      section.is_date = true;
    } else {
      literal(code.substr(i, 1));
    }
  }
  return section;
}

// Days of the civil calendar, after H. Hinnant, "chrono-compatible low-level date algorithms".
std::string CivilDate(int64_t days_since_1970) {
  const int64_t z = days_since_1970 + 719468;
  const int64_t era = (z >= 0 ? z : z - 146096) / 146097;
  const int64_t doe = z - era * 146097;
  const int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
  const int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
  const int64_t mp = (5 * doy + 2) / 153;
  const int64_t day = doy - (153 * mp + 2) / 5 + 1;
  const int64_t month = mp < 10 ? mp + 3 : mp - 9;
  return absl::StrFormat("%04d-%02d-%02d", yoe + era * 400 + (month <= 2 ? 1 : 0), month, day);
}

std::string FormatDate(double value, const std::string& pattern, bool since_1904) {
  const auto has = [&](const char* letters) {
    return pattern.find_first_of(letters) != std::string::npos;
  };
  const bool has_time = has("hs");
  const bool has_day = has("yd") || (has("m") && !has_time);
  int64_t seconds = std::llround(value * kSecondsOfDay);
  int64_t day = seconds / 86400;
  seconds -= day * 86400;
  if (seconds < 0) seconds += 86400, --day;
  // Day 60 is 29 February 1900, which never was.
  const int64_t to_1970 = since_1904 ? 24107 : day < 60 ? 25568 : 25569;
  const std::string date = has_day ? CivilDate(day - to_1970) : "";
  if (!has_time) return date;
  const int64_t hours = seconds / 3600 + (has_day ? 0 : day * 24);
  std::string time = absl::StrFormat("%02d:%02d", hours, seconds / 60 % 60);
  if (has("s")) absl::StrAppendFormat(&time, ":%02d", seconds % 60);
  return absl::StrCat(date, date.empty() ? "" : " ", time);
}

std::string WithThousands(std::string digits) {
  const size_t end = std::min(digits.find('.'), digits.size());
  for (size_t at = end; at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

// The shortest text of at most 15 digits, as in a cell of format General.
std::string General(double value) { return absl::StrFormat("%.15g", value); }

std::string FormatDigits(double value, const std::string& pattern) {
  const size_t point = pattern.find('.');
  const std::string whole = pattern.substr(0, point);
  std::string rest = point == std::string::npos ? "" : pattern.substr(point + 1);
  const size_t exponent = rest.find_first_of("Ee");
  const bool scientific = pattern.find_first_of("Ee") != std::string::npos;
  if (exponent != std::string::npos) rest.resize(exponent);
  const auto places = static_cast<int>(std::min<size_t>(
      30, static_cast<size_t>(std::count_if(
              rest.begin(), rest.end(), [](char c) { return c == '0' || c == '#' || c == '?'; }))));
  const auto fixed = static_cast<int>(std::count(rest.begin(), rest.end(), '0'));
  if (scientific) return absl::StrFormat("%.*E", places, value);
  if (absl::StrContains(pattern, '/')) return General(value);
  // A comma at the end divides by a thousand; one between digits groups them.
  const size_t last_digit = pattern.find_last_of("0#?");
  for (size_t i = last_digit + 1; last_digit != std::string::npos && i < pattern.size(); ++i) {
    if (pattern[i] == ',') value /= 1000;
  }
  const bool grouped = absl::StrContains(whole.substr(0, whole.find_last_of("0#?") + 1), ',');
  std::string digits = absl::StrFormat("%.*f", places, value);
  int droppable = places - fixed;
  while (droppable-- > 0 && digits.back() == '0') digits.pop_back();
  if (!digits.empty() && digits.back() == '.') digits.pop_back();
  // Numbers such as postal codes keep their leading zeros.
  const auto least = static_cast<size_t>(std::count(whole.begin(), whole.end(), '0'));
  const size_t before_point = std::min(digits.find('.'), digits.size());
  if (before_point < least) digits.insert(0, std::string(least - before_point, '0'));
  return grouped ? WithThousands(digits) : digits;
}

}  // namespace

absl::string_view BuiltinNumberFormat(int id) {
  switch (id) {
    case 1:
      return "0";
    case 2:
      return "0.00";
    case 3:
      return "#,##0";
    case 4:
      return "#,##0.00";
    case 9:
      return "0%";
    case 10:
      return "0.00%";
    case 11:
      return "0.00E+00";
    case 14:
    case 15:
    case 16:
    case 17:
      return "yyyy-mm-dd";
    case 18:
    case 20:
      return "h:mm";
    case 19:
    case 21:
      return "h:mm:ss";
    case 22:
      return "yyyy-mm-dd h:mm";
    case 37:
    case 38:
      return "#,##0;(#,##0)";
    case 39:
    case 40:
      return "#,##0.00;(#,##0.00)";
    case 45:
      return "mm:ss";
    case 46:
      return "[h]:mm:ss";
    case 47:
      return "mm:ss";
    case 48:
      return "0.0E+0";
    default:
      return "General";
  }
}

std::string FormatNumber(double value, absl::string_view code, bool since_1904) {
  constexpr double kMostShown = 1e15;
  if (!std::isfinite(value)) return absl::StrCat(value);
  std::vector<std::string> sections = SplitSections(code);
  const bool own_negative = value < 0 && sections.size() > 1;
  std::string chosen = own_negative                        ? sections[1]
                       : value == 0 && sections.size() > 2 ? sections[2]
                                                           : sections[0];
  if (absl::StrContains(absl::AsciiStrToLower(chosen), "general") || chosen == "@" ||
      chosen.empty()) {
    return General(value);
  }
  const Section section = Parse(chosen);
  if (section.is_date) {
    constexpr double kLastDay = 2958466;  // the year 9999
    if (value < 0 || value > kLastDay) return General(value);
    return FormatDate(value, section.pattern, since_1904);
  }
  if (section.pattern.empty()) return absl::StrCat(section.before, section.after);
  if (std::fabs(value) >= kMostShown) return General(value);
  double shown = std::fabs(value);
  const auto percents = std::count(section.pattern.begin(), section.pattern.end(), '%');
  for (int i = 0; i < std::min<int>(static_cast<int>(percents), 3); ++i) shown *= 100;
  const std::string digits = FormatDigits(shown, section.pattern);
  const bool is_zero = digits.find_first_of("123456789") == std::string::npos;
  const bool minus = value < 0 && !own_negative && !is_zero;
  return absl::StrCat(minus ? "-" : "", section.before, digits, percents > 0 ? "%" : "",
                      section.after);
}

}  // namespace annulus::client
