#include "engine/grammar/compiler/schema_compiler.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json_parser.h"
#include "engine/grammar/compiler/decimal_range.h"
#include "engine/grammar/compiler/regex_tree.h"
#include "engine/grammar/compiler/string_pattern.h"
#include "kernels/base/status_macros.h"

namespace annulus {

SchemaCompiler::SchemaCompiler(const JsonTree* document, CompileMeter* meter,
                               MachineBuilder* builder, JsonForm form)
    : document_(*document),
      builder_(*builder),
      reader_(document, meter),
      json_(builder, std::move(form)) {}

absl::StatusOr<NodeId> SchemaCompiler::Compile() {
  ANNULUS_ASSIGN_OR_RETURN(const RuleId root, CompileAll({{&document_, &document_}}));
  const NodeId start = builder_.Call(root, kReturnNode);
  ANNULUS_RETURN_IF_ERROR(builder_.status());
  return start;
}

absl::StatusOr<RuleId> SchemaCompiler::CompileObject() {
  static const JsonTree& object = *[] {
    auto* const schema = new JsonTree;
    schema->kind = JsonTree::Kind::kObject;
    schema->members = std::make_unique<JsonTree::Members>();
    schema->members->keys = {"type"};
    schema->members->places = {{"type", 0}};
    JsonTree& type = schema->items.emplace_back();
    type.kind = JsonTree::Kind::kString;
    type.text = "object";
    return schema;
  }();
  return CompileAll({{&document_, &document_}, {&object, &object}});
}

absl::StatusOr<RuleId> SchemaCompiler::CompileAll(SchemaList schemas) {
  const RuleId root = RuleOf(std::move(schemas));
  // Rules that are still to be defined wait here, so that references do not recurse.
  while (!pending_.empty()) {
    const auto [rule, schemas] = std::move(pending_.back());
    pending_.pop_back();
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<Shape> shapes, reader_.Read(schemas));
    ANNULUS_ASSIGN_OR_RETURN(const NodeId start, EmitShapes(shapes));
    ANNULUS_RETURN_IF_ERROR(builder_.status());
    builder_.DefineRule(rule, start);
  }
  return root;
}

RuleId SchemaCompiler::RuleOf(SchemaList schemas) {
  std::erase_if(schemas, [](const SchemaRef& schema) {
    return schema.node->kind == JsonTree::Kind::kTrue ||
           (schema.node->is_object() && schema.node->items.empty());
  });
  if (schemas.empty()) return json_.AnyValue();
  std::vector<const JsonTree*> key;
  for (const SchemaRef& schema : schemas) key.push_back(schema.node);
  std::sort(key.begin(), key.end());
  key.erase(std::unique(key.begin(), key.end()), key.end());
  const auto known = rules_.find(key);
  if (known != rules_.end()) return known->second;
  const RuleId rule = builder_.DeclareRule();
  rules_.emplace(std::move(key), rule);
  pending_.emplace_back(rule, std::move(schemas));
  return rule;
}

absl::StatusOr<NodeId> SchemaCompiler::EmitShapes(const std::vector<Shape>& shapes) {
  std::vector<NodeId> targets;
  std::vector<const JsonTree*> values;  // of all shapes: they share their beginnings
  for (const Shape& shape : shapes) {
    if (shape.values) {
      if (!builder_.Step(static_cast<int64_t>(shape.values->size() / 4))) break;
      values.insert(values.end(), shape.values->begin(), shape.values->end());
      continue;
    }
    ANNULUS_ASSIGN_OR_RETURN(const NodeId node, EmitShape(shape));
    targets.push_back(node);
  }
  if (!values.empty()) targets.push_back(EmitValues(values));
  return builder_.Split(targets);
}

NodeId SchemaCompiler::EmitValues(const std::vector<const JsonTree*>& values) {
  std::vector<NodeId> targets;
  std::vector<std::string> scalars;
  for (const JsonTree* value : values) {
    const size_t bytes = value->text.size();
    if (!builder_.Step(StepsFor(bytes)) || !builder_.Take(64 + 2 * bytes)) return kReturnNode;
    if (value->is_array() || value->is_object() || !json_.form().escapes) {
      targets.push_back(json_.Constant(*value, kReturnNode));
    } else {
      scalars.push_back(CompactJson(*value, /*sorted=*/false));
    }
  }
  if (!scalars.empty()) targets.push_back(builder_.OneOf(std::move(scalars), kReturnNode));
  return builder_.Split(targets);
}

absl::StatusOr<NodeId> SchemaCompiler::EmitShape(const Shape& shape) {
  std::vector<NodeId> targets;
  std::vector<std::string> words;
  if ((shape.types & kNullType) != 0) words.push_back("null");
  if ((shape.types & kBooleanType) != 0) {
    words.push_back("true");
    words.push_back("false");
  }
  if (!words.empty()) targets.push_back(builder_.OneOf(std::move(words), kReturnNode));
  if ((shape.types & (kIntegerType | kFractionType)) != 0) {
    const bool whole = (shape.types & kFractionType) == 0;
    DecimalRange range = shape.numbers;
    range.whole_numbers = whole;
    targets.push_back(range.bounded() ? EmitDecimalRange(range, kReturnNode, &builder_)
                                      : json_.Number(whole, kReturnNode));
  }
  if ((shape.types & kStringType) != 0) {
    ANNULUS_ASSIGN_OR_RETURN(const NodeId node, EmitString(shape));
    targets.push_back(node);
  }
  if ((shape.types & kArrayType) != 0) {
    ANNULUS_ASSIGN_OR_RETURN(const NodeId node, EmitArray(shape));
    targets.push_back(node);
  }
  if ((shape.types & kObjectType) != 0) {
    ANNULUS_ASSIGN_OR_RETURN(const NodeId node, EmitObject(shape));
    targets.push_back(node);
  }
  return builder_.Split(targets);
}

absl::StatusOr<NodeId> SchemaCompiler::EmitString(const Shape& shape) {
  if (shape.patterns.empty()) {
    return json_.String(shape.min_length, shape.max_length, kReturnNode);
  }
  const bool escapes = json_.form().escapes;
  if (json_.form().quote_is_text) {
    return SchemaError(shape.at,
                       "limits a text by pattern or format, which is not supported for a "
                       "vocabulary without a token for the marks of texts");
  }
  std::vector<RegexTree> patterns;
  size_t bytes = 0;
  for (const absl::string_view pattern : shape.patterns) {
    constexpr size_t kPatternBytesPerStep = 8;
    builder_.Step(static_cast<int64_t>(1 + pattern.size() / kPatternBytesPerStep));
    if (!builder_.Take(pattern.size() * kRegexTreeBytes)) return builder_.status();
    bytes += pattern.size() * kRegexTreeBytes;
    auto tree = ParseRegex(pattern, RegexMatch::kAnywhere);
    if (!tree.ok()) return SchemaError(shape.at, absl::StrCat("has ", tree.status().message()));
    patterns.push_back(*std::move(tree));
  }
  const NodeId end = json_.Quote(kReturnNode);
  const NodeId inside = EmitPatterns(patterns, shape.min_length, shape.max_length,
                                     escapes ? Spelling::kJson : Spelling::kPlain, end, &builder_);
  builder_.Give(bytes);
  return json_.Quote(inside);
}

absl::StatusOr<NodeId> SchemaCompiler::EmitArray(const Shape& shape) {
  size_t fixed = 0;
  for (const ArrayPart& part : shape.arrays) fixed = std::max(fixed, part.prefix.size());
  // The schemas of element `i`, or of all after the fixed ones.
  const auto rule_of = [&](size_t i) {
    SchemaList schemas;
    for (const ArrayPart& part : shape.arrays) {
      if (i < part.prefix.size()) {
        schemas.push_back(part.prefix[i]);
      } else if (part.items) {
        schemas.push_back(*part.items);
      }
    }
    return RuleOf(std::move(schemas));
  };
  std::vector<RuleId> prefix;
  const auto steps = static_cast<int64_t>(1 + shape.arrays.size());
  for (size_t i = 0; i < fixed && builder_.Step(steps); ++i) prefix.push_back(rule_of(i));
  if (!builder_.Step(steps)) return builder_.status();
  return json_.Array(prefix, rule_of(fixed), shape.min_items, shape.max_items, kReturnNode);
}

absl::StatusOr<NodeId> SchemaCompiler::EmitObject(const Shape& shape) {
  std::vector<absl::string_view> names;
  absl::flat_hash_set<absl::string_view> known;
  const auto add = [&](absl::string_view name) {
    if (builder_.Step() && known.insert(name).second) names.push_back(name);
  };
  std::vector<absl::string_view> prefixes{""};
  for (const ObjectPart& part : shape.objects) {
    if (part.properties.node != nullptr) {
      for (const std::string& name : part.properties.node->members->keys) add(name);
    }
    for (const auto& [prefix, schema] : part.prefixes) prefixes.push_back(prefix);
  }
  for (const absl::string_view name : shape.required) add(name);
  const absl::flat_hash_set<absl::string_view> required(shape.required.begin(),
                                                        shape.required.end());
  std::vector<EmittedMember> members;
  for (const absl::string_view name : names) {
    if (!builder_.Step(static_cast<int64_t>(1 + shape.objects.size() + prefixes.size()))) break;
    members.push_back({name, RuleOf(SchemasOfMember(shape, name)), required.contains(name)});
  }
  std::sort(prefixes.begin(), prefixes.end());
  prefixes.erase(std::unique(prefixes.begin(), prefixes.end()), prefixes.end());
  std::vector<EmittedNames> others;
  for (const absl::string_view prefix : prefixes) {
    if (!builder_.Step(static_cast<int64_t>(1 + shape.objects.size() + prefixes.size()))) break;
    const SchemaList schemas = SchemasOfOthers(shape, prefix);
    const bool allowed = std::none_of(schemas.begin(), schemas.end(), [](const SchemaRef& schema) {
      return schema.node->kind == JsonTree::Kind::kFalse;
    });
    others.push_back({prefix, allowed ? RuleOf(schemas) : 0, allowed});
  }
  return json_.Object(members, std::move(others), kReturnNode);
}

}  // namespace annulus
