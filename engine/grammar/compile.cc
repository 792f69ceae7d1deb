#include "engine/grammar/compile.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/grammar/finish_machine.h"
#include "engine/grammar/json_emitter.h"
#include "engine/grammar/json_tree.h"
#include "engine/grammar/machine_builder.h"
#include "engine/grammar/regex_tree.h"
#include "engine/grammar/schema_compiler.h"
#include "engine/text/stages/regex.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// The emitted machine, or the first error.
absl::StatusOr<Machine> Emitted(const absl::StatusOr<NodeId>& start, MachineBuilder* builder) {
  ANNULUS_RETURN_IF_ERROR(start.status());
  ANNULUS_RETURN_IF_ERROR(builder->status());
  return builder->Take(*start);
}

absl::StatusOr<Machine> EmitSchema(absl::string_view text, WorkMeter* work, MemoryGrant* memory) {
  size_t bytes = 0;
  ANNULUS_ASSIGN_OR_RETURN(const JsonTree document,
                           ParseOrderedJson(text, "schema", work, memory, &bytes));
  PartOfGrant rest(*memory, bytes);
  MachineBuilder builder(work, &rest);
  return Emitted(SchemaCompiler(&document, work, &builder).Compile(), &builder);
}

absl::StatusOr<NodeId> EmitPattern(absl::string_view text, WorkMeter* work,
                                   MachineBuilder* builder) {
  if (text.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the regular expression has ", text.size(),
                                                   " bytes; allowed: ", kMaxPatternBytes));
  }
  ANNULUS_RETURN_IF_ERROR(work->Step(StepsFor(text.size())));
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
    if (!builder->Step(StepsFor(choices[i].size()))) return builder->status();
    if (choices[i].empty() || FirstInvalidUtf8(choices[i])) {
      return absl::InvalidArgumentError(absl::StrCat("choice ", i, " is ",
                                                     choices[i].empty() ? "empty" : "not UTF-8",
                                                     "; allowed: UTF-8 text of at least one byte"));
    }
  }
  return builder->OneOf(choices, kReturnNode);
}

absl::StatusOr<Machine> Emit(const OutputConstraint& constraint, WorkMeter* work,
                             MemoryGrant* memory) {
  if (constraint.kind == OutputConstraint::Kind::kJsonSchema) {
    return EmitSchema(constraint.text, work, memory);
  }
  MachineBuilder builder(work, memory);
  switch (constraint.kind) {
    case OutputConstraint::Kind::kRegex:
      return Emitted(EmitPattern(constraint.text, work, &builder), &builder);
    case OutputConstraint::Kind::kChoices:
      return Emitted(EmitChoices(constraint.choices, &builder), &builder);
    default:
      return Emitted(JsonEmitter(&builder).AnyObject(kReturnNode), &builder);
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Machine>> CompileConstraint(const OutputConstraint& constraint,
                                                                 const std::bitset<256>& bytes,
                                                                 WorkMeter* work,
                                                                 MemoryGrant* memory) {
  size_t given = constraint.text.size();
  for (const std::string& choice : constraint.choices) given += choice.size();
  if (given > kMaxSchemaBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the output constraint has ", given, " bytes; allowed: ", kMaxSchemaBytes));
  }
  ANNULUS_ASSIGN_OR_RETURN(Machine emitted, Emit(constraint, work, memory));
  auto machine = std::make_shared<Machine>(std::move(emitted));
  ANNULUS_RETURN_IF_ERROR(FinishMachine(bytes, work, machine.get()));
  return machine;
}

size_t MachineBytes(const Machine& machine) {
  return sizeof(machine) + machine.nodes.capacity() * sizeof(Node) +
         machine.edges.capacity() * sizeof(ByteEdge) +
         (machine.targets.capacity() + machine.rules.capacity()) * sizeof(NodeId);
}

}  // namespace annulus
