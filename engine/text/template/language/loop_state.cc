#include "engine/text/template/language/loop_state.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/text/template/language/failure.h"

namespace annulus::jinja {

const Value* LoopState::FindNext() {
  while (next_ < elements_.size()) {
    const Value& element = elements_[next_++];
    if (!condition_ || condition_(element)) return &element;
  }
  return nullptr;
}

const Value* LoopState::Peek() {
  if (ahead_taken_ == ahead_.size()) {
    const Value* const found = FindNext();
    if (found == nullptr) return nullptr;
    ahead_.push_back(found);
  }
  return ahead_[ahead_taken_];
}

bool LoopState::Advance() {
  const Value* const found = Peek();
  if (found == nullptr) return false;
  ++ahead_taken_;
  previous_ = current_;
  current_ = found;
  ++index0_;
  return true;
}

int64_t LoopState::Length() {
  if (!condition_) return static_cast<int64_t>(elements_.size());
  while (const Value* const found = FindNext()) ahead_.push_back(found);
  return index0_ + 1 + static_cast<int64_t>(ahead_.size() - ahead_taken_);
}

Value CycleLoop(Runtime&, const Value& self, Arguments& arguments) {
  const std::vector<Value>& values = arguments.positional;
  if (values.empty()) Fail("no items for cycling given");
  return values[static_cast<size_t>(self.loop().index0_) % values.size()];
}

Value AskLoopChanged(Runtime& runtime, const Value& self, Arguments& arguments) {
  LoopState& loop = self.loop();
  for (const Value& value : arguments.positional) runtime.Step(WeightOf(value));
  const bool same = loop.last_changed_.has_value() &&
                    std::equal(loop.last_changed_->begin(), loop.last_changed_->end(),
                               arguments.positional.begin(), arguments.positional.end(), Equals);
  loop.last_changed_ = arguments.positional;
  return Value::Bool(!same);
}

Value LoopState::Attribute(Runtime& runtime, const Value& self, absl::string_view name) {
  if (name == "index0") return Value::Int(index0_);
  if (name == "index") return Value::Int(index0_ + 1);
  if (name == "first") return Value::Bool(index0_ == 0);
  if (name == "last") return Value::Bool(Peek() == nullptr);
  if (name == "length") return Value::Int(Length());
  if (name == "revindex0") return Value::Int(Length() - index0_ - 1);
  if (name == "revindex") return Value::Int(Length() - index0_);
  if (name == "depth0") return Value::Int(0);
  if (name == "depth") return Value::Int(1);
  if (name == "previtem") {
    return previous_ == nullptr ? runtime.Undefined("there is no previous item") : *previous_;
  }
  if (name == "nextitem") {
    const Value* const next = Peek();
    return next == nullptr ? runtime.Undefined("there is no next item") : *next;
  }
  if (name == "cycle" || name == "changed") {
    FunctionData function;
    function.name = name;
    function.builtin = name == "cycle" ? CycleLoop : AskLoopChanged;
    function.self = self;
    return runtime.Function(function);
  }
  return runtime.Undefined(absl::StrCat("'loop' has no attribute '", name, "'"));
}

}  // namespace annulus::jinja
