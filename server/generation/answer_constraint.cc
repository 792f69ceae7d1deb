#include "server/generation/answer_constraint.h"

#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "engine/api/field_errors.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/request_builder.h"

namespace annulus::server {
namespace {

absl::Status CheckBudget(const v1::GenerationSpec& spec, const AnswerReading& reading) {
  if (!spec.has_reasoning_budget()) return absl::OkStatus();
  if (spec.reasoning_budget() < 0) {
    return FieldError("spec.reasoning_budget",
                      absl::StrCat(spec.reasoning_budget(), " is not allowed: 0 or more"));
  }
  if (reading.reasoning && !reading.reasoning_end.empty()) return absl::OkStatus();
  return FieldError("spec.reasoning_budget",
                    "this server does not know how answers to this input think: send messages to a "
                    "model of a known family (see --tool-format and --reasoning), or leave it out");
}

absl::string_view OutputField(const v1::OutputConstraint& output) {
  switch (output.form_case()) {
    case v1::OutputConstraint::kJsonSchema:
      return "spec.output.json_schema";
    case v1::OutputConstraint::kRegex:
      return "spec.output.regex";
    case v1::OutputConstraint::kChoices:
      return "spec.output.choices";
    default:
      return "spec.output";
  }
}

absl::StatusOr<OutputConstraint> ReadOutput(const v1::OutputConstraint& output) {
  switch (output.form_case()) {
    case v1::OutputConstraint::kJsonSchema:
      return OutputConstraint{OutputConstraint::Kind::kJsonSchema, output.json_schema(), {}};
    case v1::OutputConstraint::kJsonObject:
      return OutputConstraint{OutputConstraint::Kind::kJsonObject, "", {}};
    case v1::OutputConstraint::kRegex:
      return OutputConstraint{OutputConstraint::Kind::kRegex, output.regex(), {}};
    case v1::OutputConstraint::kChoices: {
      const auto& texts = output.choices().texts();
      return OutputConstraint{OutputConstraint::Kind::kChoices, "", {texts.begin(), texts.end()}};
    }
    default:
      return FieldError("spec.output",
                        "it is empty; send one of json_schema, json_object, regex and choices");
  }
}

// What the answer must look like; nothing if it may be anything. `reading`: of the prompt, with the
// request's choice of tools.
absl::StatusOr<std::optional<OutputConstraint>> ConstraintOf(const v1::GenerationSpec& spec,
                                                             const ModelInfo& model,
                                                             const AnswerReading& reading) {
  ANNULUS_RETURN_IF_ERROR(CheckBudget(spec, reading));
  std::optional<OutputConstraint> constraint;
  if (spec.has_output()) {
    ANNULUS_ASSIGN_OR_RETURN(constraint, ReadOutput(spec.output()));
  }
  if (reading.format == nullptr) return constraint;
  AnswerShape shape{.format = reading.format,
                    .in_reasoning = reading.reasoning && reading.in_reasoning,
                    .may_think = reading.may_think};
  if (spec.has_reasoning_budget()) {
    shape.reasoning_budget = spec.reasoning_budget();
    shape.reasoning_end = reading.reasoning_end;
  }
  const bool required = spec.tool_choice().mode() == v1::TOOL_CHOICE_MODE_REQUIRED;
  if (reading.tools != nullptr) {
    shape.calls = required ? AnswerShape::Calls::kRequired : AnswerShape::Calls::kAllowed;
    shape.tools = spec.messages().tools();
    shape.name = spec.tool_choice().name();
  }
  const bool binds =
      required || spec.has_reasoning_budget() || (reading.tools != nullptr && reading.strict_tools);
  // Calls that nobody requires come as they may where a constraint is not possible.
  const bool possible = !spec.sampling().ignore_eos() && !model.end_of_text_ids.empty();
  if (!constraint.has_value() && !binds && (reading.tools == nullptr || !possible)) {
    return constraint;
  }
  if (!constraint.has_value() || required) {
    constraint = OutputConstraint{.kind = OutputConstraint::Kind::kAnyText};
  }
  constraint->answer = std::move(shape);
  return constraint;
}

}  // namespace

absl::Status ReadToolChoice(const v1::GenerationSpec& spec, AnswerReading& reading) {
  const v1::ToolChoice& choice = spec.tool_choice();
  switch (choice.mode()) {
    case v1::TOOL_CHOICE_MODE_UNSPECIFIED:
    case v1::TOOL_CHOICE_MODE_AUTO:
      break;
    case v1::TOOL_CHOICE_MODE_NONE:
      reading.tools = nullptr;
      reading.strict_tools = false;
      break;
    case v1::TOOL_CHOICE_MODE_REQUIRED:
      if (reading.tools == nullptr) {
        return FieldError("spec.tool_choice.mode",
                          reading.format == nullptr
                              ? "this server does not know how this model writes calls, so it "
                                "cannot require one; see --tool-format"
                              : "a call is required, but messages.tools has no tool");
      }
      break;
    default:
      return FieldError("spec.tool_choice.mode",
                        UnknownValue(choice.mode(), v1::ToolChoiceMode_descriptor()));
  }
  if (!choice.name().empty() && choice.mode() != v1::TOOL_CHOICE_MODE_REQUIRED) {
    return FieldError("spec.tool_choice.name",
                      "a name needs TOOL_CHOICE_MODE_REQUIRED; leave it out");
  }
  if (reading.strict_tools && reading.format == nullptr) {
    return FieldError("spec.messages.tools",
                      "this server does not know how this model writes calls, so none can be "
                      "strict; see --tool-format");
  }
  reading.one_call = spec.has_parallel_tool_calls() && !spec.parallel_tool_calls();
  std::random_device random;
  reading.id_salt = uint64_t{random()} << 32 | random();
  return absl::OkStatus();
}

absl::StatusOr<CompiledOutput> CompileOutput(const v1::GenerationSpec& spec, const Engine& engine,
                                             const RequestSpec& built, CallMemory& memory,
                                             const CancelFlag& cancel) {
  // No smaller than the constraint's own texts.
  const size_t held =
      KeptBytes(built) + spec.output().SpaceUsedLong() + spec.messages().tools().size();
  ANNULUS_RETURN_IF_ERROR(memory.Hold(CallMemory::kWork, held));
  WorkGrant grant(memory, held);
  ANNULUS_ASSIGN_OR_RETURN(const auto constraint,
                           ConstraintOf(spec, engine.model(), built.reading));
  if (!constraint.has_value()) return CompiledOutput{};
  absl::StatusOr<CompiledOutput> compiled =
      engine.CompileOutput(built.tenant, *constraint, cancel, grant);
  if (absl::IsNotFound(compiled.status())) {
    return FieldError("spec.tool_choice.name", compiled.status().message());
  }
  if (!absl::IsInvalidArgument(compiled.status())) return compiled;
  const bool required = spec.tool_choice().mode() == v1::TOOL_CHOICE_MODE_REQUIRED;
  const bool binds = required || built.reading.strict_tools || spec.has_reasoning_budget();
  if (!spec.has_output() && !binds) return CompiledOutput{};
  const bool of_tools = compiled.status().GetPayload(kFieldPayload) == absl::Cord("messages.tools");
  return FieldError(of_tools || required || !spec.has_output() ? "spec.messages.tools"
                                                               : OutputField(spec.output()),
                    compiled.status().message());
}

}  // namespace annulus::server
