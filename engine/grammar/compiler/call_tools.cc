#include "engine/grammar/compiler/call_tools.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "engine/grammar/compiler/json_emitter.h"
#include "engine/grammar/compiler/schema_compiler.h"
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
  // `texts`: of the definitions, for tagged families.
  ToolReader(const AnswerShape& shape, const AnswerTools* texts, WorkMeter* work,
             MachineBuilder* builder)
      : shape_(shape), texts_(texts), work_(*work), builder_(*builder), json_(builder) {}

  absl::StatusOr<CallTool> Read(const JsonTree& definition) {
    CallTool tool;
    tool.name = definition.Find("name")->text;
    const JsonTree* const strict = definition.Find("strict");
    tool.strict = strict != nullptr && strict->kind == JsonTree::Kind::kTrue;
    const bool binds = tool.strict || shape_.calls == AnswerShape::Calls::kRequired;
    const JsonTree* const schema = definition.Find("parameters");
    if (shape_.format->family().tagged) {
      ANNULUS_RETURN_IF_ERROR(ReadParameters(tool.name, schema, binds, &tool.parameters));
    } else if (schema == nullptr || schema->kind == JsonTree::Kind::kNull) {
      tool.arguments = Rule(builder_.Byte('{', json_.WhiteSpace(builder_.Byte('}', kReturnNode))));
    } else {
      SchemaCompiler compiler(schema, &work_, &builder_);
      ANNULUS_ASSIGN_OR_RETURN(const auto rule,
                               Bound(tool.name, "", binds, compiler.CompileObject()));
      tool.arguments = rule.has_value() ? *rule : AnyObject();
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

  // The rule; nothing for a schema that is not supported and does not bind.
  absl::StatusOr<std::optional<RuleId>> Bound(absl::string_view tool, absl::string_view parameter,
                                              bool binds, const absl::StatusOr<RuleId>& rule) {
    ANNULUS_RETURN_IF_ERROR(builder_.status());
    if (rule.ok()) return *rule;
    if (!absl::IsInvalidArgument(rule.status())) return rule.status();
    if (!binds) return std::nullopt;
    return FieldError(absl::StatusCode::kInvalidArgument, "messages.tools",
                      absl::StrCat("the parameters of ", JsonQuoted(tool), parameter, ": ",
                                   rule.status().message()));
  }

  absl::Status ReadParameters(absl::string_view tool, const JsonTree* schema, bool binds,
                              std::vector<CallParameter>* parameters) {
    const JsonTree* const properties = schema == nullptr ? nullptr : schema->Find("properties");
    if (properties == nullptr || !properties->is_object()) return absl::OkStatus();
    const JsonTree* const required = schema->Find("required");
    for (size_t i = 0; i < properties->items.size(); ++i) {
      const JsonTree& property = properties->items[i];
      CallParameter parameter{.name = properties->members->keys[i]};
      parameter.required =
          required != nullptr &&
          std::any_of(required->items.begin(), required->items.end(),
                      [&](const JsonTree& name) { return IsText(&name, parameter.name); });
      parameter.is_text = texts_->IsText(tool, parameter.name);
      if (parameter.is_text) {
        const JsonTree* const values = property.Find("enum");
        if (values != nullptr) {
          for (const JsonTree& value : values->items) {
            if (value.is_string()) parameter.choices.push_back(value.text);
          }
        }
      } else {
        SchemaCompiler compiler(schema, &work_, &builder_);
        ANNULUS_ASSIGN_OR_RETURN(
            const auto rule,
            Bound(tool, absl::StrCat(".", parameter.name), binds,
                  compiler.CompileAll({{&property, SchemaPath("#/properties", parameter.name)}})));
        parameter.value = rule.has_value() ? *rule : json_.AnyValue();
      }
      parameters->push_back(std::move(parameter));
    }
    return absl::OkStatus();
  }

  const AnswerShape& shape_;
  const AnswerTools* const texts_;
  WorkMeter& work_;
  MachineBuilder& builder_;
  JsonEmitter json_;
  std::optional<RuleId> any_object_;
};

}  // namespace

absl::StatusOr<std::vector<CallTool>> ReadCallTools(const JsonTree& definitions,
                                                    const AnswerShape& shape, WorkMeter* work,
                                                    MachineBuilder* builder) {
  std::shared_ptr<const AnswerTools> texts;
  if (shape.format->family().tagged) {
    ANNULUS_RETURN_IF_ERROR(work->Step(StepsFor(shape.tools.size())));
    auto parsed = AnswerTools::Parse(shape.tools);
    if (!parsed.ok()) {
      return FieldError(absl::StatusCode::kInvalidArgument, "messages.tools",
                        parsed.status().message());
    }
    texts = *std::move(parsed);
  }
  ToolReader reader(shape, texts.get(), work, builder);
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
