#include "engine/text/template/library/value_tests.h"

#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/operators.h"
#include "engine/text/template/library/filters.h"
#include "engine/text/template/library/format_value.h"
#include "engine/text/template/library/string_methods.h"

namespace annulus::jinja {
namespace {

// A test without arguments that looks at the value alone.
template <bool (*test)(const Value&)>
Value Plain(Runtime&, const Value& self, Arguments& arguments) {
  arguments.Finish();
  return Value::Bool(test(self));
}

bool IsDefined(const Value& value) { return !value.is(Kind::kUndefined); }
bool IsUndefined(const Value& value) { return value.is(Kind::kUndefined); }
bool IsNone(const Value& value) { return value.is(Kind::kNone); }
bool IsBoolean(const Value& value) { return value.is(Kind::kBool); }
bool IsTrue(const Value& value) { return value.is(Kind::kBool) && value.boolean(); }
bool IsFalse(const Value& value) { return value.is(Kind::kBool) && !value.boolean(); }
bool IsInteger(const Value& value) { return value.is(Kind::kInt); }
bool IsFloat(const Value& value) { return value.is(Kind::kFloat); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsString(const Value& value) { return value.is(Kind::kString); }
bool IsMapping(const Value& value) { return value.is(Kind::kDict); }
bool IsCallable(const Value& value) {
  // jinja2's Undefined has the method __call__, which fails.
  return value.is(Kind::kFunction) || value.is(Kind::kUndefined) || value.is(Kind::kLoop);
}
bool IsIterable(const Value& value) {
  return value.is(Kind::kUndefined) || value.is(Kind::kString) || value.is(Kind::kList) ||
         value.is(Kind::kDict) || value.is(Kind::kLoop);
}
bool IsSequence(const Value& value) {
  if (!value.is(Kind::kList)) {
    return value.is(Kind::kString) || value.is(Kind::kDict);
  }
  return value.list().kind != ListKind::kView && value.list().kind != ListKind::kIterator;
}

template <int64_t wanted>
Value HasRemainder(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  const Value remainder = Arithmetic(runtime, "%", self, Value::Int(2));
  return Value::Bool(Equals(remainder, Value::Int(wanted)));
}

Value DivisibleBy(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value divisor = arguments.Require("num");
  arguments.Finish();
  return Value::Bool(Equals(Arithmetic(runtime, "%", self, divisor), Value::Int(0)));
}

Value CallTextTest(Runtime& runtime, const Value& self, Arguments& arguments,
                   absl::string_view method) {
  const Value text = runtime.String(Str(runtime, self));
  return FindStringMethod(method)(runtime, text, arguments);
}

Value IsLowerText(Runtime& runtime, const Value& self, Arguments& arguments) {
  return CallTextTest(runtime, self, arguments, "islower");
}

Value IsUpperText(Runtime& runtime, const Value& self, Arguments& arguments) {
  return CallTextTest(runtime, self, arguments, "isupper");
}

Value SameAs(Runtime&, const Value& self, Arguments& arguments) {
  const Value other = arguments.Require("other");
  arguments.Finish();
  if (self.kind() != other.kind()) return Value::Bool(false);
  if (self.is_number() || self.is(Kind::kNone)) return Value::Bool(Equals(self, other));
  return Value::Bool(self.identity() == other.identity());
}

enum class Comparison : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn };
constexpr absl::string_view kComparisons[] = {"==", "!=", "<", "<=", ">", ">=", "in"};

template <Comparison comparison>
Value Compared(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value other = arguments.Require("other");
  arguments.Finish();
  return Value::Bool(Compare(runtime, kComparisons[static_cast<size_t>(comparison)], self, other));
}

Value IsFilter(Runtime&, const Value& self, Arguments& arguments) {
  arguments.Finish();
  return Value::Bool(self.is(Kind::kString) && FindFilter(self.text()) != nullptr);
}

Value IsTest(Runtime&, const Value& self, Arguments& arguments) {
  arguments.Finish();
  return Value::Bool(self.is(Kind::kString) && FindTest(self.text()) != nullptr);
}

constexpr NamedBuiltin kTests[] = {
    {"boolean", Plain<IsBoolean>},
    {"callable", Plain<IsCallable>},
    {"defined", Plain<IsDefined>},
    {"divisibleby", DivisibleBy},
    {"eq", Compared<Comparison::kEq>},
    {"equalto", Compared<Comparison::kEq>},
    {"even", HasRemainder<0>},
    {"false", Plain<IsFalse>},
    {"filter", IsFilter},
    {"float", Plain<IsFloat>},
    {"ge", Compared<Comparison::kGe>},
    {"greaterthan", Compared<Comparison::kGt>},
    {"gt", Compared<Comparison::kGt>},
    {"in", Compared<Comparison::kIn>},
    {"integer", Plain<IsInteger>},
    {"iterable", Plain<IsIterable>},
    {"le", Compared<Comparison::kLe>},
    {"lessthan", Compared<Comparison::kLt>},
    {"lower", IsLowerText},
    {"lt", Compared<Comparison::kLt>},
    {"mapping", Plain<IsMapping>},
    {"ne", Compared<Comparison::kNe>},
    {"none", Plain<IsNone>},
    {"number", Plain<IsNumber>},
    {"odd", HasRemainder<1>},
    {"sameas", SameAs},
    {"sequence", Plain<IsSequence>},
    {"string", Plain<IsString>},
    {"test", IsTest},
    {"true", Plain<IsTrue>},
    {"undefined", Plain<IsUndefined>},
    {"upper", IsUpperText},
    // The same as operators, for select and its like.
    {"==", Compared<Comparison::kEq>},
    {"!=", Compared<Comparison::kNe>},
    {"<", Compared<Comparison::kLt>},
    {"<=", Compared<Comparison::kLe>},
    {">", Compared<Comparison::kGt>},
    {">=", Compared<Comparison::kGe>},
};

}  // namespace

Builtin FindTest(absl::string_view name) { return FindBuiltin(kTests, name); }

Builtin RequireTest(absl::string_view name) {
  const Builtin test = FindTest(name);
  if (test == nullptr) Fail("the test '", name, "' is not supported; supported are ", TestNames());
  return test;
}

std::string TestNames() { return BuiltinNames(kTests); }

}  // namespace annulus::jinja
