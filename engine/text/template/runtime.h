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
#include "engine/base/memory_grant.h"
#include "engine/text/template/chat_template.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/value.h"

namespace annulus::jinja {

class Runtime;

// The arguments of a call, taken in the order of the callee's parameters.
class Arguments {
 public:
  absl::string_view callee;  // for messages
  std::vector<Value> positional;
  std::vector<std::pair<absl::string_view, Value>> keywords;

  // The value for the next parameter, `name`: the next positional argument, otherwise the keyword
  // argument. Null if neither was given.
  const Value* Take(absl::string_view name);
  // The keyword argument `name` only.
  const Value* TakeKeyword(absl::string_view name);
  // The truth of Take, or `fallback` if it was not given.
  bool TakeBool(absl::string_view name, bool fallback);
  // Like Take, but fails if it was not given.
  const Value& Require(absl::string_view name);
  // Fails if an argument is left that no parameter took.
  void Finish() const;

 private:
  size_t next_ = 0;
  size_t keywords_taken_ = 0;
};

// A built-in function. `self`: the value whose method it is, or the operand of a filter or test.
using Builtin = Value (*)(Runtime& runtime, const Value& self, Arguments& arguments);

struct Scope;
struct Statement;

struct FunctionData {
  absl::string_view name;
  Builtin builtin = nullptr;
  Value self;                        // for methods
  const Statement* macro = nullptr;  // macros and {% call %} blocks: the statement
  Scope* scope = nullptr;            // where the macro was defined
};

// Owns everything that a rendering creates, and enforces its limits. Not thread-safe.
class Runtime {
 public:
  // `now`: the time for strftime_now(). `cancel` and `memory` must outlive the runtime.
  Runtime(const RenderLimits& limits, const std::tm& now, const CancelFlag& cancel,
          MemoryGrant& memory = MemoryGrant::Unlimited());

  const RenderLimits& limits() const { return limits_; }
  const std::tm& now() const { return now_; }

  // Create values. Each counts its steps and its memory, and fails if the limit on bytes is
  // exceeded, or for containers deeper than kMaxValueDepth.
  Value String(std::string text);
  Value List(std::vector<Value> items, ListKind kind = ListKind::kList);
  Value Dict(DictData data);
  Value Namespace();
  Value Function(const FunctionData& data);
  Value Undefined(std::string reason);

  // Counts one step, and more for simple work on `size` bytes or elements (StepsFor), which may
  // allocate up to three times as much until the next count. Fails if the limit is exceeded, the
  // rendering is cancelled or memory is refused.
  void Step(size_t size = 0) {
    CountSteps(size);
    if (size > kSmall) Need(3 * size);
  }
  // The same for work that examines each of `bytes` bytes separately, or searches them for
  // something long: several times as slow as copying. It may allocate four times as much.
  void StepCharacters(size_t bytes) {
    CountSteps(8 * bytes);
    if (bytes > kSmall) Need(4 * bytes);
  }
  int64_t steps() const { return work_.steps(); }

  // Counts `bytes` of values against the limit, and holds as much. Fails if the limit is exceeded.
  void Charge(size_t bytes);
  // The same for a text or an array that grows by `bytes`: holds enough for a buffer that doubles,
  // and asks for the bytes of a copy and of a copy of that.
  void ChargeGrowth(size_t bytes);

  // Hold counts `bytes` that the rendering takes of the heap until it ends: memory that is freed
  // earlier still counts. Every lasting allocation is held right before or after it is made. Need
  // asks `memory` for `bytes` in addition to everything held: for an allocation that is held only
  // afterwards, or that lives for one operation (Step and StepCharacters call it too). So the heap
  // never exceeds what `memory` has allowed.
  void Hold(size_t bytes) {
    held_ += bytes;
    Need(0);
  }
  void Need(size_t bytes) {
    if (held_ + bytes > allowed_) Ask(held_ + bytes);
  }

  // Sets a member of a dict that is being built, and holds its memory.
  void SetMember(DictData& dict, const Value& key, const Value& value) {
    Hold(kHeldForMember);
    dict.Set(key, value);
  }

  // Bytes for an element of an array that grows by doubling: in the old buffer and the new one.
  static constexpr size_t kHeldForElement = 3 * sizeof(Value);
  // Bytes for a name or key with its value and its place in an index, likewise.
  static constexpr size_t kHeldForMember = 192;

  // The elements of a list, the keys of a dict, or the characters of a string. Exhausts an iterator
  // and returns its remaining elements. Fails for other values. Holds enough memory for them and
  // for one more array of as many elements, however it grows.
  std::vector<Value> Items(const Value& value);
  // The same, without a copy if possible. Valid until the rendering ends.
  const std::vector<Value>& Elements(const Value& value);

 private:
  // Operations on at most this many bytes are covered by what is held from the start.
  static constexpr size_t kSmall = 1024;

  void CountSteps(size_t size) {
    const absl::Status status = work_.Step(StepsFor(size));
    if (!status.ok()) FailWith(status);
  }
  void CountValue(size_t bytes);
  void Ask(size_t bytes);

  const RenderLimits limits_;
  const std::tm now_;
  WorkMeter work_;
  MemoryGrant& memory_;
  size_t bytes_ = 0;    // of values, as the limit counts them
  size_t held_ = 0;     // of the heap
  size_t allowed_ = 0;  // of the heap
  std::deque<std::string> strings_;
  std::deque<ListData> lists_;
  std::deque<DictData> dicts_;
  std::deque<NamespaceData> namespaces_;
  std::deque<FunctionData> functions_;
};

// The value's text; fails if it is not a string. `what`: its name in the message.
const std::string& RequireText(const Value& value, absl::string_view what);
// The value as an integer (booleans count as 0 or 1); fails for others.
int64_t RequireInt(const Value& value, absl::string_view what);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_RUNTIME_H_
