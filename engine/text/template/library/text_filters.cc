// Filters of text and numbers, as jinja2's filters.py defines them; tojson as Transformers does.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "engine/text/template/json_value.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/operators.h"
#include "engine/text/template/library/characters.h"
#include "engine/text/template/library/filters.h"
#include "engine/text/template/library/format_string.h"
#include "engine/text/template/library/format_value.h"
#include "engine/text/template/library/string_methods.h"
#include "engine/text/utf8.h"

namespace annulus::jinja {
namespace {

constexpr int64_t kLongestIndent = 64;

template <std::string (*map)(absl::string_view)>
Value AsFilter(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  const std::string text = Str(runtime, self);
  runtime.StepCharacters(2 * text.size());
  return runtime.String(map(text));
}

Value ToText(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  return self.is(Kind::kString) ? self : runtime.String(Str(runtime, self));
}

Value Trim(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value* const chars = arguments.Take("chars");
  arguments.Finish();
  std::optional<absl::string_view> set;
  if (chars != nullptr && !chars->is(Kind::kNone)) set = RequireText(*chars, "chars");
  const std::string text = Str(runtime, self);
  runtime.StepCharacters(text.size() + set.value_or("").size());
  runtime.Need(kHeldForStripped * set.value_or("").size());
  return runtime.String(std::string(StripRight(StripLeft(text, set), set)));
}

// The filter's own definition of words: they begin after blanks, hyphens and opening brackets.
std::string TitleWords(absl::string_view text) {
  std::string result;
  bool begins = true;
  for (size_t position = 0; position < text.size();) {
    const absl::string_view rest = text.substr(position);
    const absl::string_view character = NextCharacter(text, &position);
    size_t at = 0;
    const char32_t c = NextCodePoint(rest, &at);
    const bool separator =
        IsSpace(c) || absl::string_view("-({[<").find(character) != absl::string_view::npos;
    result += begins && !separator ? Upper(character) : Lower(character);
    begins = separator;
  }
  return result;
}

Value ReplaceFilter(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string old_text = Str(runtime, arguments.Require("old"));
  const std::string new_text = Str(runtime, arguments.Require("new"));
  const Value* const count = arguments.Take("count");
  arguments.Finish();
  const bool all = count == nullptr || count->is(Kind::kNone);
  return ReplaceText(runtime, Str(runtime, self), old_text, new_text,
                     all ? -1 : RequireInt(*count, "count"));
}

Value Indent(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value* const width = arguments.Take("width");
  const bool first = arguments.TakeBool("first", false);
  const bool blank = arguments.TakeBool("blank", false);
  arguments.Finish();
  std::string indention(4, ' ');
  if (width != nullptr && width->is(Kind::kString)) {
    indention = width->text();
  } else if (width != nullptr) {
    const int64_t count = std::max<int64_t>(0, RequireInt(*width, "width"));
    indention = Arithmetic(runtime, "*", runtime.String(" "), Value::Int(count)).text();
  }
  runtime.Hold(2 * RequireText(self, "what is indented").size() + 3 * indention.size());
  const std::string text = absl::StrCat(self.text(), "\n");
  runtime.StepCharacters(text.size());
  std::string result = first ? indention : "";
  for (size_t position = 0, begin = 0; position < text.size();) {
    const size_t end_length = LineEndLength(text, position);
    if (end_length == 0) {
      NextCharacter(text, &position);
      continue;
    }
    const bool not_first = begin > 0;
    const bool has_text = position > begin;
    runtime.Need(3 * (position - begin + indention.size()));
    const std::string line =
        absl::StrCat(not_first ? "\n" : "", not_first && (blank || has_text) ? indention : "",
                     text.substr(begin, position - begin));
    runtime.ChargeGrowth(line.size());
    runtime.Step(line.size());
    result += line;
    position += end_length;
    begin = position;
  }
  return runtime.String(std::move(result));
}

Value Escape(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  const std::string text = Str(runtime, self);
  runtime.StepCharacters(2 * text.size());
  constexpr size_t kLongestEscape = 5;
  runtime.Need(3 * kLongestEscape * text.size());
  return runtime.String(absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {">", "&gt;"}, {"<", "&lt;"}, {"'", "&#39;"}, {"\"", "&#34;"}}));
}

Value WordCount(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  const std::string text = Str(runtime, self);
  runtime.StepCharacters(text.size());
  int64_t words = 0;
  bool in_word = false;
  for (size_t position = 0; position < text.size();) {
    const char32_t c = NextCodePoint(text, &position);
    const bool word = c == '_' || IsAlpha(c) || IsDecimal(c);
    words += word && !in_word ? 1 : 0;
    in_word = word;
  }
  return Value::Int(words);
}

Value Truncate(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value* const length_given = arguments.Take("length");
  const bool kill_words = arguments.TakeBool("killwords", false);
  const Value* const end_given = arguments.Take("end");
  const Value* const leeway_given = arguments.Take("leeway");
  arguments.Finish();
  const int64_t length = length_given == nullptr ? 255 : RequireInt(*length_given, "length");
  const std::string end = end_given == nullptr ? "..." : RequireText(*end_given, "end");
  runtime.Step(end.size());
  const bool no_leeway = leeway_given == nullptr || leeway_given->is(Kind::kNone);
  const int64_t leeway = no_leeway ? 5 : RequireInt(*leeway_given, "leeway");
  const int64_t kept = length - static_cast<int64_t>(CountCharacters(end));
  if (kept < 0 || leeway < 0) Fail("truncate: the length is below that of the end, or the leeway");
  if (Length(runtime, self) <= length + leeway) return self;
  const std::string& text = RequireText(self, "what is truncated");
  runtime.Need(3 * (text.size() + end.size()));
  std::string result = text.substr(0, OffsetOfCharacter(text, static_cast<size_t>(kept)));
  if (!kill_words) {
    const size_t blank = result.rfind(' ');
    if (blank != std::string::npos) result.resize(blank);
  }
  return runtime.String(absl::StrCat(result, end));
}

Value FormatFilter(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (arguments.keywords.empty()) {
    const Value values = runtime.List(arguments.positional, ListKind::kTuple);
    return PercentFormat(runtime, Str(runtime, self), values);
  }
  if (!arguments.positional.empty()) {
    Fail("format takes positional or keyword arguments, not both");
  }
  DictData values;
  for (const auto& [name, value] : arguments.keywords) {
    runtime.SetMember(values, runtime.String(std::string(name)), value);
  }
  return PercentFormat(runtime, Str(runtime, self), runtime.Dict(std::move(values)));
}

// Python's int() of a text in base 10: allows white space around it, a sign, single underscores.
std::optional<int64_t> TextToInt(absl::string_view text, int base) {
  text = StripRight(StripLeft(text));
  std::string digits;
  char before = '_';
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '_' && (before == '_' || i + 1 == text.size())) return std::nullopt;
    if (c != '_' && !(i == 0 && c == '+')) digits.push_back(c);
    before = i == 0 && (c == '+' || c == '-') ? '_' : c;
  }
  absl::string_view plain = digits;
  const bool negative = absl::ConsumePrefix(&plain, "-");
  const char prefix = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
  if (prefix != '\0' && plain.size() > 2 && plain[0] == '0' && (plain[1] | 0x20) == prefix) {
    plain.remove_prefix(2);
  }
  const std::string number = absl::StrCat(negative ? "-" : "", plain);
  int64_t value = 0;
  const auto result = std::from_chars(number.data(), number.data() + number.size(), value, base);
  if (result.ec == std::errc::result_out_of_range) Fail("an integer does not fit 64 bits");
  if (result.ec != std::errc() || result.ptr != number.data() + number.size()) return std::nullopt;
  if (plain.empty() || plain[0] == '-' || plain[0] == '+') return std::nullopt;
  return value;
}

std::optional<double> TextToFloat(absl::string_view text) {
  text = StripRight(StripLeft(text));
  // absl reads hexadecimal floats and "nan(..)", Python does not.
  if (text.empty() || text.find_first_of("xX(") != absl::string_view::npos) return std::nullopt;
  double value = 0;
  if (!absl::SimpleAtod(text, &value)) return std::nullopt;
  return value;
}

std::optional<double> ToFloat(const Value& value) {
  if (value.is(Kind::kUndefined)) Fail(value.reason());
  if (value.is_number()) return value.number();
  return value.is(Kind::kString) ? TextToFloat(value.text()) : std::nullopt;
}

std::optional<int64_t> Truncated(std::optional<double> value) {
  if (!value.has_value() || !std::isfinite(*value)) return std::nullopt;
  if (std::abs(*value) >= 9223372036854775808.0) Fail("an integer does not fit 64 bits");
  return static_cast<int64_t>(*value);
}

Value ToInt(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value* const fallback = arguments.Take("default");
  const Value* const base_given = arguments.Take("base");
  arguments.Finish();
  const int64_t base = base_given == nullptr ? 10 : RequireInt(*base_given, "base");
  if (base < 2 || base > 36) Fail("the base of int must be 2 to 36");
  if (self.is_integral()) return Value::Int(self.integer());
  if (self.is(Kind::kString)) runtime.StepCharacters(self.text().size());
  std::optional<int64_t> result;
  if (self.is(Kind::kString)) result = TextToInt(self.text(), static_cast<int>(base));
  if (!result.has_value()) result = Truncated(ToFloat(self));
  if (result.has_value()) return Value::Int(*result);
  return fallback == nullptr ? Value::Int(0) : *fallback;
}

Value ToFloatFilter(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value* const fallback = arguments.Take("default");
  arguments.Finish();
  if (self.is(Kind::kString)) runtime.StepCharacters(self.text().size());
  const std::optional<double> result = ToFloat(self);
  if (result.has_value()) return Value::Float(*result);
  return fallback == nullptr ? Value::Float(0) : *fallback;
}

Value Absolute(Runtime&, const Value& self, Arguments& arguments) {
  arguments.Finish();
  if (self.is(Kind::kFloat)) return Value::Float(std::abs(self.number()));
  return Value::Int(RequireInt(self, "the value of abs") < 0 ? Negate(self).integer()
                                                             : self.integer());
}

// Correctly rounded to `precision` decimals, half to even of the decimal value, as Python does.
double RoundDecimal(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision < -300) return std::copysign(0.0, value);
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / scale) * scale;
  }
  std::string buffer(400 + static_cast<size_t>(precision), '\0');
  const auto printed = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                     std::chars_format::fixed, static_cast<int>(precision));
  double result = 0;
  std::from_chars(buffer.data(), printed.ptr, result);
  return result;
}

Value Round(Runtime&, const Value& self, Arguments& arguments) {
  const Value* const precision_given = arguments.Take("precision");
  const Value* const method_given = arguments.Take("method");
  arguments.Finish();
  const int64_t precision =
      precision_given == nullptr ? 0 : RequireInt(*precision_given, "precision");
  const std::string method =
      method_given == nullptr ? "common" : RequireText(*method_given, "method");
  if (method != "common" && method != "ceil" && method != "floor") {
    Fail("method must be common, ceil or floor");
  }
  if (self.is(Kind::kUndefined)) Fail(self.reason());
  if (!self.is_number()) Fail("round needs a number, not '", TypeName(self), "'");
  if (method == "common") {
    if (self.is(Kind::kFloat)) return Value::Float(RoundDecimal(self.number(), precision));
    if (precision < 0) Fail("round of an integer to tens is not supported");
    return Value::Int(self.integer());
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = self.number() * scale;
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

// The third to fifth parameters of json.dumps, as far as Transformers passes them on.
Value ToJsonFilter(Runtime& runtime, const Value& self, Arguments& arguments) {
  JsonStyle style;
  style.ensure_ascii = arguments.TakeBool("ensure_ascii", false);
  const Value* const indent = arguments.Take("indent");
  const Value* const separators = arguments.Take("separators");
  style.sort_keys = arguments.TakeBool("sort_keys", false);
  arguments.Finish();
  if (indent != nullptr && !indent->is(Kind::kNone)) {
    style.item_separator = std::string(",");
    if (indent->is(Kind::kString)) {
      style.indent = indent->text();
    } else {
      const int64_t width = std::max<int64_t>(0, RequireInt(*indent, "indent"));
      style.indent = std::string(static_cast<size_t>(std::min(width, kLongestIndent + 1)), ' ');
    }
    if (style.indent->size() > static_cast<size_t>(kLongestIndent)) {
      Fail("the indent of JSON is above ", kLongestIndent);
    }
  }
  if (separators != nullptr && !separators->is(Kind::kNone)) {
    const std::vector<Value> both = runtime.Items(*separators);
    if (both.size() != 2) Fail("separators must be two strings");
    style.item_separator = RequireText(both[0], "a separator");
    style.key_separator = RequireText(both[1], "a separator");
    if (style.item_separator.size() + style.key_separator.size() > kLongestIndent) {
      Fail("the separators of JSON have more than ", kLongestIndent, " bytes");
    }
  }
  return runtime.String(ToJson(runtime, self, style));
}

// The value of a JSON text. Not part of jinja2, but DeepSeek's templates expect it from the program
// that renders them.
Value FromJson(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  const std::string& text = RequireText(self, "what from_json reads");
  runtime.StepCharacters(text.size());
  return ParseJson(runtime, text);
}

// str.center, for anything.
Value Center(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value* const given = arguments.Take("width");
  arguments.Finish();
  Arguments width;
  width.callee = "center";
  width.positional = {given == nullptr ? Value::Int(80) : *given};
  return FindStringMethod("center")(runtime, ToText(runtime, self, arguments), width);
}

constexpr NamedBuiltin kTextFilters[] = {
    {"abs", Absolute},
    {"capitalize", AsFilter<Capitalize>},
    {"center", Center},
    {"e", Escape},
    {"escape", Escape},
    {"float", ToFloatFilter},
    {"forceescape", Escape},
    {"format", FormatFilter},
    {"from_json", FromJson},
    {"fromjson", FromJson},
    {"indent", Indent},
    {"int", ToInt},
    {"lower", AsFilter<Lower>},
    {"replace", ReplaceFilter},
    {"round", Round},
    // Nothing is escaped, so there is nothing to mark as safe.
    {"safe", ToText},
    {"string", ToText},
    {"title", AsFilter<TitleWords>},
    {"tojson", ToJsonFilter},
    {"trim", Trim},
    {"truncate", Truncate},
    {"upper", AsFilter<Upper>},
    {"wordcount", WordCount},
};

}  // namespace

Builtin FindTextFilter(absl::string_view name) { return FindBuiltin(kTextFilters, name); }

std::string TextFilterNames() { return BuiltinNames(kTextFilters); }

}  // namespace annulus::jinja
