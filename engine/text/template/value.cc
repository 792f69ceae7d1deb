#include "engine/text/template/value.h"

#include <algorithm>
#include <cmath>

#include "absl/hash/hash.h"
#include "engine/text/template/language/failure.h"

namespace annulus::jinja {
namespace {

bool EqualLists(const ListData& left, const ListData& right) {
  if (&left == &right) return true;
  if (left.kind != right.kind || left.items.size() != right.items.size()) return false;
  if (left.kind == ListKind::kIterator || left.kind == ListKind::kView) return false;
  return std::equal(left.items.begin(), left.items.end(), right.items.begin(), Equals);
}

bool EqualDicts(const DictData& left, const DictData& right) {
  if (left.items.size() != right.items.size()) return false;
  return std::all_of(left.items.begin(), left.items.end(), [&](const auto& item) {
    const Value* other = right.Find(item.first);
    return other != nullptr && Equals(item.second, *other);
  });
}

// Exact for every pair: a long double holds all 64-bit integers and all doubles.
long double Exact(const Value& value) {
  return value.is(Kind::kFloat) ? static_cast<long double>(value.number())
                                : static_cast<long double>(value.integer());
}

bool IsNan(const Value& value) { return value.is(Kind::kFloat) && std::isnan(value.number()); }

bool IsOrdered(const ListData& list) {
  return list.kind == ListKind::kList || list.kind == ListKind::kTuple;
}

}  // namespace

Value Value::Float(double value) {
  Value result;
  result.kind_ = Kind::kFloat;
  result.float_ = value;
  return result;
}

bool HashedKey::operator==(const HashedKey& other) const { return Equals(value, other.value); }

// Values that are equal have the same hash: 1, 1.0 and true. NaN equals nothing, so that a dict may
// have it many times.
size_t HashedKey::Hash() const {
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt:
      return absl::HashOf(value.integer());
    case Kind::kFloat: {
      const double number = value.number();
      const bool is_integer = std::abs(number) < 0x1p63 && std::trunc(number) == number;
      return is_integer ? absl::HashOf(static_cast<int64_t>(number)) : absl::HashOf(number);
    }
    case Kind::kString:
      return absl::HashOf(value.text());
    case Kind::kList: {
      size_t hash = 0;
      for (const Value& item : value.list().items) {
        hash = IsNan(item) ? absl::HashOf(hash, value.identity())
                           : absl::HashOf(hash, HashedKey{item});
      }
      return hash;
    }
    case Kind::kNone:
    case Kind::kUndefined:
      return absl::HashOf(value.kind());
    default:
      return absl::HashOf(value.identity());
  }
}

const Value* DictData::Find(absl::string_view key) const {
  const auto found = by_text.find(key);
  return found == by_text.end() ? nullptr : &items[found->second].second;
}

const Value* DictData::Find(const Value& key) const {
  if (key.is(Kind::kString)) return Find(absl::string_view(key.text()));
  const auto found = by_value.find(HashedKey{key});
  return found == by_value.end() ? nullptr : &items[found->second].second;
}

void DictData::Set(const Value& key, const Value& value) {
  depth = std::max({depth, DepthOf(key) + 1, DepthOf(value) + 1});
  weight += WeightOf(key) + WeightOf(value);
  const Value* const old = Find(key);
  if (old != nullptr) {
    const_cast<Value&>(*old) = value;
    return;
  }
  if (key.is(Kind::kString)) {
    by_text.emplace(key.text(), items.size());
  } else if (!IsNan(key)) {
    by_value.emplace(HashedKey{key}, items.size());
  }
  items.emplace_back(key, value);
}

absl::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kFunction:
      return "function";
    case Kind::kLoop:
      return "loop";
    case Kind::kList:
      break;
  }
  switch (value.list().kind) {
    case ListKind::kTuple:
      return "tuple";
    case ListKind::kRange:
      return "range";
    case ListKind::kView:
      return "dict view";
    case ListKind::kIterator:
      return "iterator";
    case ListKind::kList:
      break;
  }
  return "list";
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.number() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
      return value.list().kind == ListKind::kIterator || !value.list().items.empty();
    case Kind::kDict:
      return !value.dict().items.empty();
    default:
      return true;
  }
}

bool Equals(const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) return Exact(left) == Exact(right);
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return left.text() == right.text();
    case Kind::kList:
      return EqualLists(left.list(), right.list());
    case Kind::kDict:
      return EqualDicts(left.dict(), right.dict());
    default:
      return left.identity() == right.identity();
  }
}

bool Less(const Value& left, const Value& right) {
  if (left.is(Kind::kUndefined)) Fail(left.reason());
  if (right.is(Kind::kUndefined)) Fail(right.reason());
  if (left.is_number() && right.is_number()) return Exact(left) < Exact(right);
  // Bytes of UTF-8 sort as code points do.
  if (left.is(Kind::kString) && right.is(Kind::kString)) return left.text() < right.text();
  if (left.is(Kind::kList) && right.is(Kind::kList) && left.list().kind == right.list().kind &&
      IsOrdered(left.list())) {
    const std::vector<Value>& a = left.list().items;
    const std::vector<Value>& b = right.list().items;
    const auto [first, second] = std::mismatch(a.begin(), a.end(), b.begin(), b.end(), Equals);
    if (first == a.end() || second == b.end()) return first == a.end() && second != b.end();
    return Less(*first, *second);
  }
  Fail("'", TypeName(left), "' and '", TypeName(right), "' cannot be ordered");
}

void CheckHashable(const Value& value) {
  if (value.is(Kind::kList) && value.list().kind == ListKind::kTuple) {
    for (const Value& item : value.list().items) CheckHashable(item);
    return;
  }
  if (value.is(Kind::kDict) || (value.is(Kind::kList) && value.list().kind == ListKind::kList)) {
    Fail("unhashable type: '", TypeName(value), "'");
  }
}

size_t WeightOf(const Value& value) {
  size_t weight = sizeof(Value);
  if (value.is(Kind::kString)) weight += value.text().size();
  if (value.is(Kind::kList)) weight += value.list().weight;
  if (value.is(Kind::kDict)) weight += value.dict().weight;
  return weight;
}

int DepthOf(const Value& value) {
  if (value.is(Kind::kList)) return value.list().depth;
  if (value.is(Kind::kDict)) return value.dict().depth;
  return 0;
}

}  // namespace annulus::jinja
