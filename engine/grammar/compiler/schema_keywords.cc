// The keywords of one schema: schema_shape.h.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "engine/base/json_parser.h"
#include "engine/grammar/compiler/schema_shape.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using Reader = absl::Status (*)(const SchemaRef& keyword, Shape* shape);

std::string Shown(const JsonTree& value) { return QuoteForMessage(CompactJson(value, false)); }

absl::Status Wrong(const SchemaRef& keyword, absl::string_view allowed) {
  return SchemaError(keyword, absl::StrCat("is ", Shown(*keyword.node), "; allowed: ", allowed));
}

absl::Status Ignored(const SchemaRef&, Shape*) { return absl::OkStatus(); }
// Read by SchemaReader.
absl::Status Elsewhere(const SchemaRef&, Shape*) { return absl::OkStatus(); }

absl::StatusOr<uint8_t> TypeOf(const SchemaRef& keyword, const JsonTree& name) {
  static const auto& types = *new absl::flat_hash_map<std::string, uint8_t>{
      {"null", kNullType},       {"boolean", kBooleanType},
      {"integer", kIntegerType}, {"number", kIntegerType | kFractionType},
      {"string", kStringType},   {"array", kArrayType},
      {"object", kObjectType}};
  const auto found = name.is_string() ? types.find(name.text) : types.end();
  if (found == types.end()) {
    return Wrong(keyword,
                 "null, boolean, integer, number, string, array, object, or a list of these");
  }
  return found->second;
}

absl::Status ReadType(const SchemaRef& keyword, Shape* shape) {
  if (!keyword.node->is_array()) {
    ANNULUS_ASSIGN_OR_RETURN(shape->types, TypeOf(keyword, *keyword.node));
    return absl::OkStatus();
  }
  shape->types = 0;
  for (const JsonTree& name : keyword.node->items) {
    ANNULUS_ASSIGN_OR_RETURN(const uint8_t type, TypeOf(keyword, name));
    shape->types |= type;
  }
  return absl::OkStatus();
}

absl::Status ReadEnum(const SchemaRef& keyword, Shape* shape) {
  if (!keyword.node->is_array()) return Wrong(keyword, "a list of values");
  shape->values.emplace();
  for (const JsonTree& value : keyword.node->items) shape->values->push_back(&value);
  return absl::OkStatus();
}

absl::Status ReadConst(const SchemaRef& keyword, Shape* shape) {
  shape->values = {keyword.node};
  return absl::OkStatus();
}

ObjectPart* PartOf(Shape* shape) {
  if (shape->objects.empty()) shape->objects.emplace_back();
  return &shape->objects.front();
}

ArrayPart* ElementsOf(Shape* shape) {
  if (shape->arrays.empty()) shape->arrays.emplace_back();
  return &shape->arrays.front();
}

absl::Status ReadProperties(const SchemaRef& keyword, Shape* shape) {
  if (!keyword.node->is_object()) return Wrong(keyword, "an object of schemas");
  PartOf(shape)->properties = keyword;
  return absl::OkStatus();
}

absl::Status ReadPatternProperties(const SchemaRef& keyword, Shape* shape) {
  if (!keyword.node->is_object()) return Wrong(keyword, "an object of schemas");
  for (size_t i = 0; i < keyword.node->items.size(); ++i) {
    const SchemaRef schema{&keyword.node->items[i], keyword.document};
    absl::string_view prefix = keyword.node->members->keys[i];
    if (!absl::ConsumePrefix(&prefix, "^") ||
        prefix.find_first_of("\\^$.|?*+()[]{}") != absl::string_view::npos) {
      return SchemaError(schema,
                         "is a pattern that is not supported here; allowed: ^ and the characters "
                         "with which the names begin");
    }
    PartOf(shape)->prefixes.emplace_back(prefix, schema);
  }
  return absl::OkStatus();
}

absl::Status ReadAdditionalProperties(const SchemaRef& keyword, Shape* shape) {
  PartOf(shape)->additional = keyword;
  return absl::OkStatus();
}

absl::Status ReadRequired(const SchemaRef& keyword, Shape* shape) {
  if (!keyword.node->is_array()) return Wrong(keyword, "a list of names");
  for (const JsonTree& name : keyword.node->items) {
    if (!name.is_string()) return Wrong(keyword, "a list of names");
    shape->required.push_back(name.text);
  }
  return absl::OkStatus();
}

absl::Status ReadPrefixItems(const SchemaRef& keyword, Shape* shape) {
  if (!keyword.node->is_array()) return Wrong(keyword, "a list of schemas");
  ArrayPart* const part = ElementsOf(shape);
  for (const JsonTree& item : keyword.node->items) {
    part->prefix.push_back({&item, keyword.document});
  }
  return absl::OkStatus();
}

absl::Status ReadItems(const SchemaRef& keyword, Shape* shape) {
  // Until draft 2019-09 a list here was what prefixItems is now.
  if (keyword.node->is_array()) return ReadPrefixItems(keyword, shape);
  ElementsOf(shape)->items = keyword;
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> ReadCount(const SchemaRef& keyword) {
  constexpr uint32_t kMost = 1u << 30;
  if (keyword.node->kind == JsonTree::Kind::kNumber) {
    const auto value = Decimal::Parse(keyword.node->text);
    uint64_t count = 0;
    if (value.ok() && !value->negative && value->fraction.empty() && value->whole.size() <= 10) {
      for (const char digit : value->whole) count = count * 10 + static_cast<uint64_t>(digit - '0');
      if (count <= kMost) return static_cast<uint32_t>(count);
    }
  }
  return Wrong(keyword, absl::StrCat("a whole number from 0 to ", kMost));
}

template <uint32_t Shape::*kField>
absl::Status ReadCountInto(const SchemaRef& keyword, Shape* shape) {
  ANNULUS_ASSIGN_OR_RETURN(shape->*kField, ReadCount(keyword));
  return absl::OkStatus();
}

absl::StatusOr<DecimalBound> ReadBound(const SchemaRef& keyword, bool exclusive) {
  if (keyword.node->kind != JsonTree::Kind::kNumber) return Wrong(keyword, "a number");
  const auto value = Decimal::Parse(keyword.node->text);
  if (!value.ok()) return SchemaError(keyword, value.status().message());
  return DecimalBound{*value, exclusive};
}

template <bool kExclusive>
absl::Status ReadMinimum(const SchemaRef& keyword, Shape* shape) {
  ANNULUS_ASSIGN_OR_RETURN(const DecimalBound bound, ReadBound(keyword, kExclusive));
  shape->numbers.AtLeast(bound);
  return absl::OkStatus();
}

template <bool kExclusive>
absl::Status ReadMaximum(const SchemaRef& keyword, Shape* shape) {
  ANNULUS_ASSIGN_OR_RETURN(const DecimalBound bound, ReadBound(keyword, kExclusive));
  shape->numbers.AtMost(bound);
  return absl::OkStatus();
}

absl::Status ReadPattern(const SchemaRef& keyword, Shape* shape) {
  if (!keyword.node->is_string()) return Wrong(keyword, "a regular expression");
  shape->patterns.push_back(keyword.node->text);
  return absl::OkStatus();
}

// Years 0001 to 9999, as most libraries take them; days that the month has.
constexpr char kDate[] =
    "(?:(?:(?:[1-9][0-9]|0[1-9])[0-9][0-9]|00(?:[1-9][0-9]|0[1-9]))-"
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"
    "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|"
    "(?:[0-9][0-9](?:0[48]|[2468][048]|[13579][26])|"
    "(?:0[48]|[2468][048]|[13579][26])00)-02-29)";
constexpr char kTime[] =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
constexpr char kByte[] = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
constexpr char kLabel[] = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
constexpr char kAtom[] = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,64}";

std::string Whole(absl::string_view pattern) { return absl::StrCat("^(?:", pattern, ")$"); }

absl::Status ReadFormat(const SchemaRef& keyword, Shape* shape) {
  static const auto& formats = *new absl::flat_hash_map<std::string, std::string>{
      {"date", Whole(kDate)},
      {"time", Whole(kTime)},
      {"date-time", Whole(absl::StrCat(kDate, "T", kTime))},
      {"uuid", Whole("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")},
      {"email", Whole(absl::StrCat(kAtom, "(?:\\.", kAtom, ")*@", kLabel, "(?:\\.", kLabel, ")*"))},
      {"ipv4", Whole(absl::StrCat(kByte, "(?:\\.", kByte, "){3}"))}};
  const auto found = keyword.node->is_string() ? formats.find(keyword.node->text) : formats.end();
  if (found == formats.end()) {
    return Wrong(keyword, "date, time, date-time, uuid, email, ipv4");
  }
  shape->patterns.push_back(found->second);
  return absl::OkStatus();
}

const absl::flat_hash_map<std::string, Reader>& Readers() {
  static const auto& readers = *new absl::flat_hash_map<std::string, Reader>{
      {"type", ReadType},
      {"enum", ReadEnum},
      {"const", ReadConst},
      {"properties", ReadProperties},
      {"patternProperties", ReadPatternProperties},
      {"additionalProperties", ReadAdditionalProperties},
      {"required", ReadRequired},
      {"items", ReadItems},
      {"prefixItems", ReadPrefixItems},
      {"minItems", ReadCountInto<&Shape::min_items>},
      {"maxItems", ReadCountInto<&Shape::max_items>},
      {"minLength", ReadCountInto<&Shape::min_length>},
      {"maxLength", ReadCountInto<&Shape::max_length>},
      {"minimum", ReadMinimum<false>},
      {"exclusiveMinimum", ReadMinimum<true>},
      {"maximum", ReadMaximum<false>},
      {"exclusiveMaximum", ReadMaximum<true>},
      {"pattern", ReadPattern},
      {"format", ReadFormat},
      {"allOf", Elsewhere},
      {"anyOf", Elsewhere},
      {"oneOf", Elsewhere},
      {"$ref", Elsewhere},
      {"$defs", Ignored},
      {"definitions", Ignored},
      {"$schema", Ignored},
      {"$comment", Ignored},
      {"title", Ignored},
      {"description", Ignored},
      {"default", Ignored},
      {"examples", Ignored},
      {"deprecated", Ignored},
      {"readOnly", Ignored},
      {"writeOnly", Ignored},
      {"discriminator", Ignored},
  };
  return readers;
}

}  // namespace

absl::Status SchemaError(const SchemaRef& at, absl::string_view problem) {
  std::string path;
  for (const JsonTree* node = at.node; node != at.document; node = node->parent) {
    const JsonTree& parent = *node->parent;
    const auto place = static_cast<size_t>(node - parent.items.data());
    const std::string key = parent.is_object() ? parent.members->keys[place] : absl::StrCat(place);
    path = absl::StrCat("/", absl::StrReplaceAll(key, {{"~", "~0"}, {"/", "~1"}}), path);
  }
  path.insert(0, "#");
  return absl::InvalidArgumentError(absl::StrCat("schema: ", QuoteForMessage(path), " ", problem));
}

absl::Status ReadKeywords(const SchemaRef& schema, Shape* shape, CompileMeter* meter) {
  shape->at = schema;
  const JsonTree& node = *schema.node;
  ANNULUS_RETURN_IF_ERROR(meter->Step(static_cast<int64_t>(node.items.size())));
  for (size_t i = 0; i < node.items.size(); ++i) {
    const std::string& key = node.members->keys[i];
    const SchemaRef keyword{&node.items[i], schema.document};
    const auto reader = Readers().find(key);
    if (reader == Readers().end()) {
      return SchemaError(
          keyword,
          "is a keyword that is not supported; allowed: type, enum, const, properties, "
          "patternProperties, additionalProperties, required, items, prefixItems, minItems, "
          "maxItems, minLength, maxLength, minimum, maximum, exclusiveMinimum, exclusiveMaximum, "
          "pattern, format, allOf, anyOf, oneOf, $ref, $defs");
    }
    if (key == "const" && node.Find("enum") != nullptr) {
      return SchemaError(keyword, "cannot be combined with enum; keep one of the two");
    }
    if (key == "prefixItems" && node.Find("items") != nullptr && node.Find("items")->is_array()) {
      return SchemaError(keyword, "cannot be combined with a list in items; keep one of the two");
    }
    // Lists are gone through several times, and values of enum as texts.
    ANNULUS_RETURN_IF_ERROR(meter->Step(static_cast<int64_t>(4 * keyword.node->items.size())));
    ANNULUS_RETURN_IF_ERROR(reader->second(keyword, shape));
  }
  return absl::OkStatus();
}

bool IsIgnoredKeyword(absl::string_view name) {
  const auto reader = Readers().find(name);
  return reader != Readers().end() && reader->second == Ignored;
}

namespace {

SchemaList SchemasOf(const Shape& shape, absl::string_view name, bool among_properties) {
  SchemaList schemas;
  for (const ObjectPart& part : shape.objects) {
    const size_t before = schemas.size();
    const JsonTree* const properties = among_properties ? part.properties.node : nullptr;
    const JsonTree* const schema = properties != nullptr ? properties->Find(name) : nullptr;
    if (schema != nullptr) schemas.push_back({schema, part.properties.document});
    for (const auto& [prefix, of_prefix] : part.prefixes) {
      if (absl::StartsWith(name, prefix)) schemas.push_back(of_prefix);
    }
    if (schemas.size() == before && part.additional) schemas.push_back(*part.additional);
  }
  return schemas;
}

}  // namespace

SchemaList SchemasOfMember(const Shape& shape, absl::string_view name) {
  return SchemasOf(shape, name, /*among_properties=*/true);
}

SchemaList SchemasOfOthers(const Shape& shape, absl::string_view prefix) {
  return SchemasOf(shape, prefix, /*among_properties=*/false);
}

}  // namespace annulus
