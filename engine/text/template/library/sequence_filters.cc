// Filters of lists and dicts, as jinja2's filters.py defines them.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/operators.h"
#include "engine/text/template/library/characters.h"
#include "engine/text/template/library/filters.h"
#include "engine/text/template/library/format_value.h"
#include "engine/text/template/library/value_tests.h"

namespace annulus::jinja {
namespace {

bool IsGiven(const Value* value) { return value != nullptr && !value->is(Kind::kNone); }

Value Tuple(Runtime& runtime, Value first, Value second) {
  return runtime.List({first, second}, ListKind::kTuple);
}

Value LowerCase(Runtime& runtime, const Value& value) {
  if (!value.is(Kind::kString)) return value;
  runtime.StepCharacters(value.text().size());
  return runtime.String(Lower(value.text()));
}

// An attribute as filters name it: "a.b.0", an integer, or none for the item itself.
class AttributePath {
 public:
  AttributePath(Runtime& runtime, const Value* attribute) : runtime_(runtime) {
    if (!IsGiven(attribute)) return;
    if (!attribute->is(Kind::kString)) {
      parts_.push_back(*attribute);
      return;
    }
    runtime.StepCharacters(attribute->text().size());
    for (const absl::string_view part : absl::StrSplit(attribute->text(), '.')) {
      runtime.Hold(Runtime::kHeldForElement);
      int64_t index = 0;
      const bool is_index = !part.empty() &&
                            std::all_of(part.begin(), part.end(), absl::ascii_isdigit) &&
                            absl::SimpleAtoi(part, &index);
      parts_.push_back(is_index ? Value::Int(index) : runtime.String(std::string(part)));
    }
  }

  // Subscript counts the steps.
  Value Get(Value item) const {
    for (const Value& part : parts_) item = Subscript(runtime_, item, part);
    return item;
  }

 private:
  Runtime& runtime_;
  std::vector<Value> parts_;
};

// The key by which items are sorted, compared or grouped.
class SortKey {
 public:
  SortKey(Runtime& runtime, const Value* attribute, bool case_sensitive)
      : runtime_(runtime), path_(runtime, attribute), case_sensitive_(case_sensitive) {}

  Value Get(const Value& item) const {
    const Value key = path_.Get(item);
    return case_sensitive_ ? key : LowerCase(runtime_, key);
  }

 private:
  Runtime& runtime_;
  const AttributePath path_;
  const bool case_sensitive_;
};

using KeyedItems = std::vector<std::pair<Value, Value>>;
// The most bytes of the heap that sorting takes for an item, besides what Items holds: its pair
// while the array of pairs grows, and its place in the sort's own buffer.
constexpr size_t kHeldForSorted = 4 * sizeof(KeyedItems::value_type);

void SortByKey(Runtime& runtime, bool reverse, KeyedItems& items) {
  // A reversed sort keeps equal items in their order, as Python does.
  std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
    return reverse ? CountedLess(runtime, b.first, a.first)
                   : CountedLess(runtime, a.first, b.first);
  });
}

std::vector<Value> WithoutKeys(const KeyedItems& items) {
  std::vector<Value> plain;
  for (const auto& [key, item] : items) plain.push_back(item);
  return plain;
}

Value LengthFilter(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  return Value::Int(Length(runtime, self));
}

Value First(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  if (self.is(Kind::kList) && self.list().kind == ListKind::kIterator) {
    ListData& list = self.list();
    if (list.taken < list.items.size()) return list.items[list.taken++];
    return runtime.Undefined("No first item, sequence was empty.");
  }
  const std::vector<Value>& items = runtime.Elements(self);
  return items.empty() ? runtime.Undefined("No first item, sequence was empty.") : items.front();
}

Value Last(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  if (self.is(Kind::kList) && self.list().kind == ListKind::kIterator) {
    Fail("an iterator has no last item; make it a list");
  }
  const std::vector<Value>& items = runtime.Elements(self);
  return items.empty() ? runtime.Undefined("No last item, sequence was empty.") : items.back();
}

Value ListFilter(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  return runtime.List(runtime.Items(self));
}

Value JoinFilter(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value* const separator_given = arguments.Take("d");
  const AttributePath path(runtime, arguments.Take("attribute"));
  arguments.Finish();
  const std::string separator = separator_given == nullptr ? "" : Str(runtime, *separator_given);
  std::string result;
  bool first = true;
  for (const Value& item : runtime.Items(self)) {
    const std::string text = Str(runtime, path.Get(item));
    runtime.ChargeGrowth(text.size() + separator.size());
    runtime.Step(separator.size());
    if (!std::exchange(first, false)) result += separator;
    result += text;
  }
  return runtime.String(std::move(result));
}

Value Default(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value* const fallback = arguments.Take("default_value");
  const bool also_false = arguments.TakeBool("boolean", false);
  arguments.Finish();
  if (!self.is(Kind::kUndefined) && !(also_false && !Truth(self))) return self;
  return fallback == nullptr ? runtime.String("") : *fallback;
}

const DictData& RequireDict(const Value& value, absl::string_view filter) {
  if (value.is(Kind::kUndefined)) Fail(value.reason());
  if (!value.is(Kind::kDict)) Fail(filter, " needs a dict, not '", TypeName(value), "'");
  return value.dict();
}

Value ItemsFilter(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  std::vector<Value> items;
  if (!self.is(Kind::kUndefined)) {
    for (const auto& [key, value] : RequireDict(self, "items").items) {
      runtime.Hold(Runtime::kHeldForElement);
      items.push_back(Tuple(runtime, key, value));
    }
  }
  return runtime.List(std::move(items), ListKind::kIterator);
}

Value DictSort(Runtime& runtime, const Value& self, Arguments& arguments) {
  const bool case_sensitive = arguments.TakeBool("case_sensitive", false);
  const Value* const by_given = arguments.Take("by");
  const bool reverse = arguments.TakeBool("reverse", false);
  arguments.Finish();
  const std::string by = by_given == nullptr ? "key" : RequireText(*by_given, "by");
  if (by != "key" && by != "value") Fail("You can only sort by either \"key\" or \"value\"");
  KeyedItems items;
  for (const auto& [key, value] : RequireDict(self, "dictsort").items) {
    const Value sort_key = by == "key" ? key : value;
    runtime.Hold(kHeldForSorted + Runtime::kHeldForElement);
    items.emplace_back(case_sensitive ? sort_key : LowerCase(runtime, sort_key),
                       Tuple(runtime, key, value));
  }
  SortByKey(runtime, reverse, items);
  return runtime.List(WithoutKeys(items));
}

Value Sort(Runtime& runtime, const Value& self, Arguments& arguments) {
  const bool reverse = arguments.TakeBool("reverse", false);
  const bool case_sensitive = arguments.TakeBool("case_sensitive", false);
  const Value* const attribute = arguments.Take("attribute");
  arguments.Finish();
  std::vector<SortKey> keys;
  if (IsGiven(attribute) && attribute->is(Kind::kString)) {
    for (const absl::string_view one : absl::StrSplit(attribute->text(), ',')) {
      const Value name = runtime.String(std::string(one));
      runtime.Hold(3 * sizeof(SortKey));
      keys.emplace_back(runtime, &name, case_sensitive);
    }
  } else {
    keys.emplace_back(runtime, attribute, case_sensitive);
  }
  KeyedItems items;
  for (const Value& item : runtime.Items(self)) {
    std::vector<Value> key;
    runtime.Hold(kHeldForSorted + keys.size() * sizeof(Value));
    key.reserve(keys.size());
    for (const SortKey& part : keys) key.push_back(part.Get(item));
    items.emplace_back(runtime.List(std::move(key)), item);
  }
  SortByKey(runtime, reverse, items);
  return runtime.List(WithoutKeys(items));
}

Value Unique(Runtime& runtime, const Value& self, Arguments& arguments) {
  const bool case_sensitive = arguments.TakeBool("case_sensitive", false);
  const SortKey key(runtime, arguments.Take("attribute"), case_sensitive);
  arguments.Finish();
  DictData seen;
  std::vector<Value> items;
  for (const Value& item : runtime.Items(self)) {
    const Value value = key.Get(item);
    CheckHashable(value);
    runtime.Step(WeightOf(value));
    if (seen.Find(value) != nullptr) continue;
    runtime.SetMember(seen, value, Value::None());
    items.push_back(item);
  }
  return runtime.List(std::move(items), ListKind::kIterator);
}

Value Extreme(Runtime& runtime, const Value& self, Arguments& arguments, bool largest) {
  const bool case_sensitive = arguments.TakeBool("case_sensitive", false);
  const SortKey key(runtime, arguments.Take("attribute"), case_sensitive);
  arguments.Finish();
  const std::vector<Value> items = runtime.Items(self);
  if (items.empty()) return runtime.Undefined("No aggregated item, sequence was empty.");
  Value best = items[0];
  Value best_key = key.Get(best);
  for (size_t i = 1; i < items.size(); ++i) {
    const Value item_key = key.Get(items[i]);
    if (!(largest ? CountedLess(runtime, best_key, item_key)
                  : CountedLess(runtime, item_key, best_key))) {
      continue;
    }
    best = items[i];
    best_key = item_key;
  }
  return best;
}

Value Min(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Extreme(runtime, self, arguments, /*largest=*/false);
}

Value Max(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Extreme(runtime, self, arguments, /*largest=*/true);
}

Value Sum(Runtime& runtime, const Value& self, Arguments& arguments) {
  const AttributePath path(runtime, arguments.Take("attribute"));
  const Value* const start = arguments.Take("start");
  arguments.Finish();
  Value total = start == nullptr ? Value::Int(0) : *start;
  if (total.is(Kind::kString)) Fail("sum() can't sum strings");
  for (const Value& item : runtime.Items(self)) {
    total = Arithmetic(runtime, "+", total, path.Get(item));
  }
  return total;
}

Value Reverse(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.Finish();
  std::vector<Value> items = runtime.Items(self);
  std::reverse(items.begin(), items.end());
  if (!self.is(Kind::kString)) return runtime.List(std::move(items), ListKind::kIterator);
  std::string text;
  for (const Value& item : items) text += item.text();
  return runtime.String(std::move(text));
}

Value Batch(Runtime& runtime, const Value& self, Arguments& arguments) {
  const int64_t size = RequireInt(arguments.Require("linecount"), "linecount");
  const Value* const fill = arguments.Take("fill_with");
  arguments.Finish();
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (const Value& item : runtime.Items(self)) {
    if (static_cast<int64_t>(batch.size()) == size) {
      batches.push_back(runtime.List(std::exchange(batch, {})));
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (IsGiven(fill)) {
      runtime.ChargeGrowth(
          static_cast<size_t>(std::max<int64_t>(0, std::min<int64_t>(size, INT64_MAX / 128))) *
          sizeof(Value));
      for (; static_cast<int64_t>(batch.size()) < size; batch.push_back(*fill)) runtime.Step();
    }
    batches.push_back(runtime.List(std::move(batch)));
  }
  return runtime.List(std::move(batches), ListKind::kIterator);
}

Value GroupBy(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value* const attribute = &arguments.Require("attribute");
  const Value* const fallback = arguments.Take("default");
  const bool case_sensitive = arguments.TakeBool("case_sensitive", false);
  arguments.Finish();
  const AttributePath path(runtime, attribute);
  const auto value_of = [&](const Value& item) {
    const Value value = path.Get(item);
    return IsGiven(fallback) && value.is(Kind::kUndefined) ? *fallback : value;
  };
  KeyedItems items;
  for (const Value& item : runtime.Items(self)) {
    const Value value = value_of(item);
    runtime.Hold(kHeldForSorted + Runtime::kHeldForElement);
    items.emplace_back(case_sensitive ? value : LowerCase(runtime, value), item);
  }
  SortByKey(runtime, /*reverse=*/false, items);
  std::vector<Value> groups;
  for (size_t begin = 0, end = 0; begin < items.size(); begin = end) {
    std::vector<Value> group;
    for (end = begin; end < items.size() && Equals(items[end].first, items[begin].first); ++end) {
      runtime.Step(WeightOf(items[end].first));
      group.push_back(items[end].second);
    }
    groups.push_back(Tuple(runtime, value_of(items[begin].second), runtime.List(std::move(group))));
  }
  return runtime.List(std::move(groups));
}

Value SliceFilter(Runtime& runtime, const Value& self, Arguments& arguments) {
  const int64_t slices = RequireInt(arguments.Require("slices"), "slices");
  const Value* const fill = arguments.Take("fill_with");
  arguments.Finish();
  if (slices == 0) Fail("integer division or modulo by zero");
  const std::vector<Value> items = runtime.Items(self);
  const auto length = static_cast<int64_t>(items.size());
  std::vector<Value> result;
  int64_t begin = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t count = length / slices + (i < length % slices ? 1 : 0);
    runtime.Hold(Runtime::kHeldForElement);
    runtime.Need((static_cast<size_t>(count) + 1) * Runtime::kHeldForElement);
    std::vector<Value> part(items.begin() + begin, items.begin() + begin + count);
    begin += count;
    if (IsGiven(fill) && i >= length % slices) part.push_back(*fill);
    result.push_back(runtime.List(std::move(part)));
  }
  return runtime.List(std::move(result), ListKind::kIterator);
}

Value AttributeFilter(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string name = Str(runtime, arguments.Require("name"));
  arguments.Finish();
  if (self.is(Kind::kDict) && self.dict().Find(absl::string_view(name)) != nullptr) {
    return runtime.Undefined(absl::StrCat("a dict has no attribute '", name, "'"));
  }
  return Attribute(runtime, self, name);
}

// The arguments that `map` and `select` pass on: all but the first `skipped`.
Arguments Rest(Runtime& runtime, const Arguments& arguments, absl::string_view callee,
               size_t skipped) {
  runtime.Step(64 * (arguments.positional.size() + arguments.keywords.size()));
  Arguments rest;
  rest.callee = callee;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(skipped),
                         arguments.positional.end());
  rest.keywords = arguments.keywords;
  return rest;
}

Value Map(Runtime& runtime, const Value& self, Arguments& arguments) {
  std::vector<Value> results;
  // Also 0 and none count as empty, unread arguments included.
  if (!Truth(self)) return runtime.List({}, ListKind::kIterator);
  if (arguments.positional.empty()) {
    const Value* const attribute = arguments.Take("attribute");
    if (attribute == nullptr) Fail("map requires a filter argument");
    const Value* const fallback = arguments.Take("default");
    arguments.Finish();
    const AttributePath path(runtime, attribute);
    for (const Value& item : runtime.Items(self)) {
      const Value value = path.Get(item);
      results.push_back(IsGiven(fallback) && value.is(Kind::kUndefined) ? *fallback : value);
    }
    return runtime.List(std::move(results), ListKind::kIterator);
  }
  const std::string& name = RequireText(arguments.positional[0], "the name of a filter");
  const Builtin filter = RequireFilter(name);
  for (const Value& item : runtime.Items(self)) {
    Arguments rest = Rest(runtime, arguments, name, 1);
    results.push_back(filter(runtime, item, rest));
  }
  return runtime.List(std::move(results), ListKind::kIterator);
}

Value Choose(Runtime& runtime, const Value& self, const Arguments& arguments, bool by_attribute,
             bool wanted) {
  const size_t name_at = by_attribute ? 1 : 0;
  if (!Truth(self)) return runtime.List({}, ListKind::kIterator);
  const std::vector<Value> items = runtime.Items(self);
  if (items.empty()) return runtime.List({}, ListKind::kIterator);
  if (by_attribute && arguments.positional.empty()) {
    Fail("Missing parameter for attribute name");
  }
  const AttributePath path(runtime, by_attribute ? &arguments.positional[0] : nullptr);
  std::string name;
  Builtin test = nullptr;
  if (arguments.positional.size() > name_at) {
    name = RequireText(arguments.positional[name_at], "the name of a test");
    test = RequireTest(name);
  }
  std::vector<Value> chosen;
  for (const Value& item : items) {
    runtime.Step();
    Value value = path.Get(item);
    if (test != nullptr) {
      Arguments rest = Rest(runtime, arguments, name, name_at + 1);
      value = test(runtime, value, rest);
    }
    if (Truth(value) == wanted) chosen.push_back(item);
  }
  return runtime.List(std::move(chosen), ListKind::kIterator);
}

template <bool by_attribute, bool wanted>
Value Select(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Choose(runtime, self, arguments, by_attribute, wanted);
}

constexpr NamedBuiltin kSequenceFilters[] = {
    {"attr", AttributeFilter},
    {"batch", Batch},
    {"count", LengthFilter},
    {"d", Default},
    {"default", Default},
    {"dictsort", DictSort},
    {"first", First},
    {"groupby", GroupBy},
    {"items", ItemsFilter},
    {"join", JoinFilter},
    {"last", Last},
    {"length", LengthFilter},
    {"list", ListFilter},
    {"map", Map},
    {"max", Max},
    {"min", Min},
    {"reject", Select<false, false>},
    {"rejectattr", Select<true, false>},
    {"reverse", Reverse},
    {"select", Select<false, true>},
    {"selectattr", Select<true, true>},
    {"slice", SliceFilter},
    {"sort", Sort},
    {"sum", Sum},
    {"unique", Unique},
};

}  // namespace

Builtin FindSequenceFilter(absl::string_view name) { return FindBuiltin(kSequenceFilters, name); }

std::string SequenceFilterNames() { return BuiltinNames(kSequenceFilters); }

}  // namespace annulus::jinja
