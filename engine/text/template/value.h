#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_VALUE_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

// The values of a template: plain data, equal to Python's as far as templates can tell.
//
// A Value is a tag with a number or a pointer, and cheap to copy. Its data belongs to the
// rendering's Runtime (or, for literals, to the template) and lives until that ends, so cycles are
// harmless. Strings, lists and dicts are immutable. Only namespaces change, and the position of
// iterators.

namespace annulus::jinja {

struct ListData;
struct DictData;
struct NamespaceData;
struct FunctionData;
class LoopState;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,  // and other ordered collections: see ListKind
  kDict,
  kNamespace,
  kFunction,  // a macro, a method of a value, a global function
  kLoop,      // the variable `loop`
};

class Value {
 public:
  Value() : kind_(Kind::kNone), int_(0) {}
  static Value None() { return {}; }
  static Value Bool(bool value) { return Value(Kind::kBool, value ? 1 : 0); }
  static Value Int(int64_t value) { return Value(Kind::kInt, value); }
  static Value Float(double value);
  // The data must outlive the value. For kUndefined: the reason, for messages.
  static Value Undefined(const std::string* reason) { return Value(Kind::kUndefined, reason); }
  static Value String(const std::string* data) { return Value(Kind::kString, data); }
  static Value List(ListData* data) { return Value(Kind::kList, data); }
  static Value Dict(const DictData* data) { return Value(Kind::kDict, data); }
  static Value Namespace(NamespaceData* data) { return Value(Kind::kNamespace, data); }
  static Value Function(const FunctionData* data) { return Value(Kind::kFunction, data); }
  static Value Loop(LoopState* data) { return Value(Kind::kLoop, data); }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return is(Kind::kBool) || is(Kind::kInt) || is(Kind::kFloat); }
  bool is_integral() const { return is(Kind::kBool) || is(Kind::kInt); }

  // Each only for its own kind; `integer` also for kBool, `number` for every number.
  bool boolean() const { return int_ != 0; }
  int64_t integer() const { return int_; }
  double number() const { return is(Kind::kFloat) ? float_ : static_cast<double>(int_); }
  const std::string& text() const { return *static_cast<const std::string*>(pointer_); }
  ListData& list() const { return *static_cast<ListData*>(const_cast<void*>(pointer_)); }
  const DictData& dict() const { return *static_cast<const DictData*>(pointer_); }
  NamespaceData& ns() const { return *static_cast<NamespaceData*>(const_cast<void*>(pointer_)); }
  const FunctionData& function() const { return *static_cast<const FunctionData*>(pointer_); }
  LoopState& loop() const { return *static_cast<LoopState*>(const_cast<void*>(pointer_)); }
  const std::string& reason() const { return text(); }
  const void* identity() const { return pointer_; }

 private:
  Value(Kind kind, int64_t value) : kind_(kind), int_(value) {}
  Value(Kind kind, const void* pointer) : kind_(kind), pointer_(pointer) {}

  Kind kind_;
  union {
    int64_t int_;
    double float_;
    const void* pointer_;
  };
};

// Iterators (results of map, select, items, ..) are true, have no length, and are exhausted by
// reading. Views are a dict's keys(), values() and items().
enum class ListKind : uint8_t { kList, kTuple, kRange, kView, kIterator };

struct ListData {
  ListKind kind = ListKind::kList;
  std::vector<Value> items;
  int depth = 1;      // nesting depth of containers, including this one
  size_t weight = 0;  // see WeightOf
  size_t taken = 0;   // elements already read from an iterator
};

// A dict key that is not a string, with Equals and a matching hash.
struct HashedKey {
  Value value;

  bool operator==(const HashedKey& other) const;
  template <typename State>
  friend State AbslHashValue(State state, const HashedKey& key) {
    return State::combine(std::move(state), key.Hash());
  }

 private:
  size_t Hash() const;
};

// In insertion order. Keys are strings, numbers, booleans, none, or tuples of these.
struct DictData {
  std::vector<std::pair<Value, Value>> items;
  absl::flat_hash_map<absl::string_view, size_t> by_text;  // string keys
  absl::flat_hash_map<HashedKey, size_t> by_value;         // the others
  int depth = 1;
  size_t weight = 0;

  const Value* Find(const Value& key) const;
  const Value* Find(absl::string_view key) const;
  // Sets or replaces the value; an existing key keeps its position. The key must be hashable.
  void Set(const Value& key, const Value& value);
};

struct NamespaceData {
  DictData attributes;
};

// Python's name of the type, for messages: "str", "int", "NoneType".
absl::string_view TypeName(const Value& value);

bool Truth(const Value& value);

// Python's ==: numbers by value whatever their type; strings, lists, tuples and dicts by content, a
// list never equals a tuple; others by identity.
bool Equals(const Value& left, const Value& right);

// Python's <, for two numbers, two strings, two lists or two tuples; fails for others.
bool Less(const Value& left, const Value& right);

// Fails for values that Python cannot hash: lists, dicts, namespaces.
void CheckHashable(const Value& value);

// How deep containers may be nested, so that recursive walks need only a small stack.
inline constexpr int kMaxValueDepth = 100;
// 0 for plain values, otherwise the depth of the list or dict.
int DepthOf(const Value& value);
// Bytes of the value and everything it contains, counted once per reference: the cost of walking
// it, even if a template shares parts.
size_t WeightOf(const Value& value);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_VALUE_H_
