#include "engine/text/template/library/string_methods.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/operators.h"
#include "engine/text/template/library/characters.h"
#include "engine/text/template/library/format_string.h"
#include "engine/text/template/library/text_search.h"
#include "engine/text/utf8.h"

namespace annulus::jinja {
namespace {

Value Text(Runtime& runtime, absl::string_view text) { return runtime.String(std::string(text)); }

// The same for one of the many parts that a text is cut into.
void AddPart(Runtime& runtime, absl::string_view text, std::vector<Value>& parts) {
  runtime.Hold(Runtime::kHeldForElement);
  parts.push_back(Text(runtime, text));
}

// The optional argument `name`: absent or none is nothing.
std::optional<absl::string_view> OptionalText(Arguments& arguments, absl::string_view name) {
  const Value* const value = arguments.Take(name);
  if (value == nullptr || value->is(Kind::kNone)) return std::nullopt;
  return absl::string_view(RequireText(*value, name));
}

int64_t OptionalInt(Arguments& arguments, absl::string_view name, int64_t fallback) {
  const Value* const value = arguments.Take(name);
  return value == nullptr ? fallback : RequireInt(*value, name);
}

template <bool left, bool right>
Value Strip(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto characters = OptionalText(arguments, "chars");
  arguments.Finish();
  runtime.StepCharacters(self.text().size() + characters.value_or("").size());
  runtime.Need(kHeldForStripped * characters.value_or("").size());
  absl::string_view text = self.text();
  if (left) text = StripLeft(text, characters);
  if (right) text = StripRight(text, characters);
  return Text(runtime, text);
}

template <std::string (*map)(absl::string_view)>
Value AsMethod(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  runtime.StepCharacters(self.text().size());
  return runtime.String(map(self.text()));
}

// The position of the next separator, from the left or from the right.
struct Cut {
  size_t begin = 0;
  size_t end = 0;
};

// The first or last run of white space in `text`, which has none at that end.
std::optional<Cut> FindSpace(absl::string_view text, bool from_right) {
  if (from_right) {
    for (absl::string_view left = text; !left.empty();) {
      const absl::string_view stripped = StripRight(left);
      if (stripped.size() < left.size()) return Cut{stripped.size(), left.size()};
      size_t begin = left.size() - 1;
      while ((static_cast<unsigned char>(left[begin]) & 0xc0) == 0x80) --begin;
      left = left.substr(0, begin);
    }
    return std::nullopt;
  }
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    if (!IsSpace(NextCodePoint(text, &position))) continue;
    return Cut{begin, text.size() - StripLeft(text.substr(begin)).size()};
  }
  return std::nullopt;
}

// Splits at a separator, at most `most` times; everywhere if it is below 0.
std::vector<Value> SplitAtText(Runtime& runtime, absl::string_view text,
                               absl::string_view separator, bool from_right, int64_t most) {
  std::vector<Value> parts;
  if (from_right) runtime.Hold(2 * (text.size() + separator.size()));  // it reverses both
  Occurrences occurrences(text, separator, from_right);
  size_t begin = 0;          // of what is left
  size_t end = text.size();  // of what is left
  while (most-- != 0) {
    const std::optional<size_t> found = occurrences.Next();
    if (!found.has_value()) break;
    const size_t behind = *found + separator.size();
    AddPart(runtime,
            from_right ? text.substr(behind, end - behind) : text.substr(begin, *found - begin),
            parts);
    (from_right ? end : begin) = from_right ? *found : behind;
  }
  AddPart(runtime, text.substr(begin, end - begin), parts);
  return parts;
}

// The same at runs of white space.
std::vector<Value> SplitAtSpace(Runtime& runtime, absl::string_view text, bool from_right,
                                int64_t most) {
  std::vector<Value> parts;
  // White space at the far end goes only when everything is split.
  absl::string_view rest = from_right ? StripRight(text) : StripLeft(text);
  while (most-- != 0) {
    const std::optional<Cut> cut = FindSpace(rest, from_right);
    if (!cut.has_value()) break;
    AddPart(runtime, from_right ? rest.substr(cut->end) : rest.substr(0, cut->begin), parts);
    rest = from_right ? rest.substr(0, cut->begin) : rest.substr(cut->end);
  }
  if (!rest.empty()) AddPart(runtime, rest, parts);
  return parts;
}

// str.split and str.rsplit.
Value Split(Runtime& runtime, const Value& self, Arguments& arguments, bool from_right) {
  const auto separator = OptionalText(arguments, "sep");
  const int64_t most = OptionalInt(arguments, "maxsplit", -1);
  arguments.Finish();
  if (separator.has_value() && separator->empty()) Fail("empty separator");
  runtime.StepCharacters(self.text().size());
  std::vector<Value> parts = separator.has_value()
                                 ? SplitAtText(runtime, self.text(), *separator, from_right, most)
                                 : SplitAtSpace(runtime, self.text(), from_right, most);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return runtime.List(std::move(parts));
}

Value SplitMethod(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Split(runtime, self, arguments, /*from_right=*/false);
}

Value RightSplitMethod(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Split(runtime, self, arguments, /*from_right=*/true);
}

Value SplitLines(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value* const keep = arguments.Take("keepends");
  arguments.Finish();
  const absl::string_view text = self.text();
  runtime.StepCharacters(text.size());
  std::vector<Value> lines;
  size_t begin = 0;
  for (size_t position = 0; position < text.size();) {
    const size_t end_length = LineEndLength(text, position);
    if (end_length == 0) {
      NextCharacter(text, &position);
      continue;
    }
    const bool keep_end = keep != nullptr && Truth(*keep);
    AddPart(runtime, text.substr(begin, position - begin + (keep_end ? end_length : 0)), lines);
    position += end_length;
    begin = position;
  }
  if (begin < text.size()) AddPart(runtime, text.substr(begin), lines);
  return runtime.List(std::move(lines));
}

// The part of the text that optional bounds select, and where it begins in characters.
struct Part {
  absl::string_view text;
  int64_t begin = 0;
};

Part TakePart(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value* const begin = arguments.Take("start");
  const Value* const end = arguments.Take("end");
  arguments.Finish();
  if (begin == nullptr) return {self.text(), 0};
  const Value stop = end == nullptr ? Value::None() : *end;
  const Value part = Slice(runtime, self, *begin, stop, Value::None());
  int64_t first = begin->is(Kind::kNone) ? 0 : RequireInt(*begin, "start");
  if (first < 0) first = std::max<int64_t>(0, first + Length(runtime, self));
  return {part.text(), first};
}

bool HasAffix(Runtime& runtime, absl::string_view text, const Value& affix, bool at_end) {
  const std::string& wanted = RequireText(affix, "a prefix or suffix");
  runtime.Step(wanted.size());
  return at_end ? absl::EndsWith(text, wanted) : absl::StartsWith(text, wanted);
}

Value CheckAffix(Runtime& runtime, const Value& self, Arguments& arguments, bool at_end) {
  const Value affix = arguments.Require("prefix or suffix");
  const absl::string_view text = TakePart(runtime, self, arguments).text;
  if (!affix.is(Kind::kList)) return Value::Bool(HasAffix(runtime, text, affix, at_end));
  const std::vector<Value>& all = affix.list().items;
  return Value::Bool(std::any_of(all.begin(), all.end(), [&](const Value& one) {
    return HasAffix(runtime, text, one, at_end);
  }));
}

Value StartsWith(Runtime& runtime, const Value& self, Arguments& arguments) {
  return CheckAffix(runtime, self, arguments, /*at_end=*/false);
}

Value EndsWith(Runtime& runtime, const Value& self, Arguments& arguments) {
  return CheckAffix(runtime, self, arguments, /*at_end=*/true);
}

Value RemoveAffix(Runtime& runtime, const Value& self, Arguments& arguments, bool at_end) {
  const std::string& affix = RequireText(arguments.Require("prefix or suffix"), "the argument");
  arguments.Finish();
  runtime.Step(affix.size());
  absl::string_view text = self.text();
  if (at_end && absl::EndsWith(text, affix)) {
    text.remove_suffix(affix.size());
  } else if (!at_end && absl::StartsWith(text, affix)) {
    text.remove_prefix(affix.size());
  }
  return Text(runtime, text);
}

Value RemovePrefix(Runtime& runtime, const Value& self, Arguments& arguments) {
  return RemoveAffix(runtime, self, arguments, /*at_end=*/false);
}

Value RemoveSuffix(Runtime& runtime, const Value& self, Arguments& arguments) {
  return RemoveAffix(runtime, self, arguments, /*at_end=*/true);
}

Value Replace(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string& old_text = RequireText(arguments.Require("old"), "the text to replace");
  const std::string& new_text = RequireText(arguments.Require("new"), "the replacement");
  const int64_t count = OptionalInt(arguments, "count", -1);
  arguments.Finish();
  return ReplaceText(runtime, self.text(), old_text, new_text, count);
}

// Index in characters, -1 where there is none.
int64_t FindIndex(Runtime& runtime, const Value& self, Arguments& arguments, bool from_right) {
  const std::string& wanted = RequireText(arguments.Require("sub"), "the text to find");
  const Part part = TakePart(runtime, self, arguments);
  runtime.StepCharacters(part.text.size());
  std::optional<size_t> found = from_right ? part.text.size() : 0;
  if (!wanted.empty()) found = Occurrences(part.text, wanted, from_right).Next();
  if (!found.has_value() || part.begin > Length(runtime, self)) return -1;
  return part.begin + static_cast<int64_t>(CountCharacters(part.text.substr(0, *found)));
}

template <bool from_right, bool must_be_there>
Value Find(Runtime& runtime, const Value& self, Arguments& arguments) {
  const int64_t found = FindIndex(runtime, self, arguments, from_right);
  if (must_be_there && found < 0) Fail("substring not found");
  return Value::Int(found);
}

Value Count(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string& wanted = RequireText(arguments.Require("sub"), "the text to count");
  const Part part = TakePart(runtime, self, arguments);
  runtime.StepCharacters(part.text.size());
  if (wanted.empty()) {
    return Value::Int(static_cast<int64_t>(CountCharacters(part.text)) + 1);
  }
  int64_t count = 0;
  for (Occurrences all(part.text, wanted, false); all.Next().has_value();) ++count;
  return Value::Int(count);
}

Value JoinMethod(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::vector<Value> items = runtime.Items(arguments.Require("iterable"));
  arguments.Finish();
  std::string result;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string& item = RequireText(items[i], "what join puts together");
    runtime.ChargeGrowth(item.size() + self.text().size());
    runtime.Step(item.size() + self.text().size());
    if (i > 0) result += self.text();
    result += item;
  }
  return runtime.String(std::move(result));
}

Value Partition(Runtime& runtime, const Value& self, Arguments& arguments, bool from_right) {
  const std::string& separator = RequireText(arguments.Require("sep"), "the separator");
  arguments.Finish();
  if (separator.empty()) Fail("empty separator");
  const absl::string_view text = self.text();
  runtime.StepCharacters(text.size());
  const std::optional<size_t> cut = Occurrences(text, separator, from_right).Next();
  std::array<absl::string_view, 3> parts = {text, "", ""};
  if (cut.has_value()) {
    parts = {text.substr(0, *cut), separator, text.substr(*cut + separator.size())};
  } else if (from_right) {
    parts = {"", "", text};
  }
  return runtime.List({Text(runtime, parts[0]), Text(runtime, parts[1]), Text(runtime, parts[2])},
                      ListKind::kTuple);
}

template <bool from_right>
Value PartitionMethod(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Partition(runtime, self, arguments, from_right);
}

template <bool (*test)(char32_t)>
Value AllCharacters(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  runtime.StepCharacters(self.text().size());
  const absl::string_view text = self.text();
  for (size_t position = 0; position < text.size();) {
    if (!test(NextCodePoint(text, &position))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

bool IsAlphaOrDecimal(char32_t c) { return IsAlpha(c) || IsDecimal(c); }

// Whether at least one letter has the case `wanted` and none has the other one.
template <bool (*wanted)(char32_t), bool (*unwanted)(char32_t)>
Value AllOfCase(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  runtime.StepCharacters(self.text().size());
  const absl::string_view text = self.text();
  bool some = false;
  for (size_t position = 0; position < text.size();) {
    const char32_t c = NextCodePoint(text, &position);
    if (unwanted(c)) return Value::Bool(false);
    some = some || wanted(c);
  }
  return Value::Bool(some);
}

enum class Side : uint8_t { kLeft, kRight, kBoth };

template <Side side>
Value Justify(Runtime& runtime, const Value& self, Arguments& arguments) {
  const int64_t width = RequireInt(arguments.Require("width"), "the width");
  const std::string fill(OptionalText(arguments, "fillchar").value_or(" "));
  arguments.Finish();
  runtime.Step(fill.size());
  if (CountCharacters(fill) != 1) Fail("the fill must be exactly one character");
  const int64_t missing = std::max<int64_t>(0, width - Length(runtime, self));
  // Python's str.center puts the odd character of padding to the left if the width is odd.
  const int64_t left = side == Side::kLeft    ? 0
                       : side == Side::kRight ? missing
                                              : missing / 2 + (missing & width & 1);
  const Value filler = Text(runtime, fill);
  const Value before = Arithmetic(runtime, "*", filler, Value::Int(left));
  const Value after = Arithmetic(runtime, "*", filler, Value::Int(missing - left));
  runtime.Step(before.text().size() + self.text().size() + after.text().size());
  return runtime.String(absl::StrCat(before.text(), self.text(), after.text()));
}

Value ZeroFill(Runtime& runtime, const Value& self, Arguments& arguments) {
  const int64_t width = RequireInt(arguments.Require("width"), "the width");
  arguments.Finish();
  const int64_t missing = std::max<int64_t>(0, width - Length(runtime, self));
  const Value zeros = Arithmetic(runtime, "*", Text(runtime, "0"), Value::Int(missing));
  absl::string_view digits = self.text();
  const bool has_sign = absl::StartsWith(digits, "-") || absl::StartsWith(digits, "+");
  const absl::string_view sign = digits.substr(0, has_sign ? 1 : 0);
  return runtime.String(absl::StrCat(sign, zeros.text(), digits.substr(sign.size())));
}

Value FormatMethod(Runtime& runtime, const Value& self, Arguments& arguments) {
  return BraceFormat(runtime, self.text(), arguments);
}

Value Unsupported(Runtime&, const Value&, Arguments& arguments) {
  Fail("the method str.", arguments.callee, " is not supported");
}

struct NamedMethod {
  absl::string_view name;
  Builtin method;
};

constexpr NamedMethod kMethods[] = {
    {"capitalize", AsMethod<Capitalize>},
    {"center", Justify<Side::kBoth>},
    {"count", Count},
    {"endswith", EndsWith},
    {"find", Find<false, false>},
    {"format", FormatMethod},
    {"index", Find<false, true>},
    {"isalnum", AllCharacters<IsAlphaOrDecimal>},
    {"isalpha", AllCharacters<IsAlpha>},
    {"isdecimal", AllCharacters<IsDecimal>},
    {"isdigit", AllCharacters<IsDecimal>},
    {"islower", AllOfCase<IsLower, IsUpper>},
    {"isnumeric", AllCharacters<IsDecimal>},
    {"isspace", AllCharacters<IsSpace>},
    {"isupper", AllOfCase<IsUpper, IsLower>},
    {"join", JoinMethod},
    {"ljust", Justify<Side::kLeft>},
    {"lower", AsMethod<Lower>},
    {"lstrip", Strip<true, false>},
    {"partition", PartitionMethod<false>},
    {"removeprefix", RemovePrefix},
    {"removesuffix", RemoveSuffix},
    {"replace", Replace},
    {"rfind", Find<true, false>},
    {"rindex", Find<true, true>},
    {"rjust", Justify<Side::kRight>},
    {"rpartition", PartitionMethod<true>},
    {"rsplit", RightSplitMethod},
    {"rstrip", Strip<false, true>},
    {"split", SplitMethod},
    {"splitlines", SplitLines},
    {"startswith", StartsWith},
    {"strip", Strip<true, true>},
    {"swapcase", AsMethod<SwapCase>},
    {"title", AsMethod<Title>},
    {"upper", AsMethod<Upper>},
    {"zfill", ZeroFill},
    // Python has these too.
    {"casefold", Unsupported},
    {"encode", Unsupported},
    {"expandtabs", Unsupported},
    {"format_map", Unsupported},
    {"isascii", Unsupported},
    {"isidentifier", Unsupported},
    {"isprintable", Unsupported},
    {"istitle", Unsupported},
    {"maketrans", Unsupported},
    {"translate", Unsupported},
};

}  // namespace

Builtin FindStringMethod(absl::string_view name) {
  for (const NamedMethod& method : kMethods) {
    if (method.name == name) return method.method;
  }
  return nullptr;
}

Value ReplaceText(Runtime& runtime, absl::string_view text, absl::string_view old_text,
                  absl::string_view new_text, int64_t count) {
  runtime.StepCharacters(text.size());
  std::string result;
  size_t position = 0;
  const auto append = [&](absl::string_view part) {
    runtime.ChargeGrowth(part.size());
    runtime.Step(part.size());
    result.append(part.data(), part.size());
  };
  while (count-- != 0) {
    const size_t found = old_text.empty() ? position : FindText(text, old_text, position);
    if (found == absl::string_view::npos) break;
    if (old_text.empty()) {
      // In front of every character and at the end.
      append(new_text);
      if (position == text.size()) return runtime.String(std::move(result));
      append(NextCharacter(text, &position));
      continue;
    }
    append(text.substr(position, found - position));
    append(new_text);
    position = found + old_text.size();
  }
  append(text.substr(position));
  return runtime.String(std::move(result));
}

}  // namespace annulus::jinja
