#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_EVALUATOR_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_EVALUATOR_H_

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "engine/text/template/language/ast.h"
#include "engine/text/template/language/loop_state.h"
#include "engine/text/template/runtime.h"
#include "engine/text/template/value.h"

namespace annulus::jinja {

// The variables of a template, of a loop iteration, or of a macro call. Assignments go to the
// innermost scope; a name refers to the nearest enclosing scope that has it. Branches have no scope
// of their own.
struct Scope {
  Scope* outer = nullptr;

  // Both take constant time, regardless of the number of variables.
  const Value* Find(absl::string_view name) const;
  void Set(Runtime& runtime, absl::string_view name, const Value& value);

 private:
  // A linear scan is faster for few variables; more of them are indexed.
  static constexpr size_t kMostWithoutIndex = 8;

  std::vector<std::pair<absl::string_view, Value>> variables_;
  absl::flat_hash_map<absl::string_view, size_t> index_;
};

// Renders one template once.
class Evaluator {
 public:
  // `variables` must be a dict. Both must outlive the evaluator.
  Evaluator(Runtime& runtime, const Value& variables);

  // Renders the template. Throws Failure; line() then returns its line.
  std::string Render(const Ast& ast);
  int line() const { return line_; }

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  using Body = std::vector<const Statement*>;

  // The current nesting depth, bounded by RenderLimits::depth.
  class Level {
   public:
    explicit Level(Evaluator& evaluator);
    ~Level() { --evaluator_.depth_; }

   private:
    Evaluator& evaluator_;
  };

  // expressions (evaluate.cc)
  Value Evaluate(const Expression& expression);
  Value EvaluateName(const Expression& expression);
  Value EvaluateList(const Expression& expression, ListKind kind);
  Value EvaluateDict(const Expression& expression);
  Value EvaluateSlice(const Expression& expression);
  Value EvaluateConcat(const Expression& expression);
  Value EvaluateCompare(const Expression& expression);
  Value EvaluateConditional(const Expression& expression);
  Value EvaluateBinary(const Expression& expression);
  Value EvaluateCall(const Expression& expression);
  // Applies a filter or a test to `self`.
  Value Apply(const Expression& expression, const Value& self);
  Arguments EvaluateArguments(const CallArguments& call, absl::string_view callee);
  void AddRest(const CallArguments& call, Arguments& arguments);
  Value Call(const Value& callee, Arguments& arguments);
  Value CallMacro(const FunctionData& function, Arguments& arguments);

  // statements (execute.cc)
  Flow Execute(const Body& body);
  Flow ExecuteStatement(const Statement& statement);
  void Print(const Statement& statement);
  Flow ExecuteFor(const Statement& statement);
  Flow ExecuteLoop(const Statement& statement, LoopState& loop, const Value& variable);
  Flow ExecuteIf(const Statement& statement);
  void ExecuteSetBlock(const Statement& statement);
  Flow ExecuteWith(const Statement& statement);
  void DefineMacro(const Statement& statement);
  void ExecuteCallBlock(const Statement& statement);
  void ExecuteFilterBlock(const Statement& statement);
  void Assign(const Target& target, const Value& value);
  // Executes `body` in the scope, which the caller has filled, and returns its output.
  std::string Capture(const Body& body, Scope& scope);
  // Applies a block's filter to the block's text; `filter` may be a chain of filters.
  Value ApplyBlockFilter(const Expression& filter, const Value& text);
  Flow ExecuteIn(Scope& scope, const Body& body);
  Scope& NewScope(Scope* outer);
  void Write(absl::string_view text);

  Runtime& runtime_;
  std::deque<Scope> scopes_;
  std::deque<LoopState> loops_;
  Scope* scope_ = nullptr;
  std::string* output_ = nullptr;
  int depth_ = 0;
  int line_ = 1;
};

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_EVALUATOR_H_
