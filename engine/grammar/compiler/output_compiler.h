#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_OUTPUT_COMPILER_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_OUTPUT_COMPILER_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/api/output.h"
#include "engine/base/memory_grant.h"
#include "engine/base/tenant_id.h"
#include "engine/base/work_meter.h"
#include "engine/grammar/compiler/machine_cache.h"
#include "engine/grammar/machine.h"
#include "engine/grammar/token_trie.h"

namespace annulus {

// Compiles the constraints of requests for one model, and keeps what it compiled for the next
// request with the same one. Thread-safe.
class OutputCompiler {
 public:
  explicit OutputCompiler(std::shared_ptr<const TokenTrie> tokens) : tokens_(std::move(tokens)) {}

  // As CompileConstraint, with the limits of a request. CANCELLED soon after `cancel` is set.
  absl::StatusOr<std::shared_ptr<const Machine>> Compile(const TenantId& tenant,
                                                         const OutputConstraint& constraint,
                                                         const CancelFlag& cancel,
                                                         MemoryGrant& memory);

 private:
  const std::shared_ptr<const TokenTrie> tokens_;
  MachineCache cache_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_OUTPUT_COMPILER_H_
