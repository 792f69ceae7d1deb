#include "engine/grammar/compiler/compile.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/grammar/compiler/answer_emitter.h"
#include "engine/grammar/compiler/call_tools.h"
#include "engine/grammar/compiler/compile_meter.h"
#include "engine/grammar/compiler/finish_machine.h"
#include "engine/grammar/compiler/json_emitter.h"
#include "engine/grammar/compiler/json_tree.h"
#include "engine/grammar/compiler/machine_builder.h"
#include "engine/grammar/compiler/regex_tree.h"
#include "engine/grammar/compiler/schema_compiler.h"
#include "engine/text/answer/answer_format.h"
#include "engine/text/answer/answer_tools.h"
#include "engine/text/stages/regex.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

absl::StatusOr<NodeId> EmitPattern(absl::string_view text, MachineBuilder* builder) {
  if (text.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the regular expression has ", text.size(),
                                                   " bytes; allowed: ", kMaxPatternBytes));
  }
  builder->Step(StepsFor(text.size()));
  if (!builder->Take(text.size() * kRegexTreeBytes)) return builder->status();
  ANNULUS_ASSIGN_OR_RETURN(const RegexTree tree, ParseRegex(text, RegexMatch::kWhole));
  return EmitRegex(tree, Spelling::kPlain, kReturnNode, builder);
}

absl::StatusOr<NodeId> EmitChoices(const std::vector<std::string>& choices,
                                   MachineBuilder* builder) {
  if (choices.empty() || choices.size() > kMaxChoices) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", choices.size(), " choices; allowed: 1 to ", kMaxChoices));
  }
  for (size_t i = 0; i < choices.size(); ++i) {
    builder->Step(StepsFor(choices[i].size()));
    if (!builder->Take(choices[i].size())) return builder->status();  // the builder's copy
    if (choices[i].empty() || FirstInvalidUtf8(choices[i])) {
      return absl::InvalidArgumentError(absl::StrCat("choice ", i, " is ",
                                                     choices[i].empty() ? "empty" : "not UTF-8",
                                                     "; allowed: UTF-8 text of at least one byte"));
    }
  }
  return builder->OneOf(choices, kReturnNode);
}

// Adds what reads a text of the wanted form. `schema`: of kJsonSchema, parsed.
absl::StatusOr<NodeId> EmitForm(const OutputConstraint& constraint, const JsonTree& schema,
                                CompileMeter* meter, MachineBuilder* builder) {
  switch (constraint.kind) {
    case OutputConstraint::Kind::kJsonSchema:
      return SchemaCompiler(&schema, meter, builder).Compile();
    case OutputConstraint::Kind::kRegex:
      return EmitPattern(constraint.text, builder);
    case OutputConstraint::Kind::kChoices:
      return EmitChoices(constraint.choices, builder);
    default:
      return JsonEmitter(builder).AnyObject(kReturnNode);
  }
}

// Adds what reads a whole answer. `tools`: shape.tools, parsed.
absl::StatusOr<NodeId> EmitAnswer(const OutputConstraint& constraint, const JsonTree& schema,
                                  const JsonTree& tools, const TokenTrie* tokens,
                                  CompileMeter* meter, MachineBuilder* builder) {
  std::optional<RuleId> form;
  if (constraint.kind != OutputConstraint::Kind::kAnyText) {
    ANNULUS_ASSIGN_OR_RETURN(const NodeId start, EmitForm(constraint, schema, meter, builder));
    form = builder->DeclareRule();
    builder->DefineRule(*form, start);
  }
  std::vector<CallTool> calls;
  if (constraint.answer->calls != AnswerShape::Calls::kNone) {
    ANNULUS_ASSIGN_OR_RETURN(calls,
                             ReadCallTools(tools, *constraint.answer, tokens, meter, builder));
  }
  return AnswerEmitter(*constraint.answer, calls, form, tokens, builder).Emit();
}

// A JSON text of the constraint; null if it has none. Adds what `memory` was asked for to *bytes.
absl::StatusOr<JsonTree> ParsePart(absl::string_view text, absl::string_view name, WorkMeter* work,
                                   MemoryGrant* memory, size_t* bytes) {
  if (name.empty()) return JsonTree();
  PartOfGrant rest(*memory, *bytes);
  size_t taken = 0;
  ANNULUS_ASSIGN_OR_RETURN(JsonTree tree, ParseOrderedJson(text, name, work, &rest, &taken));
  *bytes += taken;
  return tree;
}

absl::StatusOr<Machine> Emit(const OutputConstraint& constraint, const TokenTrie* tokens,
                             WorkMeter* work, MemoryGrant* memory) {
  const bool has_schema = constraint.kind == OutputConstraint::Kind::kJsonSchema;
  const bool has_tools = constraint.answer && constraint.answer->calls != AnswerShape::Calls::kNone;
  size_t bytes = 0;
  ANNULUS_ASSIGN_OR_RETURN(JsonTree schema, ParsePart(constraint.text, has_schema ? "schema" : "",
                                                      work, memory, &bytes));
  ANNULUS_ASSIGN_OR_RETURN(
      JsonTree tools, ParsePart(has_tools ? constraint.answer->tools : "", has_tools ? "tools" : "",
                                work, memory, &bytes));
  if (has_tools && constraint.answer->format->family().tagged) {
    bytes += AnswerTools::ParseBytes(constraint.answer->tools.size());  // by ReadCallTools
    ANNULUS_RETURN_IF_ERROR(memory->Allow(bytes));
  }
  schema.LinkParents();
  tools.LinkParents();
  PartOfGrant rest(*memory, bytes);
  CompileMeter meter(work, &rest);
  MachineBuilder builder(&meter);
  const absl::StatusOr<NodeId> start =
      constraint.answer ? EmitAnswer(constraint, schema, tools, tokens, &meter, &builder)
                        : EmitForm(constraint, schema, &meter, &builder);
  ANNULUS_RETURN_IF_ERROR(start.status());
  ANNULUS_RETURN_IF_ERROR(builder.status());
  return builder.Take(*start);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Machine>> CompileConstraint(const OutputConstraint& constraint,
                                                                 const std::bitset<256>& bytes,
                                                                 WorkMeter* work,
                                                                 MemoryGrant* memory,
                                                                 const TokenTrie* tokens) {
  size_t given = constraint.text.size();
  if (constraint.answer.has_value()) given += constraint.answer->tools.size();
  for (const std::string& choice : constraint.choices) given += choice.size();
  if (given > kMaxSchemaBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the output constraint has ", given, " bytes; allowed: ", kMaxSchemaBytes));
  }
  ANNULUS_ASSIGN_OR_RETURN(Machine emitted, Emit(constraint, tokens, work, memory));
  auto machine = std::make_shared<Machine>(std::move(emitted));
  if (constraint.answer.has_value() && constraint.answer->reasoning_budget.has_value()) {
    machine->thinking_tokens = *constraint.answer->reasoning_budget;
    machine->thinking_end = constraint.answer->reasoning_end;
  }
  ANNULUS_RETURN_IF_ERROR(FinishMachine(bytes, work, machine.get()));
  return machine;
}

}  // namespace annulus
