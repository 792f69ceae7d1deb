#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/text/template/language/evaluator.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/operators.h"
#include "engine/text/template/library/format_value.h"
#include "engine/text/template/library/globals.h"

namespace annulus::jinja {

const Value* Scope::Find(absl::string_view name) const {
  if (!index_.empty()) {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &variables_[found->second].second;
  }
  for (const auto& [other, value] : variables_) {
    if (other == name) return &value;
  }
  return nullptr;
}

void Scope::Set(Runtime& runtime, absl::string_view name, const Value& value) {
  if (const Value* const old = Find(name)) {
    const_cast<Value&>(*old) = value;
    return;
  }
  runtime.Hold(Runtime::kHeldForMember);
  variables_.emplace_back(name, value);
  if (variables_.size() <= kMostWithoutIndex) return;
  const size_t begin = index_.empty() ? 0 : variables_.size() - 1;
  for (size_t i = begin; i < variables_.size(); ++i) index_.emplace(variables_[i].first, i);
}

Evaluator::Evaluator(Runtime& runtime, const Value& variables) : runtime_(runtime) {
  scope_ = &NewScope(nullptr);
  for (const auto& [name, value] : variables.dict().items) {
    scope_->Set(runtime_, name.text(), value);
  }
}

std::string Evaluator::Render(const Ast& ast) {
  std::string text;
  output_ = &text;
  Execute(ast.body);
  return text;
}

Scope& Evaluator::NewScope(Scope* outer) {
  runtime_.Charge(sizeof(Scope));
  scopes_.emplace_back().outer = outer;
  return scopes_.back();
}

void Evaluator::Write(absl::string_view text) {
  runtime_.ChargeGrowth(text.size());
  runtime_.Step(text.size());
  const size_t limit = runtime_.limits().output_bytes;
  if (output_->size() + text.size() > limit) {
    Fail("the template's text has more than ", limit, " bytes");
  }
  output_->append(text.data(), text.size());
}

Evaluator::Flow Evaluator::Execute(const Body& body) {
  for (const Statement* statement : body) {
    const Flow flow = ExecuteStatement(*statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::ExecuteStatement(const Statement& statement) {
  const Level level(*this);
  runtime_.Step();
  line_ = statement.line;
  switch (statement.type) {
    case StatementType::kText:
      Write(statement.text);
      break;
    case StatementType::kPrint:
      Print(statement);
      break;
    case StatementType::kFor:
      return ExecuteFor(statement);
    case StatementType::kIf:
      return ExecuteIf(statement);
    case StatementType::kSet:
      Assign(statement.targets[0], Evaluate(*statement.expressions[0]));
      break;
    case StatementType::kSetBlock:
      ExecuteSetBlock(statement);
      break;
    case StatementType::kWith:
      return ExecuteWith(statement);
    case StatementType::kMacro:
      DefineMacro(statement);
      break;
    case StatementType::kCallBlock:
      ExecuteCallBlock(statement);
      break;
    case StatementType::kFilterBlock:
      ExecuteFilterBlock(statement);
      break;
    case StatementType::kScope:
      return ExecuteIn(NewScope(scope_), statement.body);
    case StatementType::kBreak:
      return Flow::kBreak;
    case StatementType::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

void Evaluator::Print(const Statement& statement) {
  const Value value = Evaluate(*statement.expressions[0]);
  if (value.is(Kind::kString)) return Write(value.text());
  Write(Str(runtime_, value));
}

Evaluator::Flow Evaluator::ExecuteIn(Scope& scope, const Body& body) {
  Scope* const outer = std::exchange(scope_, &scope);
  const Flow flow = Execute(body);
  scope_ = outer;
  return flow;
}

std::string Evaluator::Capture(const Body& body, Scope& scope) {
  std::string text;
  std::string* const outer = std::exchange(output_, &text);
  ExecuteIn(scope, body);
  output_ = outer;
  return text;
}

Evaluator::Flow Evaluator::ExecuteIf(const Statement& statement) {
  const Statement* branch = &statement;
  while (!branch->expressions.empty() && !Truth(Evaluate(*branch->expressions[0]))) {
    if (branch->other.empty()) return Flow::kNext;
    branch = branch->other[0];
  }
  return Execute(branch->body);
}

Evaluator::Flow Evaluator::ExecuteFor(const Statement& statement) {
  const Value elements = Evaluate(*statement.expressions[0]);
  const Expression* const test = statement.expressions[1];
  LoopState::Condition condition;
  if (test != nullptr) {
    Scope* const outer = scope_;
    condition = [this, &statement, test, outer](const Value& element) {
      Scope* const now = std::exchange(scope_, &NewScope(outer));
      Assign(statement.targets[0], element);
      const bool wanted = Truth(Evaluate(*test));
      scope_ = now;
      return wanted;
    };
  }
  runtime_.Charge(sizeof(LoopState));
  const std::vector<Value>& all = runtime_.Elements(elements);
  runtime_.Hold(all.size() * LoopState::kHeldForElement);
  LoopState& loop = loops_.emplace_back(all, std::move(condition));
  return ExecuteLoop(statement, loop, Value::Loop(&loop));
}

Evaluator::Flow Evaluator::ExecuteLoop(const Statement& statement, LoopState& loop,
                                       const Value& variable) {
  bool empty = true;
  while (loop.Advance()) {
    empty = false;
    runtime_.Step();
    Scope& scope = NewScope(scope_);
    scope.Set(runtime_, "loop", variable);
    Scope* const outer = std::exchange(scope_, &scope);
    Assign(statement.targets[0], loop.current());
    const Flow flow = Execute(statement.body);
    scope_ = outer;
    if (flow == Flow::kBreak) return Flow::kNext;
  }
  if (!empty || statement.other.empty()) return Flow::kNext;
  return ExecuteIn(NewScope(scope_), statement.other);
}

void Evaluator::ExecuteSetBlock(const Statement& statement) {
  Value value = runtime_.String(Capture(statement.body, NewScope(scope_)));
  if (statement.expressions[0] != nullptr) {
    value = ApplyBlockFilter(*statement.expressions[0], value);
  }
  Assign(statement.targets[0], value);
}

Value Evaluator::ApplyBlockFilter(const Expression& filter, const Value& text) {
  const Level level(*this);
  const Expression* const inner = filter.children[0];
  return Apply(filter, inner == nullptr ? text : ApplyBlockFilter(*inner, text));
}

void Evaluator::ExecuteFilterBlock(const Statement& statement) {
  const Value text = runtime_.String(Capture(statement.body, NewScope(scope_)));
  Write(Str(runtime_, ApplyBlockFilter(*statement.expressions[0], text)));
}

Evaluator::Flow Evaluator::ExecuteWith(const Statement& statement) {
  Scope& scope = NewScope(scope_);
  std::vector<Value> values;
  // All values are computed before any of the names is set.
  for (const Expression* value : statement.expressions) values.push_back(Evaluate(*value));
  Scope* const outer = std::exchange(scope_, &scope);
  for (size_t i = 0; i < values.size(); ++i) Assign(statement.targets[i], values[i]);
  const Flow flow = Execute(statement.body);
  scope_ = outer;
  return flow;
}

void Evaluator::DefineMacro(const Statement& statement) {
  FunctionData function;
  function.name = statement.name;
  function.macro = &statement;
  function.scope = scope_;
  scope_->Set(runtime_, statement.name, runtime_.Function(function));
}

void Evaluator::ExecuteCallBlock(const Statement& statement) {
  FunctionData block;
  block.name = "caller";
  block.macro = &statement;
  block.scope = scope_;
  const Expression& call = *statement.expressions[0];
  const Value callee = Evaluate(*call.children[0]);
  Arguments arguments = EvaluateArguments(call.call, statement.name);
  arguments.keywords.emplace_back("caller", runtime_.Function(block));
  Write(Str(runtime_, Call(callee, arguments)));
}

void Evaluator::Assign(const Target& target, const Value& value) {
  runtime_.Step(target.name.size());
  if (!target.attribute.empty()) {
    for (const Scope* scope = scope_; scope != nullptr; scope = scope->outer) {
      runtime_.Step();
      const Value* const variable = scope->Find(target.name);
      if (variable == nullptr) continue;
      if (!variable->is(Kind::kNamespace)) {
        Fail("cannot assign attribute on non-namespace object '", target.name, "'");
      }
      return SetAttribute(runtime_, variable->ns(), target.attribute, value);
    }
    Fail("'", target.name, "' is undefined; only attributes of a namespace can be assigned to");
  }
  if (!target.is_tuple) return scope_->Set(runtime_, target.name, value);
  const std::vector<Value> items = runtime_.Items(value);
  if (items.size() != target.parts.size()) {
    Fail("cannot unpack ", items.size(), " values into ", target.parts.size(), " names");
  }
  for (size_t i = 0; i < items.size(); ++i) Assign(target.parts[i], items[i]);
}

}  // namespace annulus::jinja
