#include "client/read/office/number_format.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/read/office/decimal.h"

namespace annulus::client {
namespace {

constexpr double kSecondsOfDay = 86400;

// A piece of a code for numbers: a sign with a meaning ("0", "#", "?", ".", ",", "%", "E", "/"),
// 'G' for "General", or text.
struct Token {
  char sign = '\0';  // '\0': text
  std::string text{};
};

// One of the parts of a code (positive; negative; zero; text).
struct Section {
  std::vector<Token> tokens;
  std::string dates;      // the letters of dates and times
  std::string condition;  // "<1" of "[<1]"
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

// Takes what stands in brackets: "[h]" a letter, "[$EUR-407]" the currency, "[<1]" a condition; of
// colours and the like, nothing.
void TakeBrackets(absl::string_view text, Section* section) {
  if (text.empty()) return;
  if (text.find_first_not_of("hmsHMS") == absl::string_view::npos) {
    section->dates += absl::AsciiStrToLower(text);
  } else if (text[0] == '$') {
    section->tokens.push_back({'\0', std::string(text.substr(1, text.find('-') - 1))});
  } else if (absl::StrContains("<>=", text[0])) {
    section->condition = std::string(text);
  }
}

Section Parse(absl::string_view code) {
  constexpr absl::string_view kGeneral = "General";
  Section section;
  const auto literal = [&](absl::string_view text) {
    section.tokens.push_back({'\0', std::string(text)});
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
      TakeBrackets(code.substr(i + 1, end - i - 1), &section);
      i = end;
    } else if (absl::StartsWithIgnoreCase(code.substr(i), kGeneral)) {
      section.tokens.push_back({'G'});
      i += kGeneral.size() - 1;
    } else if (absl::StrContains("0#?.,%/@", c)) {
      section.tokens.push_back({c});
    } else if ((c == 'E' || c == 'e') && i + 1 < code.size() &&
               (code[i + 1] == '+' || code[i + 1] == '-')) {
      section.tokens.push_back({'E'});
      ++i;
    } else if (absl::StrContains("dmyhsDMYHSaApP", c)) {
      section.dates += absl::ascii_tolower(static_cast<unsigned char>(c));
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

// The shortest text of at most 15 digits, as in a cell of format General.
std::string General(double value) { return absl::StrFormat("%.15g", value); }

bool IsDigitPlace(const Token& token) {
  return token.sign == '0' || token.sign == '#' || token.sign == '?';
}

bool HasSign(const std::vector<Token>& tokens, char sign) {
  return std::any_of(tokens.begin(), tokens.end(),
                     [sign](const Token& token) { return token.sign == sign; });
}

// The whole part of a number, with text between its digits: "(555) 123-4567". `end`: of the tokens.
std::string WholePart(const std::vector<Token>& tokens, size_t end, std::string digits) {
  bool grouped = false, any = false;
  size_t first = end;  // the place that takes all digits that are left
  for (size_t i = end; i-- > 0;) {
    grouped = grouped || (tokens[i].sign == ',' && any);
    any = any || IsDigitPlace(tokens[i]);
    if (IsDigitPlace(tokens[i])) first = i;
  }
  if (digits == "0") digits.clear();  // only the place "0" shows it
  std::string text;                   // from its end
  int written = 0;
  const auto write = [&](char digit) {
    if (grouped && written > 0 && written % 3 == 0) text += ',';
    text += digit;
    ++written;
  };
  for (size_t i = end; i-- > 0;) {
    if (!IsDigitPlace(tokens[i])) {
      text.append(tokens[i].text.rbegin(), tokens[i].text.rend());
      if (tokens[i].sign == '%') text += '%';
      continue;
    }
    if (digits.empty() && tokens[i].sign == '0') write('0');
    while (!digits.empty()) {
      write(digits.back());
      digits.pop_back();
      if (i != first) break;
    }
  }
  return {text.rbegin(), text.rend()};
}

// "2 3/4" by "# ?/?", or "11/4" by "?/?".
std::string FormatFraction(double value, const std::vector<Token>& tokens, size_t bar) {
  int places = 0;
  std::string fixed;  // the denominator, if the code names it
  for (size_t i = bar + 1; i < tokens.size(); ++i) {
    places += IsDigitPlace(tokens[i]) ? 1 : 0;
    fixed += tokens[i].text;
  }
  size_t numerator = bar;
  while (numerator > 0 && IsDigitPlace(tokens[numerator - 1])) --numerator;
  const bool has_whole = std::any_of(
      tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(numerator), IsDigitPlace);
  double whole = std::floor(value);
  Fraction part;
  if (int below = 0; places == 0 && absl::SimpleAtoi(fixed, &below) && below > 0 && below < 1000) {
    part = {static_cast<int>(std::lround((value - whole) * below)), below};
  } else {
    constexpr int kMost[] = {9, 9, 99, 999};
    part = NearestFraction(value - whole, kMost[std::clamp(places, 0, 3)]);
  }
  if (part.above == part.below) whole += 1, part = {0, 1};
  if (part.above == 0) return absl::StrFormat("%.0f", whole);
  const std::string below = absl::StrCat("/", part.below);
  if (whole == 0) return absl::StrCat(part.above, below);
  if (has_whole) return absl::StrFormat("%.0f %d%s", whole, part.above, below);
  return absl::StrFormat("%.0f%s", whole * part.below + part.above, below);
}

// A number from 0 to 1e15.
std::string FormatDigits(double value, const std::vector<Token>& tokens) {
  const auto is = [](char sign) {
    return [sign](const Token& token) { return token.sign == sign; };
  };
  const auto bar = std::find_if(tokens.begin(), tokens.end(), is('/'));
  if (bar != tokens.end()) {
    return FormatFraction(value, tokens, static_cast<size_t>(bar - tokens.begin()));
  }
  const auto point = std::find_if(tokens.begin(), tokens.end(), is('.'));
  const auto exponent = std::find_if(tokens.begin(), tokens.end(), is('E'));
  const auto last_place = std::find_if(tokens.rbegin(), tokens.rend(), IsDigitPlace);
  int places = 0, fixed = 0;
  for (auto at = point; at < exponent; ++at) {
    places += IsDigitPlace(*at) ? 1 : 0;
    fixed += at->sign == '0' ? 1 : 0;
  }
  places = std::min(places, 30);
  if (exponent != tokens.end()) return absl::StrFormat("%.*E", places, value);
  // A comma at the end divides by a thousand; one between digits groups them.
  for (auto at = last_place.base(); at != tokens.end() && at->sign == ','; ++at) value /= 1000;
  std::string digits = FixedDecimal(value, places);
  std::string rest = places > 0 ? digits.substr(digits.find('.') + 1) : "";
  digits.resize(std::min(digits.find('.'), digits.size()));
  while (static_cast<int>(rest.size()) > fixed && rest.back() == '0') rest.pop_back();
  std::string text =
      WholePart(tokens, static_cast<size_t>(point - tokens.begin()), std::move(digits));
  if (!rest.empty()) absl::StrAppend(&text, ".", rest);
  for (auto at = point; at != tokens.end(); ++at) {
    absl::StrAppend(&text, at->sign == '%' ? "%" : "", at->text);
  }
  return text;
}

bool Holds(double value, absl::string_view condition) {
  const size_t end = condition.find_first_not_of("<>=");
  double bound = 0;
  if (end == absl::string_view::npos || !absl::SimpleAtod(condition.substr(end), &bound)) {
    return false;
  }
  const absl::string_view sign = condition.substr(0, end);
  return sign == "<"    ? value < bound
         : sign == "<=" ? value <= bound
         : sign == ">"  ? value > bound
         : sign == ">=" ? value >= bound
         : sign == "<>" ? value != bound
                        : value == bound;
}

// The part of a code that shows this number. `own_sign`: the part is for negative numbers alone,
// and says so in its own way.
Section ChooseSection(double value, const std::vector<std::string>& codes, bool* own_sign) {
  std::vector<Section> sections;
  for (size_t i = 0; i < std::min<size_t>(codes.size(), 3); ++i)
    sections.push_back(Parse(codes[i]));
  *own_sign = false;
  const bool conditional =
      std::any_of(sections.begin(), sections.end(),
                  [](const Section& section) { return !section.condition.empty(); });
  if (!conditional) {
    *own_sign = value < 0 && sections.size() > 1;
    return *own_sign ? sections[1] : value == 0 && sections.size() > 2 ? sections[2] : sections[0];
  }
  for (const Section& section : sections) {
    if (!section.condition.empty() && !Holds(value, section.condition)) continue;
    *own_sign = value < 0 && (section.condition == "<0" || section.condition == "<=0");
    return section;
  }
  return sections.back();
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
    case 12:
      return "# ?/?";
    case 13:
      return "# ?"
             "?/?"
             "?";
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
  const std::vector<std::string> codes = SplitSections(code);
  bool own_sign = false;
  const Section section = ChooseSection(value, codes, &own_sign);
  if (!section.dates.empty() && !HasSign(section.tokens, 'G')) {
    constexpr double kLastDay = 2958466;  // the year 9999
    if (value < 0 || value > kLastDay) return General(value);
    return FormatDate(value, section.dates, since_1904);
  }
  const std::vector<Token>& tokens = section.tokens;
  if (tokens.empty()) return codes.size() > 1 ? "" : General(value);  // "0;-0;;" hides zeros
  double shown = own_sign ? std::fabs(value) : value;
  if (HasSign(tokens, 'G') || HasSign(tokens, '@')) {
    std::string text;
    for (const Token& token : tokens) {
      text += token.sign == 'G' || token.sign == '@' ? General(shown) : token.text;
    }
    return text;
  }
  const bool has_places = std::any_of(tokens.begin(), tokens.end(), IsDigitPlace);
  if (has_places && std::fabs(value) >= kMostShown) return General(value);
  for (const Token& token : tokens) {
    if (token.sign == '%' && std::fabs(shown) < kMostShown) shown *= 100;
  }
  const std::string text = FormatDigits(std::fabs(shown), tokens);
  const bool is_zero = text.find_first_of("123456789") == std::string::npos;
  return absl::StrCat(shown < 0 && has_places && !is_zero ? "-" : "", text);
}

bool HidesText(absl::string_view code) {
  const std::vector<std::string> codes = SplitSections(code);
  return codes.size() > 3 && Parse(codes[3]).tokens.empty();
}

}  // namespace annulus::client
