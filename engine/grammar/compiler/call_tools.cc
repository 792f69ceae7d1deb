#include "engine/grammar/compiler/call_tools.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "engine/grammar/compiler/json_emitter.h"
#include "engine/grammar/compiler/schema_compiler.h"
#include "engine/grammar/compiler/schema_shape.h"
#include "engine/text/answer/answer_format.h"
#include "engine/text/answer/answer_tools.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

bool IsText(const JsonTree* value, absl::string_view text) {
  return value != nullptr && value->is_string() && value->text == text;
}

class ToolReader {
 public:
  // `texts`: of the definitions, for tagged families. `form`: of arguments that are objects.
  ToolReader(const AnswerShape& shape, const AnswerTools* texts, const JsonForm& form,
             CompileMeter* meter, MachineBuilder* builder)
      : shape_(shape), texts_(texts), meter_(*meter), builder_(*builder), json_(builder, form) {}

  absl::StatusOr<CallTool> Read(const JsonTree& definition) {
    CallTool tool;
    const std::string& name = definition.Find("name")->text;
    ANNULUS_RETURN_IF_ERROR(meter_.Take(3 * sizeof(CallTool) + name.size()));
    tool.name = name;
    const JsonTree* const strict = definition.Find("strict");
    tool.strict = strict != nullptr && strict->kind == JsonTree::Kind::kTrue;
    const bool binds = tool.strict || shape_.calls == AnswerShape::Calls::kRequired;
    const JsonTree* const schema = definition.Find("parameters");
    if (shape_.format->family().tagged) {
      ANNULUS_RETURN_IF_ERROR(ReadParameters(schema, binds, &tool));
    } else if (schema == nullptr || schema->kind == JsonTree::Kind::kNull) {
      tool.arguments = Rule(builder_.Byte('{', json_.WhiteSpace(builder_.Byte('}', kReturnNode))));
    } else {
      SchemaCompiler compiler(schema, &meter_, &builder_, json_.form());
      const absl::StatusOr<RuleId> rule = compiler.CompileObject();
      ANNULUS_ASSIGN_OR_RETURN(const bool kept, Supported(tool.name, "", binds, rule.status()));
      tool.arguments = kept ? *rule : AnyObject();
    }
    return tool;
  }

 private:
  RuleId Rule(NodeId start) {
    const RuleId rule = builder_.DeclareRule();
    builder_.DefineRule(rule, start);
    return rule;
  }
  RuleId AnyObject() {
    if (!any_object_) any_object_ = Rule(json_.AnyObject(kReturnNode));
    return *any_object_;
  }

  // Whether a schema is supported, by the status of reading it; false only if it does not bind.
  absl::StatusOr<bool> Supported(absl::string_view tool, absl::string_view parameter, bool binds,
                                 const absl::Status& status) {
    ANNULUS_RETURN_IF_ERROR(builder_.status());
    if (status.ok()) return true;
    if (!absl::IsInvalidArgument(status)) return status;
    if (!binds) return false;
    return FieldError(
        absl::StatusCode::kInvalidArgument, "messages.tools",
        absl::StrCat("the parameters of ", JsonQuoted(tool), parameter, ": ", status.message()));
  }

  absl::Status ReadParameters(const JsonTree* schema, bool binds, CallTool* tool) {
    if (schema == nullptr || schema->kind == JsonTree::Kind::kNull) return absl::OkStatus();
    ANNULUS_ASSIGN_OR_RETURN(const bool supported,
                             Supported(tool->name, "", binds, CheckTagged(*schema)));
    tool->any_pairs = !supported || AllowsAnyPairs(*schema);
    if (tool->any_pairs) return absl::OkStatus();
    const JsonTree* const properties = schema->Find("properties");
    if (properties == nullptr) return absl::OkStatus();
    const JsonTree* const names = schema->Find("required");
    std::vector<bool> required(properties->items.size());
    for (size_t i = 0; names != nullptr && i < names->items.size(); ++i) {
      if (!names->items[i].is_string()) continue;
      const auto place = properties->members->places.find(names->items[i].text);
      if (place != properties->members->places.end()) required[place->second] = true;
    }
    for (size_t i = 0; i < properties->items.size(); ++i) {
      const std::string& name = properties->members->keys[i];
      ANNULUS_RETURN_IF_ERROR(meter_.Step());
      ANNULUS_RETURN_IF_ERROR(meter_.Take(3 * sizeof(CallParameter) + name.size()));
      CallParameter parameter{.name = name};
      parameter.required = required[i];
      const SchemaRef property{&properties->items[i], schema};
      const std::string place = absl::StrCat(".", parameter.name);
      parameter.is_text = texts_->IsText(tool->name, parameter.name);
      if (parameter.is_text) {
        auto choices = ReadChoices(*schema, property);
        ANNULUS_ASSIGN_OR_RETURN(const bool kept,
                                 Supported(tool->name, place, binds, choices.status()));
        if (kept) parameter.choices = *std::move(choices);
      } else {
        SchemaCompiler compiler(schema, &meter_, &builder_);
        const absl::StatusOr<RuleId> rule = compiler.CompileAll({property});
        ANNULUS_ASSIGN_OR_RETURN(const bool kept,
                                 Supported(tool->name, place, binds, rule.status()));
        parameter.value = kept ? *rule : json_.AnyValue();
      }
      tool->parameters.push_back(std::move(parameter));
    }
    return absl::OkStatus();
  }

  // Whether what a schema says of an object as a whole is all read by ReadParameters.
  absl::Status CheckTagged(const JsonTree& schema) {
    if (schema.kind == JsonTree::Kind::kTrue) return absl::OkStatus();
    const auto at = [&schema](const JsonTree* node) { return SchemaRef{node, &schema}; };
    if (!schema.is_object()) return SchemaError(at(&schema), "is not a schema of objects");
    ANNULUS_RETURN_IF_ERROR(meter_.Step(static_cast<int64_t>(schema.items.size())));
    for (size_t i = 0; i < schema.items.size(); ++i) {
      const std::string& key = schema.members->keys[i];
      const bool read = key == "type" || key == "properties" || key == "required" ||
                        key == "additionalProperties" || IsIgnoredKeyword(key);
      if (!read) {
        return SchemaError(at(&schema.items[i]),
                           "is not supported where arguments stand between tags; allowed: type, "
                           "properties, required, additionalProperties, $defs");
      }
    }
    const JsonTree* const type = schema.Find("type");
    if (type != nullptr && !IsText(type, "object")) {
      return SchemaError(at(type), "is not \"object\"");
    }
    const JsonTree* const properties = schema.Find("properties");
    if (properties != nullptr && !properties->is_object()) {
      return SchemaError(at(properties), "is not an object of schemas");
    }
    const bool none = properties == nullptr || properties->items.empty();
    const JsonTree* const others = schema.Find("additionalProperties");
    const bool plain =
        others == nullptr || others->is_boolean() || (others->is_object() && others->items.empty());
    if (none && !plain) {
      return SchemaError(at(others),
                         "is not supported where arguments stand between tags, but as a boolean");
    }
    const JsonTree* const required = schema.Find("required");
    if (required == nullptr) return absl::OkStatus();
    ANNULUS_RETURN_IF_ERROR(meter_.Step(static_cast<int64_t>(required->items.size())));
    for (const JsonTree& name : required->items) {
      if (name.is_string() && !none && properties->Find(name.text) != nullptr) continue;
      return SchemaError(at(required), "names what is not among the properties");
    }
    return absl::OkStatus();
  }

  // Of a schema that CheckTagged is content with: whether it says nothing of the members.
  static bool AllowsAnyPairs(const JsonTree& schema) {
    const JsonTree* const properties = schema.Find("properties");
    if (properties != nullptr && !properties->items.empty()) return false;
    const JsonTree* const others = schema.Find("additionalProperties");
    return others == nullptr ? properties == nullptr : others->kind != JsonTree::Kind::kFalse;
  }

  // The texts that a parameter may be; none: any text.
  absl::StatusOr<std::vector<std::string>> ReadChoices(const JsonTree& document,
                                                       const SchemaRef& property) {
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<Shape> shapes,
                             SchemaReader(&document, &meter_).Read({property}));
    std::vector<std::string> choices;
    bool any = false;
    for (const Shape& shape : shapes) {
      if ((shape.types & kStringType) == 0) continue;
      if (!shape.values &&
          (!shape.patterns.empty() || shape.min_length > 0 || shape.max_length != kUnbounded)) {
        return SchemaError(shape.at,
                           "limits a text that stands between tags by pattern, format, minLength "
                           "or maxLength; allowed: enum, const");
      }
      any = any || !shape.values;
      for (const JsonTree* value : shape.values.value_or(std::vector<const JsonTree*>())) {
        if (!value->is_string() || !Writable(value->text)) continue;
        ANNULUS_RETURN_IF_ERROR(meter_.Step(StepsFor(value->text.size())));
        // One copy here, and one that OneOf takes; vectors double.
        ANNULUS_RETURN_IF_ERROR(meter_.Take(4 * sizeof(std::string) + 2 * value->text.size()));
        choices.push_back(value->text);
      }
    }
    if (any) return std::vector<std::string>();
    if (choices.empty()) return SchemaError(property, "allows no text");
    return choices;
  }

  // Whether the parser reads a text that stands between tags as it is.
  bool Writable(absl::string_view text) const {
    const AnswerFamily& family = shape_.format->family();
    if (family.trims && (absl::StartsWith(text, "\n") || absl::EndsWith(text, "\n"))) return false;
    for (size_t i = 0; i < family.states.size(); ++i) {
      const AnswerFormat::State& state = shape_.format->state(static_cast<int>(i));
      if (state.part != AnswerPart::kValue) continue;
      for (const AnswerFormat::Exit& exit : state.exits) {
        if (!exit.token && absl::StrContains(text, exit.mark)) return false;
      }
    }
    return true;
  }

  const AnswerShape& shape_;
  const AnswerTools* const texts_;
  CompileMeter& meter_;
  MachineBuilder& builder_;
  JsonEmitter json_;
  std::optional<RuleId> any_object_;
};

// How the family writes the arguments.
JsonForm FormOf(const AnswerFormat& format, const TokenTrie* tokens) {
  for (size_t i = 0; i < format.family().states.size(); ++i) {
    const AnswerFormat::State& state = format.state(static_cast<int>(i));
    if (state.part != AnswerPart::kMarked) continue;
    const AnswerFormat::Exit& mark = AnswerFormat::MarkOfTexts(state);
    JsonForm form{.quote = mark.mark, .escapes = false, .bare_names = true};
    form.quote_is_text = !mark.token;
    if (mark.token) form.quote = tokens == nullptr ? "" : tokens->MarkOf(mark.mark);
    return form;
  }
  return {};
}

}  // namespace

absl::StatusOr<std::vector<CallTool>> ReadCallTools(const JsonTree& definitions,
                                                    const AnswerShape& shape,
                                                    const TokenTrie* tokens, CompileMeter* meter,
                                                    MachineBuilder* builder) {
  std::shared_ptr<const AnswerTools> texts;
  if (shape.format->family().tagged) {
    ANNULUS_RETURN_IF_ERROR(meter->Step(StepsFor(shape.tools.size())));
    auto parsed = AnswerTools::Parse(shape.tools);
    if (!parsed.ok()) {
      return FieldError(absl::StatusCode::kInvalidArgument, "messages.tools",
                        parsed.status().message());
    }
    texts = *std::move(parsed);
  }
  ToolReader reader(shape, texts.get(), FormOf(*shape.format, tokens), meter, builder);
  std::vector<CallTool> tools;
  for (const JsonTree& each : definitions.items) {
    const JsonTree* const inner = each.Find("function");
    const JsonTree& definition = inner != nullptr && inner->is_object() ? *inner : each;
    const JsonTree* const name = definition.Find("name");
    if (name == nullptr || !name->is_string()) {
      return FieldError(absl::StatusCode::kInvalidArgument, "messages.tools",
                        "a tool has no function.name; each needs one");
    }
    if (!shape.name.empty() && name->text != shape.name) continue;
    ANNULUS_ASSIGN_OR_RETURN(CallTool tool, reader.Read(definition));
    tools.push_back(std::move(tool));
  }
  if (tools.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no tool ", JsonQuoted(shape.name)));
  }
  return tools;
}

}  // namespace annulus
