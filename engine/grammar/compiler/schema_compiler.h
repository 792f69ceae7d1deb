#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_SCHEMA_COMPILER_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_SCHEMA_COMPILER_H_

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/grammar/compiler/json_emitter.h"
#include "engine/grammar/compiler/machine_builder.h"
#include "engine/grammar/compiler/schema_shape.h"

namespace annulus {

// Turns schemas into rules of a machine, one for each set of schemas that some value must satisfy
// together.
class SchemaCompiler {
 public:
  // All must outlive the compiler.
  SchemaCompiler(const JsonTree* document, CompileMeter* meter, MachineBuilder* builder,
                 JsonForm form = {});

  // Adds rules for the whole document; returns where a value begins. Errors of SchemaReader.
  absl::StatusOr<NodeId> Compile();
  // The same, for values that are objects.
  absl::StatusOr<RuleId> CompileObject();
  // The rule that reads a value which satisfies all of `schemas`, which are parts of the document
  // or have no references.
  absl::StatusOr<RuleId> CompileAll(SchemaList schemas);

 private:
  // The rule that reads a value which satisfies all of `schemas`; defined later.
  RuleId RuleOf(SchemaList schemas);

  absl::StatusOr<NodeId> EmitShapes(const std::vector<Shape>& shapes);
  absl::StatusOr<NodeId> EmitShape(const Shape& shape);
  NodeId EmitValues(const std::vector<const JsonTree*>& values);
  absl::StatusOr<NodeId> EmitString(const Shape& shape);
  absl::StatusOr<NodeId> EmitArray(const Shape& shape);
  absl::StatusOr<NodeId> EmitObject(const Shape& shape);

  const JsonTree& document_;
  MachineBuilder& builder_;
  SchemaReader reader_;
  JsonEmitter json_;
  std::map<std::vector<const JsonTree*>, RuleId> rules_;
  std::vector<std::pair<RuleId, SchemaList>> pending_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_SCHEMA_COMPILER_H_
