// References, alternatives and the conjunction of schemas: schema_shape.h.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/json_parser.h"
#include "engine/grammar/compiler/schema_shape.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using Values = std::vector<const JsonTree*>;

// A chain of references and alternatives this long can only be meant to exhaust the stack.
constexpr size_t kMaxOpenSchemas = 256;

absl::flat_hash_set<std::string> Texts(const Values& values) {
  absl::flat_hash_set<std::string> texts;
  for (const JsonTree* value : values) texts.insert(CompactJson(*value, /*sorted=*/true));
  return texts;
}

Values Common(const Values& a, const Values& b) {
  const absl::flat_hash_set<std::string> others = Texts(b);
  Values common;
  for (const JsonTree* value : a) {
    if (others.contains(CompactJson(*value, /*sorted=*/true))) common.push_back(value);
  }
  return common;
}

// Steps for comparing the values as texts.
int64_t StepsOf(const JsonTree& value) {
  int64_t steps = StepsFor(value.text.size());
  for (const JsonTree& item : value.items) steps += StepsOf(item);
  if (value.is_object()) {
    for (const std::string& key : value.members->keys) steps += StepsFor(key.size());
  }
  return steps;
}

int64_t StepsToCompare(const Values& a, const Values& b) {
  int64_t steps = 0;
  for (const Values* values : {&a, &b}) {
    for (const JsonTree* value : *values) steps += 4 * StepsOf(*value);
  }
  return steps;
}

bool Disjoint(const Values& a, const Values& b) { return Common(a, b).empty(); }

uint8_t TypeOf(const JsonTree& value) {
  switch (value.kind) {
    case JsonTree::Kind::kNull:
      return kNullType;
    case JsonTree::Kind::kFalse:
    case JsonTree::Kind::kTrue:
      return kBooleanType;
    case JsonTree::Kind::kNumber: {
      const auto number = Decimal::Parse(value.text);
      return number.ok() && number->fraction.empty() ? kIntegerType : kFractionType;
    }
    case JsonTree::Kind::kString:
      return kStringType;
    case JsonTree::Kind::kArray:
      return kArrayType;
    default:
      return kObjectType;
  }
}

size_t Characters(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
}

// Narrows `values` to those that satisfy the rest of the shape.
absl::Status FilterValues(Shape* shape) {
  if (!shape->values) return absl::OkStatus();
  const uint8_t types = shape->types;
  std::erase_if(*shape->values,
                [&](const JsonTree* value) { return (TypeOf(*value) & types) == 0; });
  uint8_t left = 0;
  for (const JsonTree* value : *shape->values) left |= TypeOf(*value);
  shape->types = left;
  const bool members =
      (left & kObjectType) != 0 && (!shape->objects.empty() || !shape->required.empty());
  const bool elements =
      (left & kArrayType) != 0 &&
      (!shape->arrays.empty() || shape->min_items > 0 || shape->max_items != kUnbounded);
  const bool patterns = (left & kStringType) != 0 && !shape->patterns.empty();
  if (members || elements || patterns) {
    return SchemaError(shape->at, absl::StrCat("limits the values of an enum or const by ",
                                               members    ? "keywords for objects"
                                               : elements ? "keywords for arrays"
                                                          : "pattern or format",
                                               "; list only values that satisfy them"));
  }
  std::erase_if(*shape->values, [&](const JsonTree* value) {
    if (value->kind == JsonTree::Kind::kNumber && shape->numbers.bounded()) {
      const auto number = Decimal::Parse(value->text);
      return !number.ok() || !shape->numbers.Contains(*number);
    }
    if (!value->is_string()) return false;
    const size_t length = Characters(value->text);
    return length < shape->min_length || length > shape->max_length;
  });
  return absl::OkStatus();
}

// More alternatives than a list of values needs come of a product.
constexpr size_t kMaxAlternatives = 1 << 14;

absl::Status CheckAlternatives(const SchemaRef& at, size_t count) {
  if (count <= kMaxAlternatives) return absl::OkStatus();
  return SchemaError(at, absl::StrCat("has more than ", kMaxAlternatives,
                                      " alternatives, all combinations of anyOf and oneOf "
                                      "counted; use fewer"));
}

bool Impossible(const Shape& shape) {
  return shape.types == 0 || (shape.values && shape.values->empty());
}

// A shape among others in a vector that doubles, with all digits that its bounds can have.
constexpr size_t kBytesPerShape = 3 * sizeof(Shape) + 512;

// What a shape lists, each of it a step to copy.
size_t PartsOf(const Shape& shape) {
  constexpr size_t kValuesPerStep = 4;
  size_t parts =
      shape.objects.size() + shape.required.size() + shape.arrays.size() + shape.patterns.size();
  for (const ObjectPart& part : shape.objects) parts += part.prefixes.size();
  for (const ArrayPart& part : shape.arrays) parts += part.prefix.size();
  return parts + (shape.values ? shape.values->size() / kValuesPerStep : 0);
}

template <typename T>
std::vector<T> Joined(const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> joined;
  joined.reserve(a.size() + b.size());
  joined.insert(joined.end(), a.begin(), a.end());
  joined.insert(joined.end(), b.begin(), b.end());
  return joined;
}

}  // namespace

absl::StatusOr<Shape> Conjoin(const Shape& a, const Shape& b) {
  Shape both;
  both.at = a.at;
  both.types = a.types & b.types;
  if (a.values && b.values) {
    both.values = Common(*a.values, *b.values);
  } else {
    both.values = a.values ? a.values : b.values;
  }
  both.objects = Joined(a.objects, b.objects);
  both.arrays = Joined(a.arrays, b.arrays);
  both.required = a.required;
  const absl::flat_hash_set<absl::string_view> known(a.required.begin(), a.required.end());
  for (const absl::string_view name : b.required) {
    if (!known.contains(name)) both.required.push_back(name);
  }
  both.patterns = Joined(a.patterns, b.patterns);
  both.min_items = std::max(a.min_items, b.min_items);
  both.max_items = std::min(a.max_items, b.max_items);
  both.min_length = std::max(a.min_length, b.min_length);
  both.max_length = std::min(a.max_length, b.max_length);
  both.numbers = a.numbers;
  if (b.numbers.low) both.numbers.AtLeast(*b.numbers.low);
  if (b.numbers.high) both.numbers.AtMost(*b.numbers.high);
  ANNULUS_RETURN_IF_ERROR(FilterValues(&both));
  return both;
}

absl::StatusOr<std::vector<Shape>> SchemaReader::Read(const SchemaList& schemas) {
  std::vector<Shape> shapes(1);
  if (!schemas.empty()) shapes.front().at = schemas.front();
  for (const SchemaRef& schema : schemas) {
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<Shape> own, ReadOne(schema));
    ANNULUS_ASSIGN_OR_RETURN(shapes, Both(shapes, own));
  }
  return shapes;
}

absl::StatusOr<std::vector<Shape>> SchemaReader::ReadOne(const SchemaRef& schema) {
  ANNULUS_RETURN_IF_ERROR(meter_.Step());
  if (schema.node->kind == JsonTree::Kind::kFalse) return std::vector<Shape>();
  if (schema.node->kind == JsonTree::Kind::kTrue) {
    std::vector<Shape> any(1);
    any.front().at = schema;
    return any;
  }
  if (!schema.node->is_object()) {
    return SchemaError(schema, "is not a schema; allowed: an object, true, false");
  }
  if (std::find(open_.begin(), open_.end(), schema.node) != open_.end()) {
    return SchemaError(
        schema, "refers to itself without an object or array in between, so it constrains nothing");
  }
  if (open_.size() == kMaxOpenSchemas) {
    return SchemaError(schema, absl::StrCat("is the end of a chain of more than ", kMaxOpenSchemas,
                                            " references and alternatives"));
  }
  open_.push_back(schema.node);
  auto shapes = ReadObject(schema);
  open_.pop_back();
  return shapes;
}

absl::StatusOr<std::vector<Shape>> SchemaReader::ReadObject(const SchemaRef& schema) {
  Shape own;
  ANNULUS_RETURN_IF_ERROR(ReadKeywords(schema, &own, &meter_));
  ANNULUS_RETURN_IF_ERROR(FilterValues(&own));
  std::vector<Shape> shapes{std::move(own)};
  const auto keyword = [&](absl::string_view name) {
    return SchemaRef{schema.node->Find(name), schema.document};
  };
  if (const SchemaRef ref = keyword("$ref"); ref.node != nullptr) {
    ANNULUS_ASSIGN_OR_RETURN(const SchemaRef target, Resolve(ref));
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<Shape> referred, ReadOne(target));
    ANNULUS_ASSIGN_OR_RETURN(shapes, Both(shapes, referred));
  }
  if (const SchemaRef all = keyword("allOf"); all.node != nullptr) {
    if (!all.node->is_array() || all.node->items.empty()) {
      return SchemaError(all, "is not a list of schemas");
    }
    for (const JsonTree& item : all.node->items) {
      ANNULUS_ASSIGN_OR_RETURN(const std::vector<Shape> part, ReadOne({&item, all.document}));
      ANNULUS_ASSIGN_OR_RETURN(shapes, Both(shapes, part));
    }
  }
  for (const char* name : {"anyOf", "oneOf"}) {
    const SchemaRef branches = keyword(name);
    if (branches.node == nullptr) continue;
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<Shape> read,
                             ReadBranches(branches, absl::string_view(name) == "oneOf"));
    ANNULUS_ASSIGN_OR_RETURN(shapes, Both(shapes, read));
  }
  return shapes;
}

absl::StatusOr<std::vector<Shape>> SchemaReader::ReadBranches(const SchemaRef& keyword,
                                                              bool exclusive) {
  if (!keyword.node->is_array() || keyword.node->items.empty()) {
    return SchemaError(keyword, "is not a list of schemas");
  }
  std::vector<Shape> shapes;
  std::vector<size_t> branch_of;
  for (size_t i = 0; i < keyword.node->items.size(); ++i) {
    ANNULUS_ASSIGN_OR_RETURN(std::vector<Shape> branch,
                             ReadOne({&keyword.node->items[i], keyword.document}));
    for (Shape& shape : branch) {
      ANNULUS_RETURN_IF_ERROR(meter_.Take(kBytesPerShape));
      for (size_t other = 0; exclusive && other < shapes.size(); ++other) {
        if (branch_of[other] == i) continue;
        ANNULUS_ASSIGN_OR_RETURN(const bool exclude, Exclude(shapes[other], shape));
        if (!exclude) {
          return SchemaError(
              keyword,
              absl::StrCat("has branches ", branch_of[other], " and ", i,
                           " that can both match; use anyOf, or give each branch a different type "
                           "or a required property with a different constant"));
        }
      }
      shapes.push_back(std::move(shape));
      branch_of.push_back(i);
      ANNULUS_RETURN_IF_ERROR(CheckAlternatives(keyword, shapes.size()));
    }
  }
  return shapes;
}

absl::StatusOr<std::vector<Shape>> SchemaReader::Both(const std::vector<Shape>& a,
                                                      const std::vector<Shape>& b) {
  std::vector<Shape> shapes;
  for (const Shape& one : a) {
    for (const Shape& other : b) {
      // What is copied grows with the parts.
      ANNULUS_RETURN_IF_ERROR(meter_.Step(static_cast<int64_t>(4 + PartsOf(one) + PartsOf(other))));
      ANNULUS_RETURN_IF_ERROR(meter_.Take(kBytesPerShape));
      if (one.values && other.values) {
        ANNULUS_RETURN_IF_ERROR(meter_.Step(StepsToCompare(*one.values, *other.values)));
      }
      ANNULUS_ASSIGN_OR_RETURN(Shape both, Conjoin(one, other));
      if (Impossible(both)) continue;
      shapes.push_back(std::move(both));
      ANNULUS_RETURN_IF_ERROR(CheckAlternatives(one.at, shapes.size()));
    }
  }
  return shapes;
}

absl::StatusOr<SchemaRef> SchemaReader::Resolve(const SchemaRef& keyword) const {
  const auto error = [&](absl::string_view problem) {
    return SchemaError(
        keyword,
        absl::StrCat("is ", QuoteForMessage(CompactJson(*keyword.node, false)), ", ", problem));
  };
  absl::string_view rest = keyword.node->text;
  if (!keyword.node->is_string() || !absl::ConsumePrefix(&rest, "#") ||
      (!rest.empty() && rest.front() != '/')) {
    return error("which is not supported; allowed: # and a path in this schema, as #/$defs/name");
  }
  const JsonTree* node = &document_;
  if (rest.empty()) return SchemaRef{node, node};
  for (const absl::string_view part : absl::StrSplit(rest.substr(1), '/')) {
    std::string key;
    for (size_t i = 0; i < part.size(); ++i) {
      if (part[i] == '%' && i + 2 < part.size() &&
          absl::ascii_isxdigit(static_cast<unsigned char>(part[i + 1])) &&
          absl::ascii_isxdigit(static_cast<unsigned char>(part[i + 2]))) {
        uint32_t byte = 0;
        ANNULUS_CHECK(absl::SimpleHexAtoi(part.substr(i + 1, 2), &byte));
        key.push_back(static_cast<char>(byte));
        i += 2;
      } else {
        key.push_back(part[i]);
      }
    }
    key = absl::StrReplaceAll(key, {{"~1", "/"}, {"~0", "~"}});
    size_t index = 0;
    if (node->is_array() && absl::SimpleAtoi(key, &index) && index < node->items.size()) {
      node = &node->items[index];
    } else {
      node = node->Find(key);
    }
    if (node == nullptr) return error("which this schema does not have");
  }
  return SchemaRef{node, &document_};
}

absl::StatusOr<bool> SchemaReader::Exclude(const Shape& a, const Shape& b) {
  ANNULUS_RETURN_IF_ERROR(meter_.Step());
  const uint8_t common = a.types & b.types;
  if (common == 0) return true;
  if (a.values && b.values) {
    ANNULUS_RETURN_IF_ERROR(meter_.Step(StepsToCompare(*a.values, *b.values)));
    return Disjoint(*a.values, *b.values);
  }
  if ((common & ~(kObjectType | kIntegerType | kFractionType)) != 0) return false;
  if ((common & (kIntegerType | kFractionType)) != 0) {
    DecimalRange both = a.numbers;
    if (b.numbers.low) both.AtLeast(*b.numbers.low);
    if (b.numbers.high) both.AtMost(*b.numbers.high);
    const bool none =
        both.low && both.high &&
        (both.low->value > both.high->value ||
         (both.low->value == both.high->value && (both.low->exclusive || both.high->exclusive)));
    if (!none) return false;
  }
  return (common & kObjectType) == 0 ? absl::StatusOr<bool>(true) : ExcludeByTag(a, b);
}

absl::StatusOr<bool> SchemaReader::ExcludeByTag(const Shape& a, const Shape& b) {
  constexpr size_t kNamesPerStep = 16;
  for (const absl::string_view name : a.required) {
    ANNULUS_RETURN_IF_ERROR(
        meter_.Step(static_cast<int64_t>(1 + b.required.size() / kNamesPerStep)));
    if (std::find(b.required.begin(), b.required.end(), name) == b.required.end()) continue;
    ANNULUS_ASSIGN_OR_RETURN(const auto of_a, Constants(a, name));
    if (!of_a) continue;
    ANNULUS_ASSIGN_OR_RETURN(const auto of_b, Constants(b, name));
    if (!of_b) continue;
    const absl::flat_hash_set<std::string> values(of_a->begin(), of_a->end());
    if (std::none_of(of_b->begin(), of_b->end(),
                     [&](const std::string& value) { return values.contains(value); })) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<std::optional<std::vector<std::string>>> SchemaReader::Constants(
    const Shape& shape, absl::string_view property) {
  // The property's own schemas may refer to what is being read: they stand below an object.
  const std::vector<const JsonTree*> open = std::exchange(open_, {});
  const auto shapes = Read(SchemasOfMember(shape, property));
  open_ = open;
  ANNULUS_RETURN_IF_ERROR(shapes.status());
  std::vector<std::string> values;
  for (const Shape& each : *shapes) {
    if (!each.values) return std::optional<std::vector<std::string>>();
    ANNULUS_RETURN_IF_ERROR(meter_.Step(StepsToCompare(*each.values, {})));
    for (const JsonTree* value : *each.values) values.push_back(CompactJson(*value, true));
  }
  return std::optional(std::move(values));
}

}  // namespace annulus
