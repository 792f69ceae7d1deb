#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/loop_state.h"
#include "engine/text/template/language/operators.h"
#include "engine/text/template/library/characters.h"
#include "engine/text/template/library/string_methods.h"

namespace annulus::jinja {
namespace {

template <size_t n>
bool IsOneOf(absl::string_view name, const std::array<absl::string_view, n>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<absl::string_view, 5> kDictChanges = {"clear", "pop", "popitem", "setdefault",
                                                           "update"};
constexpr std::array<absl::string_view, 8> kListChanges = {"append", "clear", "pop",    "reverse",
                                                           "insert", "sort",  "extend", "remove"};

// A dict's keys, values or pairs.
template <typename Select>
Value View(Runtime& runtime, const DictData& dict, Select select) {
  runtime.Hold(dict.items.size() * sizeof(Value));
  std::vector<Value> items;
  items.reserve(dict.items.size());
  for (const auto& item : dict.items) items.push_back(select(item));
  return runtime.List(std::move(items), ListKind::kView);
}

Value DictKeys(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  return View(runtime, self.dict(), [](const auto& item) { return item.first; });
}

Value DictValues(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  return View(runtime, self.dict(), [](const auto& item) { return item.second; });
}

Value DictItems(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  return View(runtime, self.dict(), [&runtime](const auto& item) {
    return runtime.List({item.first, item.second}, ListKind::kTuple);
  });
}

Value DictGet(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value& key = arguments.Require("key");
  const Value* const fallback = arguments.Take("default");
  arguments.Finish();
  runtime.Step(WeightOf(key));
  CheckHashable(key);
  const Value* const found = self.dict().Find(key);
  if (found != nullptr) return *found;
  return fallback == nullptr ? Value::None() : *fallback;
}

Value Copy(Runtime&, const Value& self, Arguments& arguments) {
  arguments.Finish();
  return self;  // values never change
}

Value ListIndex(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value& item = arguments.Require("value");
  arguments.Finish();
  runtime.Step(WeightOf(self));
  const std::vector<Value>& items = self.list().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (Equals(items[i], item)) return Value::Int(static_cast<int64_t>(i));
  }
  Fail("the value is not in the list");
}

Value ListCount(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value& item = arguments.Require("value");
  arguments.Finish();
  runtime.Step(WeightOf(self));
  const std::vector<Value>& items = self.list().items;
  return Value::Int(std::count_if(items.begin(), items.end(),
                                  [&](const Value& other) { return Equals(other, item); }));
}

Builtin FindDictMethod(absl::string_view name) {
  if (name == "get") return DictGet;
  if (name == "items") return DictItems;
  if (name == "keys") return DictKeys;
  if (name == "values") return DictValues;
  if (name == "copy") return Copy;
  return nullptr;
}

Builtin FindListMethod(const ListData& list, absl::string_view name) {
  if (list.kind != ListKind::kList && list.kind != ListKind::kTuple) return nullptr;
  if (name == "index") return ListIndex;
  if (name == "count") return ListCount;
  if (name == "copy" && list.kind == ListKind::kList) return Copy;
  return nullptr;
}

Value Method(Runtime& runtime, const Value& self, absl::string_view name, Builtin builtin) {
  FunctionData function;
  function.name = name;
  function.builtin = builtin;
  function.self = self;
  return runtime.Function(function);
}

Value Missing(Runtime& runtime, const Value& value, absl::string_view name) {
  return runtime.Undefined(
      absl::StrCat("'", TypeName(value), " object' has no attribute '", name, "'"));
}

Value Unsafe(Runtime& runtime, const Value& value, absl::string_view name) {
  return runtime.Undefined(
      absl::StrCat("access to attribute '", name, "' of '", TypeName(value), "' object is unsafe"));
}

Value DictAttribute(Runtime& runtime, const Value& value, absl::string_view name) {
  if (IsOneOf(name, kDictChanges)) return Unsafe(runtime, value, name);
  const Builtin method = FindDictMethod(name);
  if (method != nullptr) return Method(runtime, value, name, method);
  const Value* const member = value.dict().Find(name);
  return member == nullptr ? Missing(runtime, value, name) : *member;
}

Value ListAttribute(Runtime& runtime, const Value& value, absl::string_view name) {
  if (value.list().kind == ListKind::kList && IsOneOf(name, kListChanges)) {
    return Unsafe(runtime, value, name);
  }
  const Builtin method = FindListMethod(value.list(), name);
  return method == nullptr ? Missing(runtime, value, name) : Method(runtime, value, name, method);
}

Value FunctionAttribute(Runtime& runtime, const Value& value, absl::string_view name) {
  if (name == "name" && value.function().builtin == nullptr) {
    return runtime.String(std::string(value.function().name));
  }
  return Missing(runtime, value, name);
}

}  // namespace

Value Attribute(Runtime& runtime, const Value& value, absl::string_view name) {
  if (value.is(Kind::kUndefined)) Fail(value.reason());
  if (absl::StartsWith(name, "__")) return Unsafe(runtime, value, name);
  switch (value.kind()) {
    case Kind::kDict:
      return DictAttribute(runtime, value, name);
    case Kind::kList:
      return ListAttribute(runtime, value, name);
    case Kind::kString: {
      const Builtin method = FindStringMethod(name);
      return method == nullptr ? Missing(runtime, value, name)
                               : Method(runtime, value, name, method);
    }
    case Kind::kNamespace: {
      const Value* const member = value.ns().attributes.Find(name);
      return member == nullptr ? Missing(runtime, value, name) : *member;
    }
    case Kind::kLoop:
      return value.loop().Attribute(runtime, value, name);
    case Kind::kFunction:
      return FunctionAttribute(runtime, value, name);
    default:
      return Missing(runtime, value, name);
  }
}

}  // namespace annulus::jinja
