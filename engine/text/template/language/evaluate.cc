#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/text/template/language/evaluator.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/operators.h"
#include "engine/text/template/library/filters.h"
#include "engine/text/template/library/format_value.h"
#include "engine/text/template/library/globals.h"
#include "engine/text/template/library/value_tests.h"

namespace annulus::jinja {

Evaluator::Level::Level(Evaluator& evaluator) : evaluator_(evaluator) {
  const int limit = evaluator.runtime_.limits().depth;
  if (++evaluator.depth_ > limit) {
    --evaluator.depth_;
    Fail("more than ", limit, " expressions, tags and macro calls lie inside each other");
  }
}

// Small: the parts that need room on the stack are functions of their own.
Value Evaluator::Evaluate(const Expression& expression) {
  const Level level(*this);
  runtime_.Step(expression.name.size());
  line_ = expression.line;
  const std::vector<const Expression*>& children = expression.children;
  switch (expression.type) {
    case ExpressionType::kConstant:
      return expression.constant;
    case ExpressionType::kName:
      return EvaluateName(expression);
    case ExpressionType::kList:
      return EvaluateList(expression, ListKind::kList);
    case ExpressionType::kTuple:
      return EvaluateList(expression, ListKind::kTuple);
    case ExpressionType::kDict:
      return EvaluateDict(expression);
    case ExpressionType::kAttribute:
      return Attribute(runtime_, Evaluate(*children[0]), expression.name);
    case ExpressionType::kSubscript:
    case ExpressionType::kBinary:
      return EvaluateBinary(expression);
    case ExpressionType::kSlice:
      return EvaluateSlice(expression);
    case ExpressionType::kCall:
      return EvaluateCall(expression);
    case ExpressionType::kFilter:
    case ExpressionType::kTest:
      return Apply(expression, Evaluate(*children[0]));
    case ExpressionType::kNot:
      return Value::Bool(!Truth(Evaluate(*children[0])));
    case ExpressionType::kNegative:
      return Negate(Evaluate(*children[0]));
    case ExpressionType::kPositive:
      return Positive(Evaluate(*children[0]));
    case ExpressionType::kConcat:
      return EvaluateConcat(expression);
    case ExpressionType::kCompare:
      return EvaluateCompare(expression);
    case ExpressionType::kAnd: {
      const Value left = Evaluate(*children[0]);
      return Truth(left) ? Evaluate(*children[1]) : left;
    }
    case ExpressionType::kOr: {
      const Value left = Evaluate(*children[0]);
      return Truth(left) ? left : Evaluate(*children[1]);
    }
    case ExpressionType::kConditional:
      return EvaluateConditional(expression);
  }
  return Value::None();
}

Value Evaluator::EvaluateName(const Expression& expression) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->outer) {
    const Value* const value = scope->Find(expression.name);
    if (value != nullptr) return *value;
    runtime_.Step();
  }
  const Builtin global = FindGlobal(expression.name);
  if (global == nullptr) {
    return runtime_.Undefined(absl::StrCat("'", expression.name, "' is undefined"));
  }
  FunctionData function;
  function.name = expression.name;
  function.builtin = global;
  return runtime_.Function(function);
}

Value Evaluator::EvaluateList(const Expression& expression, ListKind kind) {
  std::vector<Value> items;
  items.reserve(expression.children.size());
  for (const Expression* child : expression.children) items.push_back(Evaluate(*child));
  return runtime_.List(std::move(items), kind);
}

Value Evaluator::EvaluateDict(const Expression& expression) {
  DictData dict;
  for (size_t i = 0; i < expression.children.size(); i += 2) {
    const Value key = Evaluate(*expression.children[i]);
    CheckHashable(key);
    runtime_.Step(WeightOf(key));
    runtime_.SetMember(dict, key, Evaluate(*expression.children[i + 1]));
  }
  return runtime_.Dict(std::move(dict));
}

Value Evaluator::EvaluateSlice(const Expression& expression) {
  const Value container = Evaluate(*expression.children[0]);
  const auto part = [&](size_t i) {
    return expression.children[i] == nullptr ? Value::None() : Evaluate(*expression.children[i]);
  };
  const Value begin = part(1);
  const Value end = part(2);
  const Value step = part(3);
  return Slice(runtime_, container, begin, end, step);
}

Value Evaluator::EvaluateBinary(const Expression& expression) {
  const Value left = Evaluate(*expression.children[0]);
  const Value right = Evaluate(*expression.children[1]);
  if (expression.type == ExpressionType::kSubscript) return Subscript(runtime_, left, right);
  return Arithmetic(runtime_, expression.name, left, right);
}

Value Evaluator::EvaluateConcat(const Expression& expression) {
  std::string text;
  for (const Expression* child : expression.children) {
    const Value value = Evaluate(*child);
    const std::string part = Str(runtime_, value);
    runtime_.ChargeGrowth(part.size());
    text += part;
  }
  return runtime_.String(std::move(text));
}

Value Evaluator::EvaluateCompare(const Expression& expression) {
  Value left = Evaluate(*expression.children[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    const Value right = Evaluate(*expression.children[i + 1]);
    if (!Compare(runtime_, expression.operators[i], left, right)) return Value::Bool(false);
    left = right;
  }
  return Value::Bool(true);
}

Value Evaluator::EvaluateConditional(const Expression& expression) {
  if (Truth(Evaluate(*expression.children[0]))) return Evaluate(*expression.children[1]);
  if (expression.children[2] != nullptr) return Evaluate(*expression.children[2]);
  return runtime_.Undefined("the inline if-expression evaluated to false and has no else");
}

Arguments Evaluator::EvaluateArguments(const CallArguments& call, absl::string_view callee) {
  Arguments arguments;
  arguments.callee = callee;
  for (const Expression* argument : call.positional) {
    arguments.positional.push_back(Evaluate(*argument));
  }
  for (const auto& [name, argument] : call.keywords) {
    arguments.keywords.emplace_back(name, Evaluate(*argument));
  }
  if (call.rest != nullptr || call.rest_keywords != nullptr) AddRest(call, arguments);
  return arguments;
}

void Evaluator::AddRest(const CallArguments& call, Arguments& arguments) {
  if (call.rest != nullptr) {
    for (const Value& item : runtime_.Items(Evaluate(*call.rest))) {
      arguments.positional.push_back(item);
    }
  }
  if (call.rest_keywords == nullptr) return;
  const Value keywords = Evaluate(*call.rest_keywords);
  if (!keywords.is(Kind::kDict)) Fail("the argument after ** must be a dict");
  runtime_.Step(64 * keywords.dict().items.size());
  runtime_.Hold(Runtime::kHeldForMember * keywords.dict().items.size());
  for (const auto& [name, value] : keywords.dict().items) {
    arguments.keywords.emplace_back(RequireText(name, "a keyword"), value);
  }
}

Value Evaluator::Apply(const Expression& expression, const Value& self) {
  Arguments arguments = EvaluateArguments(expression.call, expression.name);
  line_ = expression.line;
  if (expression.builtin != nullptr) return expression.builtin(runtime_, self, arguments);
  // An unknown name fails here, where it is reached: templates have branches for other programs.
  const bool is_test = expression.type == ExpressionType::kTest;
  const Builtin builtin = is_test ? RequireTest(expression.name) : RequireFilter(expression.name);
  return builtin(runtime_, self, arguments);
}

Value Evaluator::EvaluateCall(const Expression& expression) {
  const Value callee = Evaluate(*expression.children[0]);
  const absl::string_view name = callee.is(Kind::kFunction) ? callee.function().name : "";
  Arguments arguments = EvaluateArguments(expression.call, name);
  line_ = expression.line;
  return Call(callee, arguments);
}

Value Evaluator::Call(const Value& callee, Arguments& arguments) {
  if (callee.is(Kind::kUndefined)) Fail(callee.reason());
  if (!callee.is(Kind::kFunction)) Fail("'", TypeName(callee), "' object is not callable");
  const FunctionData& function = callee.function();
  if (function.builtin != nullptr) return function.builtin(runtime_, function.self, arguments);
  return CallMacro(function, arguments);
}

Value Evaluator::CallMacro(const FunctionData& function, Arguments& arguments) {
  const Level level(*this);
  const Statement& macro = *function.macro;
  Scope& scope = NewScope(function.scope);
  // Defaults may name the parameters before them.
  Scope* const caller_scope = std::exchange(scope_, &scope);
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const std::string& name = macro.parameters[i];
    runtime_.Step(8 * arguments.keywords.size());
    const Value* const given = arguments.Take(name);
    if (given != nullptr) {
      scope.Set(runtime_, name, *given);
    } else if (macro.defaults[i] != nullptr) {
      scope.Set(runtime_, name, Evaluate(*macro.defaults[i]));
    } else {
      scope.Set(runtime_, name,
                runtime_.Undefined(absl::StrCat("parameter '", name, "' was not provided")));
    }
  }
  scope_ = caller_scope;
  // What a {% call %} block passes on.
  const Value* const caller = arguments.TakeKeyword("caller");
  if (caller != nullptr) scope.Set(runtime_, "caller", *caller);
  arguments.Finish();
  return runtime_.String(Capture(macro.body, scope));
}

}  // namespace annulus::jinja
