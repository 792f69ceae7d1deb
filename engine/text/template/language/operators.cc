#include "engine/text/template/language/operators.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/loop_state.h"
#include "engine/text/template/library/characters.h"
#include "engine/text/template/library/format_string.h"
#include "engine/text/template/library/text_search.h"

namespace annulus::jinja {
namespace {

[[noreturn]] void Unsupported(absl::string_view op, const Value& left, const Value& right) {
  if (left.is(Kind::kUndefined)) Fail(left.reason());
  if (right.is(Kind::kUndefined)) Fail(right.reason());
  Fail("unsupported operand types for ", op, ": '", TypeName(left), "' and '", TypeName(right),
       "'");
}

[[noreturn]] void Overflow() { Fail("integer overflow: the result does not fit 64 bits"); }

// Python rounds towards minus infinity.
int64_t FloorDivide(int64_t left, int64_t right) {
  const int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

int64_t IntegerPower(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) Overflow();
  }
  return result;
}

Value Integers(absl::string_view op, int64_t left, int64_t right) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(left, right, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(left, right, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(left, right, &result);
  } else {  // // and %
    if (right == 0) Fail("integer division or modulo by zero");
    if (left == INT64_MIN && right == -1) {
      if (op == "//") Overflow();
      return Value::Int(0);
    }
    const int64_t quotient = FloorDivide(left, right);
    result = op == "//" ? quotient : left - quotient * right;
  }
  if (overflow) Overflow();
  return Value::Int(result);
}

Value Floats(absl::string_view op, double left, double right) {
  if (op == "+") return Value::Float(left + right);
  if (op == "-") return Value::Float(left - right);
  if (op == "*") return Value::Float(left * right);
  if (right == 0) Fail("division by zero");
  if (op == "/") return Value::Float(left / right);
  double remainder = std::fmod(left, right);
  double quotient = (left - remainder) / right;
  if (remainder != 0 && (right < 0) != (remainder < 0)) {
    remainder += right;
    quotient -= 1;
  }
  if (op == "%") return Value::Float(remainder == 0 ? std::copysign(0.0, right) : remainder);
  if (quotient == 0) return Value::Float(std::copysign(0.0, left / right));
  const double floored = std::floor(quotient);
  return Value::Float(quotient - floored > 0.5 ? floored + 1 : floored);
}

Value Power(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral() && right.integer() >= 0) {
    return Value::Int(IntegerPower(left.integer(), right.integer()));
  }
  if (left.number() == 0 && right.number() < 0) Fail("zero to a negative power");
  if (left.number() < 0 && right.number() != std::floor(right.number())) {
    Fail("a negative number to a power that is no integer");
  }
  const double result = std::pow(left.number(), right.number());
  if (std::isinf(result) && std::isfinite(left.number()) && std::isfinite(right.number())) {
    Fail("the result of ** is too large");
  }
  return Value::Float(result);
}

Value Numbers(absl::string_view op, const Value& left, const Value& right) {
  if (op == "**") return Power(left, right);
  if (op != "/" && left.is_integral() && right.is_integral()) {
    return Integers(op, left.integer(), right.integer());
  }
  return Floats(op, left.number(), right.number());
}

Value Repeat(Runtime& runtime, const Value& sequence, int64_t times) {
  const size_t count = static_cast<size_t>(std::max<int64_t>(times, 0));
  const size_t limit = runtime.limits().value_bytes;
  if (sequence.is(Kind::kString)) {
    const std::string& text = sequence.text();
    if (!text.empty() && count > limit / text.size()) {
      Fail("a repeated string takes more than ", limit, " bytes");
    }
    const size_t size = text.size() * count;
    runtime.Step(size);
    std::string result;
    result.reserve(size);
    if (size > 0) result = text;
    // Doubled, so that a short text takes no longer than a long one.
    while (result.size() < size) result.append(result, 0, size - result.size());
    return runtime.String(std::move(result));
  }
  const std::vector<Value>& items = sequence.list().items;
  if (!items.empty() && count > limit / sizeof(Value) / items.size()) {
    Fail("a repeated list takes more than ", limit, " bytes");
  }
  runtime.Step(count * items.size() * sizeof(Value));
  std::vector<Value> result;
  for (size_t i = 0; i < count && !items.empty(); ++i) {
    result.insert(result.end(), items.begin(), items.end());
  }
  return runtime.List(std::move(result), sequence.list().kind);
}

bool IsListOrTuple(const Value& value) {
  return value.is(Kind::kList) &&
         (value.list().kind == ListKind::kList || value.list().kind == ListKind::kTuple);
}

Value Join(Runtime& runtime, const Value& left, const Value& right) {
  if (left.is(Kind::kString) && right.is(Kind::kString)) {
    runtime.Step(left.text().size() + right.text().size());
    return runtime.String(absl::StrCat(left.text(), right.text()));
  }
  if (IsListOrTuple(left) && IsListOrTuple(right) && left.list().kind == right.list().kind) {
    const size_t count = left.list().items.size() + right.list().items.size();
    runtime.Hold(count * Runtime::kHeldForElement);
    std::vector<Value> items = left.list().items;
    items.insert(items.end(), right.list().items.begin(), right.list().items.end());
    return runtime.List(std::move(items), left.list().kind);
  }
  if (left.is(Kind::kString) && !right.is(Kind::kUndefined)) {
    Fail("can only concatenate str (not \"", TypeName(right), "\") to str");
  }
  Unsupported("+", left, right);
}

struct SliceRange {
  int64_t begin = 0;
  int64_t step = 1;
  size_t count = 0;
};

// Python's slice.indices().
SliceRange ResolveSlice(int64_t length, const Value& begin, const Value& end, const Value& step) {
  const auto index = [](const Value& value, int64_t fallback) {
    return value.is(Kind::kNone) ? fallback : RequireInt(value, "a slice index");
  };
  SliceRange range;
  range.step = index(step, 1);
  if (range.step == 0) Fail("slice step cannot be zero");
  const bool forward = range.step > 0;
  const int64_t low = forward ? 0 : -1;
  const int64_t high = forward ? length : length - 1;
  const auto clamp = [&](int64_t value) {
    return value < 0 ? std::max(value + length, low) : std::min(value, high);
  };
  range.begin = begin.is(Kind::kNone) ? (forward ? low : high) : clamp(index(begin, 0));
  const int64_t stop = end.is(Kind::kNone) ? (forward ? high : low) : clamp(index(end, 0));
  const int64_t distance = forward ? stop - range.begin : range.begin - stop;
  if (distance > 0) {
    // Unsigned: the negation of the smallest integer fits.
    const uint64_t stride = forward ? static_cast<uint64_t>(range.step)
                                    : uint64_t{0} - static_cast<uint64_t>(range.step);
    range.count = static_cast<size_t>((static_cast<uint64_t>(distance) - 1) / stride + 1);
  }
  return range;
}

// text[begin], text[begin + step], .. of `range`; the whole is read once, forwards.
Value SliceText(Runtime& runtime, const std::string& text, const SliceRange& range) {
  runtime.Step(text.size());
  if (range.step != 1) runtime.StepCharacters(text.size());
  if (range.step == 1) {
    const size_t begin = OffsetOfCharacter(text, static_cast<size_t>(range.begin));
    const absl::string_view rest = absl::string_view(text).substr(begin);
    return runtime.String(std::string(rest.substr(0, OffsetOfCharacter(rest, range.count))));
  }
  std::vector<size_t> offsets;
  runtime.ChargeGrowth(text.size() * sizeof(size_t));
  for (size_t position = 0; position < text.size();) {
    offsets.push_back(position);
    NextCharacter(text, &position);
  }
  std::string result;
  for (size_t i = 0; i < range.count; ++i) {
    const int64_t index = range.begin + static_cast<int64_t>(i) * range.step;
    size_t position = offsets[static_cast<size_t>(index)];
    const absl::string_view character = NextCharacter(text, &position);
    result.append(character.data(), character.size());
  }
  return runtime.String(std::move(result));
}

bool HasIndex(const Value& value) {
  return value.is(Kind::kString) || IsListOrTuple(value) ||
         (value.is(Kind::kList) && value.list().kind == ListKind::kRange);
}

}  // namespace

Value Arithmetic(Runtime& runtime, absl::string_view op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) return Numbers(op, left, right);
  if (op == "%" && left.is(Kind::kString)) return PercentFormat(runtime, left.text(), right);
  if (op == "+") return Join(runtime, left, right);
  if (op == "*") {
    if ((left.is(Kind::kString) || IsListOrTuple(left)) && right.is_integral()) {
      return Repeat(runtime, left, right.integer());
    }
    if ((right.is(Kind::kString) || IsListOrTuple(right)) && left.is_integral()) {
      return Repeat(runtime, right, left.integer());
    }
  }
  Unsupported(op, left, right);
}

Value Negate(const Value& value) {
  if (value.is(Kind::kUndefined)) Fail(value.reason());
  if (value.is(Kind::kFloat)) return Value::Float(-value.number());
  if (!value.is_integral()) Fail("bad operand type for unary -: '", TypeName(value), "'");
  return Integers("-", 0, value.integer());
}

Value Positive(const Value& value) {
  if (value.is(Kind::kUndefined)) Fail(value.reason());
  if (!value.is_number()) Fail("bad operand type for unary +: '", TypeName(value), "'");
  return value.is(Kind::kFloat) ? value : Value::Int(value.integer());
}

bool CountedLess(Runtime& runtime, const Value& left, const Value& right) {
  // On every level the first difference is looked for, and then looked into.
  const auto levels = static_cast<size_t>(1 + std::min(DepthOf(left), DepthOf(right)));
  runtime.Step(levels * std::min(WeightOf(left), WeightOf(right)));
  return Less(left, right);
}

bool Compare(Runtime& runtime, absl::string_view op, const Value& left, const Value& right) {
  runtime.Step(std::min(WeightOf(left), WeightOf(right)));
  if (op == "==") return Equals(left, right);
  if (op == "!=") return !Equals(left, right);
  if (op == "in") return Contains(runtime, right, left);
  if (op == "not in") return !Contains(runtime, right, left);
  // NaN is neither less nor equal.
  if (op == "<") return CountedLess(runtime, left, right);
  if (op == ">") return CountedLess(runtime, right, left);
  if (op == "<=") return CountedLess(runtime, left, right) || Equals(left, right);
  return CountedLess(runtime, right, left) || Equals(left, right);
}

bool Contains(Runtime& runtime, const Value& container, const Value& item) {
  runtime.Step(container.is(Kind::kDict) ? WeightOf(item) : WeightOf(container));
  if (container.is(Kind::kString)) {
    if (!item.is(Kind::kString)) {
      if (item.is(Kind::kUndefined)) Fail(item.reason());
      Fail("'in <string>' requires string as left operand, not ", TypeName(item));
    }
    runtime.StepCharacters(container.text().size());
    return FindText(container.text(), item.text()) != absl::string_view::npos;
  }
  if (container.is(Kind::kDict)) {
    CheckHashable(item);
    return container.dict().Find(item) != nullptr;
  }
  if (container.is(Kind::kList) || container.is(Kind::kUndefined)) {
    const std::vector<Value>& items = runtime.Elements(container);
    return std::any_of(items.begin(), items.end(),
                       [&](const Value& other) { return Equals(other, item); });
  }
  Fail("argument of type '", TypeName(container), "' is not iterable");
}

int64_t Length(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      runtime.Step(value.text().size());
      return static_cast<int64_t>(CountCharacters(value.text()));
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().items.size());
    case Kind::kLoop:
      return value.loop().Attribute(runtime, value, "length").integer();
    case Kind::kList:
      if (value.list().kind != ListKind::kIterator) {
        return static_cast<int64_t>(value.list().items.size());
      }
      break;
    default:
      break;
  }
  Fail("object of type '", TypeName(value), "' has no len()");
}

Value Subscript(Runtime& runtime, const Value& container, const Value& key) {
  if (container.is(Kind::kUndefined)) Fail(container.reason());
  runtime.Step(WeightOf(key));
  if (container.is(Kind::kDict)) {
    const bool unhashable =
        key.is(Kind::kDict) || (key.is(Kind::kList) && key.list().kind != ListKind::kTuple);
    const Value* const found = unhashable ? nullptr : container.dict().Find(key);
    if (found != nullptr) return *found;
  } else if (HasIndex(container) && key.is_integral()) {
    const int64_t length = Length(runtime, container);
    int64_t index = key.integer();
    if (index < 0) index += length;
    if (index >= 0 && index < length) {
      if (container.is(Kind::kList)) return container.list().items[static_cast<size_t>(index)];
      size_t position = OffsetOfCharacter(container.text(), static_cast<size_t>(index));
      return runtime.String(std::string(NextCharacter(container.text(), &position)));
    }
  }
  if (key.is(Kind::kString)) return Attribute(runtime, container, key.text());
  return runtime.Undefined(absl::StrCat("a ", TypeName(container), " has no such element"));
}

Value Slice(Runtime& runtime, const Value& container, const Value& begin, const Value& end,
            const Value& step) {
  if (container.is(Kind::kUndefined)) Fail(container.reason());
  if (!HasIndex(container)) Fail("a ", TypeName(container), " cannot be sliced");
  const SliceRange range = ResolveSlice(Length(runtime, container), begin, end, step);
  if (container.is(Kind::kString)) return SliceText(runtime, container.text(), range);
  const std::vector<Value>& items = container.list().items;
  runtime.Need(range.count * sizeof(Value));
  std::vector<Value> result;
  result.reserve(range.count);
  for (size_t i = 0; i < range.count; ++i) {
    result.push_back(
        items[static_cast<size_t>(range.begin + static_cast<int64_t>(i) * range.step)]);
  }
  return runtime.List(std::move(result), container.list().kind);
}

}  // namespace annulus::jinja
