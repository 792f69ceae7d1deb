#include "engine/text/template/library/format_string.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/operators.h"
#include "engine/text/template/library/characters.h"
#include "engine/text/template/library/format_value.h"

namespace annulus::jinja {
namespace {

constexpr int kMaxWidth = 1000;

struct Layout {
  absl::string_view fill = " ";  // one character
  char align = '\0';             // < > ^ or =, where the fill goes behind the sign
  char sign = '-';               // +, - or blank
  bool commas = false;
  int width = 0;
  int precision = -1;
  char type = '\0';
};

// Reads digits; fails beyond kMaxWidth.
int ReadNumber(const std::string& text, size_t* position) {
  int number = 0;
  while (*position < text.size() && absl::ascii_isdigit(text[*position])) {
    number = number * 10 + (text[(*position)++] - '0');
    if (number > kMaxWidth) Fail("a width or precision of a format is above ", kMaxWidth);
  }
  return number;
}

std::string Repeated(absl::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result.append(text.data(), text.size());
  return result;
}

std::string Pad(const std::string& text, const Layout& layout, char default_align) {
  const int missing = layout.width - static_cast<int>(CountCharacters(text));
  if (missing <= 0) return text;
  const char align = layout.align != '\0' ? layout.align : default_align;
  const bool has_sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ');
  switch (align) {
    case '>':
      return absl::StrCat(Repeated(layout.fill, missing), text);
    case '^':
      return absl::StrCat(Repeated(layout.fill, missing / 2), text,
                          Repeated(layout.fill, missing - missing / 2));
    case '=':
      return absl::StrCat(text.substr(0, has_sign ? 1 : 0), Repeated(layout.fill, missing),
                          text.substr(has_sign ? 1 : 0));
    default:
      return absl::StrCat(text, Repeated(layout.fill, missing));
  }
}

void InsertCommas(std::string* digits) {
  const size_t end = digits->find_first_not_of("0123456789");
  for (size_t i = end == std::string::npos ? digits->size() : end; i > 3; i -= 3) {
    digits->insert(i - 3, 1, ',');
  }
}

std::string FloatDigits(double value, const Layout& layout) {
  const int precision = layout.precision < 0 ? 6 : layout.precision;
  switch (layout.type) {
    case 'f':
    case 'F':
      return absl::StrFormat("%.*f", precision, value);
    case 'e':
      return absl::StrFormat("%.*e", precision, value);
    case '%':
      return absl::StrFormat("%.*f%%", precision, value * 100);
    case 'g':
      return absl::StrFormat("%.*g", precision, value);
    default:
      if (layout.precision < 0) return FloatText(value);
      Fail("a format of a float needs one of the types e, f, g and %");
  }
}

std::string IntegerDigits(uint64_t magnitude, char type) {
  switch (type) {
    case '\0':
    case 'd':
    case 'i':
      return absl::StrCat(magnitude);
    case 'x':
      return absl::StrFormat("%x", magnitude);
    case 'X':
      return absl::StrFormat("%X", magnitude);
    case 'o':
      return absl::StrFormat("%o", magnitude);
    default:
      Fail("an integer cannot be formatted with the type '", std::string(1, type), "'");
  }
}

std::string FormatNumber(const Value& value, const Layout& layout) {
  const bool as_float =
      value.is(Kind::kFloat) ||
      (layout.type != '\0' && absl::StrContains("eEfFg%", std::string(1, layout.type)));
  std::string digits;
  bool negative = false;
  if (as_float) {
    negative = std::signbit(value.number());
    digits = FloatDigits(std::abs(value.number()), layout);
  } else {
    negative = value.integer() < 0;
    const uint64_t bits = static_cast<uint64_t>(value.integer());
    digits = IntegerDigits(negative ? uint64_t{0} - bits : bits, layout.type);
  }
  if (layout.commas) InsertCommas(&digits);
  if (negative) {
    digits.insert(0, 1, '-');
  } else if (layout.sign != '-') {
    digits.insert(0, 1, layout.sign);
  }
  return Pad(digits, layout, '>');
}

std::string FormatText(std::string text, const Layout& layout) {
  if (layout.precision >= 0) {
    text.resize(OffsetOfCharacter(text, static_cast<size_t>(layout.precision)));
  }
  return Pad(text, layout, '<');
}

// "%(name)-08.3f" and the like.
class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const std::string& format, const Value& values)
      : runtime_(runtime), format_(format), values_(values) {
    is_tuple_ = values.is(Kind::kList) && values.list().kind == ListKind::kTuple;
  }

  std::string Run() {
    while (position_ < format_.size()) {
      const size_t begin = std::min(format_.find('%', position_), format_.size());
      out_.append(format_, position_, begin - position_);
      position_ = begin + 1;
      if (begin < format_.size()) Conversion();
    }
    // Python treats any value with elements as a mapping, and allows unused ones.
    const bool has_elements = values_.is(Kind::kDict) || values_.is(Kind::kList);
    const bool unused =
        is_tuple_ ? next_ < values_.list().items.size() : next_ == 0 && !by_name_ && !has_elements;
    if (unused) Fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  Value NextValue() {
    if (is_tuple_ ? next_ >= values_.list().items.size() : next_ > 0) {
      Fail("not enough arguments for format string");
    }
    return is_tuple_ ? values_.list().items[next_++] : (++next_, values_);
  }

  Value NamedValue() {
    const size_t end = format_.find(')', position_);
    if (end == std::string::npos) Fail("incomplete format key");
    if (!values_.is(Kind::kDict)) Fail("format requires a mapping");
    const std::string name = format_.substr(position_ + 1, end - position_ - 1);
    const Value* const value = values_.dict().Find(absl::string_view(name));
    if (value == nullptr) Fail("the format's key '", name, "' is not there");
    position_ = end + 1;
    by_name_ = true;
    return *value;
  }

  void Conversion() {
    std::optional<Value> value;
    if (position_ < format_.size() && format_[position_] == '(') value = NamedValue();
    Layout layout;
    layout.align = '>';
    for (; position_ < format_.size() && absl::StrContains("-+ 0#", format_.substr(position_, 1));
         ++position_) {
      const char flag = format_[position_];
      if (flag == '-') layout.align = '<';
      if (flag == '+' || (flag == ' ' && layout.sign == '-')) layout.sign = flag;
      if (flag == '0' && layout.align != '<') {
        layout.align = '=';
        layout.fill = "0";
      }
    }
    if (layout.align == '<') layout.fill = " ";
    layout.width = ReadNumber(format_, &position_);
    if (position_ < format_.size() && format_[position_] == '.') {
      ++position_;
      layout.precision = ReadNumber(format_, &position_);
    }
    if (position_ >= format_.size()) Fail("incomplete format");
    layout.type = format_[position_++];
    if (layout.type == '%') {
      out_.push_back('%');
      return;
    }
    Append(value.has_value() ? *value : NextValue(), layout);
  }

  void Append(const Value& value, Layout layout) {
    if (layout.type == 's' || layout.type == 'r') {
      if (layout.fill == "0") layout = TextLayout(layout);
      Emit(FormatText(layout.type == 's' ? Str(runtime_, value) : Repr(runtime_, value), layout));
    } else if (layout.type == 'c') {
      Fail("the conversion %c is not supported");
    } else {
      if (value.is(Kind::kUndefined)) Fail(value.reason());
      if (!value.is_number()) {
        Fail("%", std::string(1, layout.type), " format: a number is required, not ",
             TypeName(value));
      }
      const bool to_integer = layout.type == 'd' || layout.type == 'i';
      const Value number = to_integer && value.is(Kind::kFloat)
                               ? Value::Int(static_cast<int64_t>(Checked(value.number())))
                               : value;
      if (!to_integer && !absl::StrContains("eEfFgxXo", std::string(1, layout.type))) {
        Fail("unsupported format character '", std::string(1, layout.type), "'");
      }
      Emit(FormatNumber(number, layout));
    }
  }

  void Emit(const std::string& text) {
    runtime_.ChargeGrowth(text.size());
    runtime_.StepCharacters(text.size());
    out_ += text;
  }

  static double Checked(double value) {
    if (!(std::abs(value) < 9.2e18)) Fail("a float does not fit an integer of 64 bits");
    return value;
  }

  static Layout TextLayout(Layout layout) {
    layout.fill = " ";
    layout.align = '>';
    return layout;
  }

  Runtime& runtime_;
  const std::string& format_;
  const Value values_;
  bool is_tuple_ = false;
  bool by_name_ = false;
  size_t position_ = 0;
  size_t next_ = 0;
  std::string out_;
};

// The fill is part of `text`.
Layout ReadLayout(const std::string& text) {
  Layout layout;
  size_t position = 0;
  if (!text.empty()) {
    size_t behind = 0;
    const absl::string_view first = NextCharacter(text, &behind);
    if (behind < text.size() && absl::StrContains("<>^=", text.substr(behind, 1))) {
      layout.fill = first;
      layout.align = text[behind];
      position = behind + 1;
    } else if (absl::StrContains("<>^=", first)) {
      layout.align = text[0];
      position = 1;
    }
  }
  if (position < text.size() && absl::StrContains("+- ", text.substr(position, 1))) {
    layout.sign = text[position++];
  }
  if (position < text.size() && text[position] == '0') {
    if (layout.align == '\0') {
      layout.align = '=';
      layout.fill = "0";
    }
    ++position;
  }
  layout.width = ReadNumber(text, &position);
  if (position < text.size() && text[position] == ',') {
    layout.commas = true;
    ++position;
  }
  if (position < text.size() && text[position] == '.') {
    ++position;
    layout.precision = ReadNumber(text, &position);
  }
  if (position < text.size()) layout.type = text[position++];
  if (position < text.size()) Fail("the format '", text, "' is not supported");
  return layout;
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const std::string& format, Arguments& arguments)
      : runtime_(runtime), format_(format), arguments_(arguments) {}

  std::string Run() {
    for (size_t i = 0; i < format_.size(); ++i) {
      const char c = format_[i];
      const bool doubled = i + 1 < format_.size() && format_[i + 1] == c;
      if ((c == '{' || c == '}') && doubled) {
        out_.push_back(c);
        ++i;
      } else if (c == '}') {
        Fail("single '}' in a format string");
      } else if (c == '{') {
        const size_t end = format_.find('}', i);
        if (end == std::string::npos) Fail("'{' without '}' in a format string");
        Field(format_.substr(i + 1, end - i - 1));
        i = end;
      } else {
        out_.push_back(c);
      }
    }
    return std::move(out_);
  }

 private:
  void Field(const std::string& field) {
    if (absl::StrContains(field, "{")) Fail("nested fields of a format are not supported");
    const size_t name_end = std::min(field.find_first_of("!:"), field.size());
    const Value value = Find(field.substr(0, name_end));
    size_t position = name_end;
    char conversion = '\0';
    if (position < field.size() && field[position] == '!') {
      conversion = position + 1 < field.size() ? field[position + 1] : '\0';
      if (conversion != 's' && conversion != 'r') Fail("a format's conversion must be !s or !r");
      position += 2;
    }
    std::string spec;
    if (position < field.size()) {
      if (field[position] != ':') Fail("expected ':' in a format string");
      spec = field.substr(position + 1);
    }
    const Layout layout = ReadLayout(spec);
    if (conversion == '\0' && value.is_number() && !spec.empty()) {
      const bool as_text = value.is(Kind::kBool) && layout.type == '\0';
      Emit(FormatNumber(as_text ? Value::Int(value.integer()) : value, layout));
    } else {
      if (layout.type != '\0' && layout.type != 's') {
        Fail("the format type '", std::string(1, layout.type), "' does not fit a ",
             TypeName(value));
      }
      if (!spec.empty() && conversion == '\0' && !value.is(Kind::kString)) {
        Fail("unsupported format string passed to ", TypeName(value));
      }
      Emit(FormatText(conversion == 'r' ? Repr(runtime_, value) : Str(runtime_, value), layout));
    }
  }

  void Emit(const std::string& text) {
    runtime_.ChargeGrowth(text.size());
    runtime_.StepCharacters(text.size());
    out_ += text;
  }

  // The value of "0", "name" or "" with attributes and elements behind.
  Value Find(const std::string& path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    const std::string first = path.substr(0, end);
    Value value = first.empty() ? Positional(next_++) : Argument(first);
    for (size_t i = end; i < path.size();) {
      const bool attribute = path[i] == '.';
      const size_t stop =
          attribute ? std::min(path.find_first_of(".[", i + 1), path.size()) : path.find(']', i);
      if (stop == std::string::npos) Fail("missing ']' in a format string");
      const std::string name = path.substr(i + 1, stop - i - 1);
      int64_t index = 0;
      if (!attribute && absl::SimpleAtoi(name, &index)) {
        value = Subscript(runtime_, value, Value::Int(index));
      } else {
        value = attribute ? Attribute(runtime_, value, name)
                          : Subscript(runtime_, value, runtime_.String(name));
      }
      i = attribute ? stop : stop + 1;
    }
    return value;
  }

  Value Positional(size_t index) {
    if (index >= arguments_.positional.size()) Fail("a format string needs more arguments");
    return arguments_.positional[index];
  }

  Value Argument(const std::string& name) {
    size_t index = 0;
    if (absl::SimpleAtoi(name, &index)) return Positional(index);
    runtime_.Step(8 * arguments_.keywords.size());
    for (const auto& [keyword, value] : arguments_.keywords) {
      if (keyword == name) return value;
    }
    Fail("a format string names '", name, "', which is not given");
  }

  Runtime& runtime_;
  const std::string& format_;
  Arguments& arguments_;
  size_t next_ = 0;
  std::string out_;
};

}  // namespace

Value PercentFormat(Runtime& runtime, const std::string& format, const Value& values) {
  runtime.StepCharacters(format.size());
  runtime.Hold(3 * format.size());  // of the result, what is taken as it is
  return runtime.String(PercentFormatter(runtime, format, values).Run());
}

Value BraceFormat(Runtime& runtime, const std::string& format, Arguments& arguments) {
  runtime.StepCharacters(format.size());
  runtime.Hold(3 * format.size());  // of the result, what is taken as it is
  return runtime.String(BraceFormatter(runtime, format, arguments).Run());
}

}  // namespace annulus::jinja
