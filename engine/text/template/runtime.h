#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_RUNTIME_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/text/template/chat_template.h"
#include "engine/text/template/failure.h"
#include "engine/text/template/value.h"

namespace annulus::jinja {

class Runtime;

// The arguments of one call, taken in the order of the callee's parameters.
class Arguments {
 public:
  absl::string_view callee;  // for messages
  std::vector<Value> positional;
  std::vector<std::pair<absl::string_view, Value>> keywords;

  // The value for the next parameter, `name`: the next positional one, else a keyword. Nothing
  // where it was not given.
  const Value* Take(absl::string_view name);
  // The keyword `name` alone.
  const Value* TakeKeyword(absl::string_view name);
  // The truth of Take, or `fallback` where it was not given.
  bool TakeBool(absl::string_view name, bool fallback);
  // The same as Take; fails where it was not given.
  const Value& Require(absl::string_view name);
  // Fails if something is left that no parameter took.
  void Finish() const;

 private:
  size_t next_ = 0;
  size_t keywords_taken_ = 0;
};

// A function that is part of this implementation. `self`: the value whose method it is, or what
// stands in front of a filter or a test.
using Builtin = Value (*)(Runtime& runtime, const Value& self, Arguments& arguments);

struct Scope;
struct Statement;

struct FunctionData {
  absl::string_view name;
  Builtin builtin = nullptr;
  Value self;                        // of a method
  const Statement* macro = nullptr;  // or what a {% call %} block passes: its statement
  Scope* scope = nullptr;            // where the macro was defined
};

// Everything that one rendering owns and is limited by. One thread.
class Runtime {
 public:
  // `now`: what strftime_now() tells. `cancel` must outlive the runtime.
  Runtime(const RenderLimits& limits, const std::tm& now, const CancelFlag& cancel);

  const RenderLimits& limits() const { return limits_; }
  const std::tm& now() const { return now_; }

  // Each counts its steps and fails where the limit on bytes is passed. Containers deeper than
  // kMaxValueDepth fail.
  Value String(std::string text);
  Value List(std::vector<Value> items, ListKind kind = ListKind::kList);
  Value Dict(DictData data);
  Value Namespace();
  Value Function(const FunctionData& data);
  Value Undefined(std::string reason);

  // Counts one step of work, and more for plain work on `size` bytes or elements (StepsFor). Fails
  // when the limit is passed or the rendering is cancelled.
  void Step(size_t size = 0) {
    const absl::Status status = work_.Step(StepsFor(size));
    if (!status.ok()) FailWith(status);
  }
  // The same for work that looks at each character of `bytes` bytes by itself, or searches them for
  // something long: it takes several times as long as copying them.
  void StepCharacters(size_t bytes) { Step(8 * bytes); }
  int64_t steps() const { return work_.steps(); }

  // Fails unless `bytes` more may be held.
  void Charge(size_t bytes);

  // The elements of a list, keys of a dict, characters of a string; an iterator gives what it has
  // left and is then at its end. Fails for other values.
  std::vector<Value> Items(const Value& value);
  // The same without a copy where there need not be one; lives as long as the rendering.
  const std::vector<Value>& Elements(const Value& value);

 private:
  const RenderLimits limits_;
  const std::tm now_;
  WorkMeter work_;
  size_t bytes_ = 0;
  std::deque<std::string> strings_;
  std::deque<ListData> lists_;
  std::deque<DictData> dicts_;
  std::deque<NamespaceData> namespaces_;
  std::deque<FunctionData> functions_;
};

// The value's text; fails if it is no string. `what` names it in the message.
const std::string& RequireText(const Value& value, absl::string_view what);
// The value as an integer (a boolean counts as 0 or 1); fails otherwise.
int64_t RequireInt(const Value& value, absl::string_view what);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_RUNTIME_H_
