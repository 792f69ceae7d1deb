#ifndef ANNULUS_ENGINE_REQUEST_AUTO_POLICY_H_
#define ANNULUS_ENGINE_REQUEST_AUTO_POLICY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/api/result.h"
#include "engine/api/ring.h"
#include "engine/scheduler/cost_model.h"
#include "engine/sparse/policy.h"

namespace annulus {

// What `auto` needs to know of an engine; the same for all requests.
struct AutoSetting {
  bool scores = true;   // CanScoreBlocks; if false, only dense keeps a contract
  bool gates = false;   // whether there are gates for `learned`
  double flops = 50e9;  // attention FLOP per second and rank: measured, or ExchangeRates' guess
  int layers = 1;       // number of layers without a window
};

// Chooses a policy for each request that asks for `auto`: of those that keep the coverage contract,
// the one with the lowest predicted time, added up over all ranks. Rows whose keys and values are
// cached, densely or under the same policy, cost nothing.
//
// Costs are guessed first (AutoForm) and then measured. Each complete request gives the time of
// attending and of estimating a causal pair, and the density that its contract needed, which is
// used for prompts of about its length. Used by the coordinator's thread alone.
class AutoPolicy {
 public:
  AutoPolicy(const AutoSetting& setting, const AttentionGeometry& geometry);

  struct Choice {
    AttentionPolicy policy;
    std::string reason;  // for people, with the predicted seconds of all candidates
  };
  // Chooses for a prompt of `prompt` tokens. `asked`: the automatic policy that the request names,
  // with its block and coverage. cached(policy): how many tokens at the prompt's beginning need not
  // be computed under the policy. Dense if the prompt is shorter than 32 blocks.
  using Cached = absl::FunctionRef<int64_t(const AttentionPolicy& policy)>;
  Choice Choose(const AttentionPolicy& asked, int64_t prompt, Cached cached) const;

  // Learns from the report of a request that computed rows [cached, prompt) under `policy`. Ignores
  // requests that computed fewer than 512 rows.
  void Learn(const AttentionPolicy& policy, int64_t prompt, int64_t cached,
             const AttentionReport& report);

 private:
  // A policy other than dense that `auto` may choose: see AutoForm.
  struct Candidate {
    AttentionPolicy policy;
    std::string label;
    double estimate_seconds = 0;      // to estimate a causal pair, in all layers
    double density = 0;               // guess, until one is measured
    std::map<int, double> densities;  // measured, by the bit width of the prompt's length
  };
  // Predicted seconds to compute so many causal pairs of the prompt.
  double Expected(const Candidate& candidate, int64_t prompt, double pairs) const;

  double pair_seconds_ = 0;  // to attend a pair, in all layers
  std::vector<Candidate> candidates_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_REQUEST_AUTO_POLICY_H_
