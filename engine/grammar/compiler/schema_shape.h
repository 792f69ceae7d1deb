#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_SCHEMA_SHAPE_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_SCHEMA_SHAPE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/compiler/compile_meter.h"
#include "engine/grammar/compiler/decimal_range.h"
#include "engine/grammar/compiler/json_tree.h"
#include "engine/grammar/machine.h"

namespace annulus {

// A value inside a document, which is linked (JsonTree::LinkParents): most often a schema. Shapes
// point to the document's texts, since there can be many of one schema.
struct SchemaRef {
  const JsonTree* node = nullptr;
  const JsonTree* document = nullptr;
};

// Schemas that a value must satisfy together. None: any value.
using SchemaList = std::vector<SchemaRef>;

// Types of values, as bits. A number is kInteger if its value is whole.
enum SchemaType : uint8_t {
  kNullType = 1,
  kBooleanType = 2,
  kIntegerType = 4,
  kFractionType = 8,
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kAnyType = 127,
};

// What one schema says of an object's members. A shape can have several: a member must satisfy all.
struct ObjectPart {
  SchemaRef properties;                                           // an object, or null
  std::vector<std::pair<absl::string_view, SchemaRef>> prefixes;  // of patternProperties
  std::optional<SchemaRef> additional;
};

// What one schema says of an array's elements.
struct ArrayPart {
  SchemaList prefix;
  std::optional<SchemaRef> items;  // of those after `prefix`
};

// A schema without alternatives: all of it must hold.
struct Shape {
  SchemaRef at;  // the schema, for messages
  uint8_t types = kAnyType;
  std::optional<std::vector<const JsonTree*>> values;  // of enum or const
  std::vector<ObjectPart> objects;
  std::vector<absl::string_view> required;
  std::vector<ArrayPart> arrays;
  uint32_t min_items = 0;
  uint32_t max_items = kUnbounded;
  uint32_t min_length = 0;
  uint32_t max_length = kUnbounded;
  std::vector<absl::string_view> patterns;  // regular expressions to be found in a string
  DecimalRange numbers;
};

// Returns what shape `a` and shape `b` allow together. INVALID_ARGUMENT for combinations that are
// not supported.
absl::StatusOr<Shape> Conjoin(const Shape& a, const Shape& b);

// Reads schemas of one document: keywords, references and alternatives.
class SchemaReader {
 public:
  // All must outlive the reader.
  SchemaReader(const JsonTree* document, CompileMeter* meter)
      : document_(*document), meter_(*meter) {}

  // Returns shapes of which a value must have one. INVALID_ARGUMENT, with the path, for a keyword
  // that is not supported or malformed, and for a reference that leads to itself.
  absl::StatusOr<std::vector<Shape>> Read(const SchemaList& schemas);

 private:
  absl::StatusOr<std::vector<Shape>> ReadOne(const SchemaRef& schema);
  absl::StatusOr<std::vector<Shape>> ReadObject(const SchemaRef& schema);
  absl::StatusOr<std::vector<Shape>> ReadBranches(const SchemaRef& keyword, bool exclusive);
  absl::StatusOr<std::vector<Shape>> Both(const std::vector<Shape>& a, const std::vector<Shape>& b);
  absl::StatusOr<SchemaRef> Resolve(const SchemaRef& keyword) const;

  // Whether no value has both shapes, as far as types, constants, and constant properties tell.
  absl::StatusOr<bool> Exclude(const Shape& a, const Shape& b);
  absl::StatusOr<bool> ExcludeByTag(const Shape& a, const Shape& b);
  // The values of a property that only takes constants; nothing if it takes others.
  absl::StatusOr<std::optional<std::vector<std::string>>> Constants(const Shape& shape,
                                                                    absl::string_view property);

  const JsonTree& document_;
  CompileMeter& meter_;
  std::vector<const JsonTree*> open_;  // being read, the outermost first
};

// Reads the keywords of `schema` that concern only itself into `shape`; leaves $ref, allOf, anyOf
// and oneOf to the caller.
absl::Status ReadKeywords(const SchemaRef& schema, Shape* shape, CompileMeter* meter);

// Whether a keyword says nothing of the values, such as title.
bool IsIgnoredKeyword(absl::string_view name);

// Schemas for the member `name`, according to all parts.
SchemaList SchemasOfMember(const Shape& shape, absl::string_view name);
// Schemas for members that begin with `prefix`, are not among the properties, and begin with no
// longer prefix of the shape.
SchemaList SchemasOfOthers(const Shape& shape, absl::string_view prefix);

// INVALID_ARGUMENT: "schema: PATH PROBLEM", with the path of `at` as "#/properties/a~1b".
absl::Status SchemaError(const SchemaRef& at, absl::string_view problem);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_SCHEMA_SHAPE_H_
