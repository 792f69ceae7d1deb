#include "engine/text/template/runtime.h"

#include <algorithm>

#include "engine/text/template/language/failure.h"
#include "engine/text/template/library/characters.h"

namespace annulus::jinja {
namespace {

// Bytes of the heap that a rendering takes before it has done anything, and for operations on short
// values.
constexpr size_t kHeldFromTheStart = size_t{32} << 10;
// Memory is asked for in units of this many bytes.
constexpr size_t kGrantUnit = size_t{16} << 10;
// Bytes of a value with a heap block of its own, besides its content: the heap's overhead, and its
// place in the list of all values.
constexpr size_t kHeldForBlock = 96;

template <typename Container>
void CheckShape(const Container& container, const RenderLimits& limits) {
  if (container.depth > kMaxValueDepth) {
    Fail("lists and dicts lie more than ", kMaxValueDepth, " deep inside each other");
  }
  if (container.weight > limits.value_bytes) {
    Fail("a value written out takes more than ", limits.value_bytes, " bytes");
  }
}

}  // namespace

const Value* Arguments::Take(absl::string_view name) {
  return next_ < positional.size() ? &positional[next_++] : TakeKeyword(name);
}

const Value* Arguments::TakeKeyword(absl::string_view name) {
  for (const auto& [keyword, value] : keywords) {
    if (keyword != name) continue;
    ++keywords_taken_;
    return &value;
  }
  return nullptr;
}

bool Arguments::TakeBool(absl::string_view name, bool fallback) {
  const Value* const value = Take(name);
  return value == nullptr ? fallback : Truth(*value);
}

const Value& Arguments::Require(absl::string_view name) {
  const Value* const value = Take(name);
  if (value == nullptr) Fail(callee, " needs the argument '", name, "'");
  return *value;
}

void Arguments::Finish() const {
  if (next_ < positional.size()) {
    Fail(callee, " takes at most ", next_, " arguments, ", positional.size(), " are given");
  }
  if (keywords_taken_ < keywords.size()) {
    Fail(callee, " got an argument that it does not take or that is given twice, among '",
         keywords.front().first, "'");
  }
}

Runtime::Runtime(const RenderLimits& limits, const std::tm& now, const CancelFlag& cancel,
                 MemoryGrant& memory)
    : limits_(limits),
      now_(now),
      work_("the template", limits.steps, cancel),
      memory_(memory),
      held_(kHeldFromTheStart) {}

void Runtime::CountValue(size_t bytes) {
  if (bytes > limits_.value_bytes - bytes_) {
    Fail("the template's values take more than ", limits_.value_bytes, " bytes");
  }
  bytes_ += bytes;
}

void Runtime::Charge(size_t bytes) {
  CountValue(bytes);
  Hold(bytes);
}

void Runtime::ChargeGrowth(size_t bytes) {
  CountValue(bytes);
  held_ += 3 * bytes;
  Need(2 * bytes);
}

void Runtime::Ask(size_t bytes) {
  const size_t units = (bytes + kGrantUnit - 1) / kGrantUnit;
  absl::Status status = memory_.Allow(units * kGrantUnit);
  if (!status.ok()) Refuse(std::move(status));
  allowed_ = units * kGrantUnit;
}

Value Runtime::String(std::string text) {
  CountValue(sizeof(std::string) + text.size());
  Hold(kHeldForBlock + text.capacity());
  Step(text.size());
  return Value::String(&strings_.emplace_back(std::move(text)));
}

Value Runtime::List(std::vector<Value> items, ListKind kind) {
  CountValue(sizeof(ListData) + items.size() * sizeof(Value));
  Hold(kHeldForBlock + sizeof(ListData) + items.capacity() * sizeof(Value));
  Step(items.size());
  ListData data;
  data.kind = kind;
  for (const Value& item : items) {
    data.depth = std::max(data.depth, 1 + DepthOf(item));
    data.weight += WeightOf(item);
  }
  CheckShape(data, limits_);
  data.items = std::move(items);
  return Value::List(&lists_.emplace_back(std::move(data)));
}

Value Runtime::Dict(DictData data) {
  // An entry of the index is about two pointers and a half.
  CountValue(sizeof(DictData) + data.items.size() * (2 * sizeof(Value) + 40));
  Hold(kHeldForBlock + sizeof(DictData));  // SetMember held the rest
  Step(data.items.size());
  CheckShape(data, limits_);
  return Value::Dict(&dicts_.emplace_back(std::move(data)));
}

Value Runtime::Namespace() {
  Step();
  Charge(kHeldForBlock + sizeof(NamespaceData));
  return Value::Namespace(&namespaces_.emplace_back());
}

Value Runtime::Function(const FunctionData& data) {
  Step();
  Charge(kHeldForBlock + sizeof(FunctionData));
  return Value::Function(&functions_.emplace_back(data));
}

Value Runtime::Undefined(std::string reason) {
  CountValue(sizeof(std::string) + reason.size());
  Hold(kHeldForBlock + reason.capacity());
  Step(reason.size());
  return Value::Undefined(&strings_.emplace_back(std::move(reason)));
}

std::vector<Value> Runtime::Items(const Value& value) {
  std::vector<Value> items;
  const auto make_room = [&](size_t count) {
    Hold(count * (sizeof(Value) + kHeldForElement));
    items.reserve(count);
  };
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kList: {
      ListData& list = value.list();
      Step(list.items.size());
      make_room(list.items.size());
      const size_t begin = std::min(list.taken, list.items.size());
      if (list.kind == ListKind::kIterator) list.taken = list.items.size();
      items.assign(list.items.begin() + static_cast<std::ptrdiff_t>(begin), list.items.end());
      return items;
    }
    case Kind::kDict:
      Step(value.dict().items.size());
      make_room(value.dict().items.size());
      for (const auto& [key, member] : value.dict().items) items.push_back(key);
      return items;
    case Kind::kString:
      make_room(CountCharacters(value.text()));
      for (size_t position = 0; position < value.text().size();) {
        items.push_back(String(std::string(NextCharacter(value.text(), &position))));
      }
      return items;
    default:
      Fail("'", TypeName(value), "' object is not iterable");
  }
}

const std::vector<Value>& Runtime::Elements(const Value& value) {
  if (value.is(Kind::kList) && value.list().kind != ListKind::kIterator) return value.list().items;
  return List(Items(value)).list().items;
}

const std::string& RequireText(const Value& value, absl::string_view what) {
  if (value.is(Kind::kUndefined)) Fail(value.reason());
  if (!value.is(Kind::kString)) Fail(what, " must be a string, not '", TypeName(value), "'");
  return value.text();
}

int64_t RequireInt(const Value& value, absl::string_view what) {
  if (value.is(Kind::kUndefined)) Fail(value.reason());
  if (!value.is_integral()) Fail(what, " must be an integer, not '", TypeName(value), "'");
  return value.integer();
}

}  // namespace annulus::jinja
