#include "engine/grammar/compiler/output_compiler.h"

#include "engine/grammar/compiler/compile.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::StatusOr<std::shared_ptr<const Machine>> OutputCompiler::Compile(
    const TenantId& tenant, const OutputConstraint& constraint, const CancelFlag& cancel,
    MemoryGrant& memory) {
  if (std::shared_ptr<const Machine> known = cache_.Find(tenant, constraint); known != nullptr) {
    ANNULUS_RETURN_IF_ERROR(memory.Allow(MachineBytes(*known)));
    return known;
  }
  WorkMeter work("the output constraint", kCompileSteps, cancel);
  ANNULUS_ASSIGN_OR_RETURN(
      std::shared_ptr<const Machine> machine,
      CompileConstraint(constraint, tokens_->single_bytes(), &work, &memory, tokens_.get()));
  cache_.Keep(tenant, constraint, machine);
  return machine;
}

}  // namespace annulus
