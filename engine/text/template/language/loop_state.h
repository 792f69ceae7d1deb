#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_LOOP_STATE_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_LOOP_STATE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/text/template/runtime.h"
#include "engine/text/template/value.h"

namespace annulus::jinja {

// A running {% for %}: its elements, and the variable `loop` that its body sees.
//
// The loop's condition is evaluated for an element when its turn comes, or when the body asks for
// something that depends on later elements (last, nextitem, length). jinja2 does the same, and the
// condition may depend on what the body changes.
class LoopState {
 public:
  using Condition = std::function<bool(const Value& element)>;
  // The most bytes of the heap that the loop takes for each element.
  static constexpr size_t kHeldForElement = 3 * sizeof(const Value*);

  // `elements` must outlive the loop.
  LoopState(const std::vector<Value>& elements, Condition condition)
      : elements_(elements), condition_(std::move(condition)) {}

  // Advances to the next element. Returns false at the end.
  bool Advance();
  const Value& current() const { return *current_; }

  // Returns loop.<name>. `self` is the loop as a value.
  Value Attribute(Runtime& runtime, const Value& self, absl::string_view name);

 private:
  friend Value CycleLoop(Runtime& runtime, const Value& self, Arguments& arguments);
  friend Value AskLoopChanged(Runtime& runtime, const Value& self, Arguments& arguments);

  // The element after the current one; null at the end.
  const Value* Peek();
  const Value* FindNext();
  int64_t Length();

  const std::vector<Value>& elements_;
  const Condition condition_;
  size_t next_ = 0;  // the first element not examined yet
  std::vector<const Value*> ahead_;
  size_t ahead_taken_ = 0;
  const Value* previous_ = nullptr;
  const Value* current_ = nullptr;
  int64_t index0_ = -1;
  std::optional<std::vector<Value>> last_changed_;
};

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_LOOP_STATE_H_
