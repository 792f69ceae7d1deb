#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_VALUE_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

// The values that a template computes with: plain data, Python's as far as templates can see it.
//
// A Value is a tag and a number or a pointer; copying is cheap. What it points to belongs to the
// Runtime of the rendering (or, for literals, to the template) and lives until that ends, so values
// that refer to each other in a circle need no care. Strings, lists and dicts never change once
// made. Only a namespace changes, and what an iterator has left.

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
  kList,  // and what else has elements in order: see ListKind
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
  // The owner of `data` outlives the value. For kUndefined: why it is, for messages.
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

  // Each for its own kind only; `integer` also for kBool, `number` for every number.
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

// Iterators (what map, select, items and their like give) are true, have no length and end: reading
// one takes its elements away. Views are a dict's keys(), values() and items().
enum class ListKind : uint8_t { kList, kTuple, kRange, kView, kIterator };

struct ListData {
  ListKind kind = ListKind::kList;
  std::vector<Value> items;
  int depth = 1;      // containers inside each other, this one included
  size_t weight = 0;  // see WeightOf
  size_t taken = 0;   // elements that were read from an iterator
};

// A key of a dict that is no string, with Equals and a hash that goes with it.
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

// In the order of insertion. Keys are strings, numbers, booleans, none, or tuples of such.
struct DictData {
  std::vector<std::pair<Value, Value>> items;
  absl::flat_hash_map<absl::string_view, size_t> by_text;  // string keys
  absl::flat_hash_map<HashedKey, size_t> by_value;         // the others
  int depth = 1;
  size_t weight = 0;

  const Value* Find(const Value& key) const;
  const Value* Find(absl::string_view key) const;
  // Replaces the value of an equal key, which keeps its place. The key must be hashable.
  void Set(const Value& key, const Value& value);
};

struct NamespaceData {
  DictData attributes;
};

// What messages call the type, as Python does: "str", "int", "NoneType".
absl::string_view TypeName(const Value& value);

bool Truth(const Value& value);

// Python's ==: numbers by value whatever their type, lists and tuples apart, the rest by identity.
bool Equals(const Value& left, const Value& right);

// Python's <, for two numbers, two strings, two lists or two tuples; fails for others.
bool Less(const Value& left, const Value& right);

// Fails for what Python cannot hash: lists, dicts, namespaces.
void CheckHashable(const Value& value);

// Containers may be this deep, so that everything that walks them fits a small stack.
inline constexpr int kMaxValueDepth = 100;
// 0 for plain values, else the depth of the list or dict.
int DepthOf(const Value& value);
// Bytes of the value and of all that it contains, counted as often as it is contained: what walking
// over it costs, however cleverly a template shares parts of it.
size_t WeightOf(const Value& value);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_VALUE_H_
