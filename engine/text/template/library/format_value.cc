#include "engine/text/template/library/format_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/operators.h"
#include "engine/text/template/library/characters.h"
#include "engine/text/utf8.h"

namespace annulus::jinja {
namespace {

void AppendQuoted(const std::string& text, std::string* out) {
  const bool single = text.find('\'') == std::string::npos || text.find('"') != std::string::npos;
  const char quote = single ? '\'' : '"';
  out->push_back(quote);
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const char32_t c = NextCodePoint(text, &position);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out->push_back('\\');
      out->push_back(static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      absl::StrAppend(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    } else if (IsPrintable(c)) {
      out->append(text, begin, position - begin);
    } else if (c < 0x100) {
      absl::StrAppendFormat(out, "\\x%02x", static_cast<unsigned>(c));
    } else if (c < 0x10000) {
      absl::StrAppendFormat(out, "\\u%04x", static_cast<unsigned>(c));
    } else {
      absl::StrAppendFormat(out, "\\U%08x", static_cast<unsigned>(c));
    }
  }
  out->push_back(quote);
}

void AppendRepr(const Value& value, std::string* out);

void AppendReprList(const ListData& list, std::string* out) {
  if (list.kind == ListKind::kIterator || list.kind == ListKind::kRange) {
    Fail("an iterator or a range cannot be written as text; make it a list");
  }
  if (list.kind == ListKind::kView) Fail("a dict's view cannot be written as text; make it a list");
  const bool tuple = list.kind == ListKind::kTuple;
  out->push_back(tuple ? '(' : '[');
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out->append(", ");
    AppendRepr(list.items[i], out);
  }
  if (tuple && list.items.size() == 1) out->push_back(',');
  out->push_back(tuple ? ')' : ']');
}

void AppendReprDict(const DictData& dict, std::string* out) {
  out->push_back('{');
  for (size_t i = 0; i < dict.items.size(); ++i) {
    if (i > 0) out->append(", ");
    AppendRepr(dict.items[i].first, out);
    out->append(": ");
    AppendRepr(dict.items[i].second, out);
  }
  out->push_back('}');
}

void AppendRepr(const Value& value, std::string* out) {
  switch (value.kind()) {
    case Kind::kUndefined:
      out->append("Undefined");
      return;
    case Kind::kNone:
      out->append("None");
      return;
    case Kind::kBool:
      out->append(value.boolean() ? "True" : "False");
      return;
    case Kind::kInt:
      absl::StrAppend(out, value.integer());
      return;
    case Kind::kFloat:
      out->append(FloatText(value.number()));
      return;
    case Kind::kString:
      return AppendQuoted(value.text(), out);
    case Kind::kList:
      return AppendReprList(value.list(), out);
    case Kind::kDict:
      return AppendReprDict(value.dict(), out);
    default:
      Fail("a ", TypeName(value), " cannot be written as text");
  }
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style, std::string* out)
      : runtime_(runtime), style_(style), out_(out) {}

  void Write(const Value& value) {
    MakeRoom(0);
    switch (value.kind()) {
      case Kind::kNone:
        out_->append("null");
        return;
      case Kind::kBool:
        out_->append(value.boolean() ? "true" : "false");
        return;
      case Kind::kInt:
        absl::StrAppend(out_, value.integer());
        return;
      case Kind::kFloat:
        WriteFloat(value.number());
        return;
      case Kind::kString:
        return WriteText(value.text());
      case Kind::kDict:
        return WriteDict(value.dict());
      case Kind::kList:
        if (value.list().kind == ListKind::kList || value.list().kind == ListKind::kTuple) {
          return WriteList(value.list());
        }
        break;
      default:
        break;
    }
    Fail("Object of type ", TypeName(value), " is not JSON serializable");
  }

 private:
  // Asks for the memory that the text may take once `bytes` more are written, with some more for a
  // number, brackets and separators.
  void MakeRoom(size_t bytes) {
    constexpr size_t kBeside = 512;
    runtime_.Need(3 * (out_->size() + bytes + kBeside));
  }

  void WriteFloat(double value) {
    if (std::isnan(value)) {
      out_->append("NaN");
    } else if (std::isinf(value)) {
      out_->append(value > 0 ? "Infinity" : "-Infinity");
    } else {
      out_->append(FloatText(value));
    }
  }

  void WriteEscape(char32_t c) {
    if (c >= 0x10000) {
      absl::StrAppendFormat(out_, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                            0xdc00 + ((c - 0x10000) & 0x3ff));
    } else {
      absl::StrAppendFormat(out_, "\\u%04x", static_cast<unsigned>(c));
    }
  }

  void WriteText(const std::string& text) {
    constexpr absl::string_view kFrom = "\"\\\n\r\t\b\f";
    constexpr absl::string_view kTo = "\"\\nrtbf";
    constexpr size_t kLongestEscape = 6;
    MakeRoom(kLongestEscape * text.size());
    out_->push_back('"');
    for (size_t position = 0; position < text.size();) {
      const size_t begin = position;
      const char32_t c = NextCodePoint(text, &position);
      const size_t simple = c < 0x80 ? kFrom.find(static_cast<char>(c)) : absl::string_view::npos;
      if (simple != absl::string_view::npos) {
        out_->push_back('\\');
        out_->push_back(kTo[simple]);
      } else if (c < 0x20 || (style_.ensure_ascii && c > 0x7f)) {
        WriteEscape(c);
      } else {
        out_->append(text, begin, position - begin);
      }
    }
    out_->push_back('"');
  }

  void WriteKey(const Value& key) {
    if (key.is(Kind::kString)) return WriteText(key.text());
    if (!key.is_number() && !key.is(Kind::kNone)) {
      Fail("keys must be str, int, float, bool or None, not ", TypeName(key));
    }
    out_->push_back('"');
    Write(key);
    out_->push_back('"');
  }

  void NewLine() {
    if (!style_.indent.has_value()) return;
    const size_t most = runtime_.limits().value_bytes;
    if (out_->size() > most) Fail("JSON takes more than ", most, " bytes");
    runtime_.Step(static_cast<size_t>(level_) * style_.indent->size());
    MakeRoom(static_cast<size_t>(level_) * style_.indent->size());
    out_->push_back('\n');
    for (int i = 0; i < level_; ++i) out_->append(*style_.indent);
  }

  // Writes `count` items between brackets; `write(i)` writes one.
  template <typename WriteItem>
  void WriteItems(char open, char close, size_t count, WriteItem write) {
    out_->push_back(open);
    if (count > 0) {
      ++level_;
      for (size_t i = 0; i < count; ++i) {
        runtime_.Step(style_.item_separator.size());
        if (i > 0) out_->append(style_.item_separator);
        NewLine();
        write(i);
      }
      --level_;
      NewLine();
    }
    out_->push_back(close);
  }

  void WriteList(const ListData& list) {
    WriteItems('[', ']', list.items.size(), [&](size_t i) { Write(list.items[i]); });
  }

  void WriteDict(const DictData& dict) {
    std::vector<const std::pair<Value, Value>*> items;
    runtime_.Hold(4 * sizeof(items[0]) * dict.items.size());  // while it grows, and is sorted
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [&](const auto* a, const auto* b) {
        return CountedLess(runtime_, a->first, b->first);
      });
    }
    WriteItems('{', '}', items.size(), [&](size_t i) {
      WriteKey(items[i]->first);
      out_->append(style_.key_separator);
      Write(items[i]->second);
    });
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  std::string* const out_;
  int level_ = 0;
};

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 40> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::scientific);
  const absl::string_view text(buffer.data(), static_cast<size_t>(result.ptr - buffer.data()));
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  const bool negative = text[0] == '-';
  std::string digits;  // without sign and point
  for (const char c : text.substr(negative ? 1 : 0, e - (negative ? 1 : 0))) {
    if (c != '.') digits.push_back(c);
  }
  std::string number;
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    if (count > 1) digits.insert(1, 1, '.');
    number = absl::StrFormat("%se%c%02d", digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    number = absl::StrCat("0.", std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  } else if (exponent + 1 >= count) {
    number =
        absl::StrCat(digits, std::string(static_cast<size_t>(exponent + 1 - count), '0'), ".0");
  } else {
    number = digits.insert(static_cast<size_t>(exponent + 1), 1, '.');
  }
  return negative ? absl::StrCat("-", number) : number;
}

std::string Str(Runtime& runtime, const Value& value) {
  if (value.is(Kind::kUndefined)) return "";
  if (!value.is(Kind::kString)) return Repr(runtime, value);
  runtime.Step(value.text().size());
  runtime.Hold(value.text().size());
  return value.text();
}

std::string Repr(Runtime& runtime, const Value& value) {
  runtime.StepCharacters(WeightOf(value));
  // A control character becomes four, and the text grows by doubling.
  runtime.Need(3 * 4 * WeightOf(value));
  std::string text;
  AppendRepr(value, &text);
  runtime.Hold(text.capacity());
  return text;
}

std::string ToJson(Runtime& runtime, const Value& value, const JsonStyle& style) {
  runtime.StepCharacters(WeightOf(value));
  std::string text;
  JsonWriter(runtime, style, &text).Write(value);
  runtime.Hold(text.capacity());
  return text;
}

}  // namespace annulus::jinja
