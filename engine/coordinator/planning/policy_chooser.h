#ifndef ANNULUS_ENGINE_COORDINATOR_PLANNING_POLICY_CHOOSER_H_
#define ANNULUS_ENGINE_COORDINATOR_PLANNING_POLICY_CHOOSER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "engine/coordinator/coordinator_options.h"
#include "engine/pages/prefix_reuse.h"
#include "engine/request/auto_policy.h"
#include "engine/request/request.h"
#include "engine/sparse/pattern_pairs.h"

namespace annulus {

// Chooses the attention policies in effect for a request: those that it or the engine names, and
// what `auto` stands for, which depends on what is cached and on what earlier requests cost. Used
// by the coordinator's thread alone.
class PolicyChooser {
 public:
  // The references must outlive the object.
  PolicyChooser(const CoordinatorOptions& options, PrefixReuse& prefixes);

  // The policies in effect, resolved; null: dense. `why`: set for people if `auto` is asked for.
  // Marks the cached prefixes that it compares as used.
  std::shared_ptr<const AttentionAssignment> Choose(const RequestSpec& spec, std::string& why);
  // The same for a request that is about to begin, which is told why. One that has begun before
  // keeps the policies that it had, whatever `auto` would choose now.
  std::shared_ptr<const AttentionAssignment> ChooseFor(Request& request);

  // Updates what `auto` expects of later requests. Call when a request that ran has its answer.
  void Learn(Request& request);

  // Counts the pairs that rows of a prompt of `tokens` attend. Null unless the policies, which are
  // resolved, follow patterns.
  std::shared_ptr<const PatternPairs> PairsOf(const AttentionAssignment* attention,
                                              int64_t tokens) const;

 private:
  const CoordinatorOptions& options_;
  PrefixReuse& prefixes_;
  AutoPolicy automatic_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_PLANNING_POLICY_CHOOSER_H_
