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

// What stays the same for all requests of an engine.
struct AutoSetting {
  bool scores = true;   // the kernels score blocks; if not, only dense keeps a contract
  bool gates = false;   // there are gates for `learned`
  double flops = 50e9;  // of attention, per second and rank: measured, or ExchangeRates' guess
  int layers = 1;       // without a window
};

// Chooses a policy for each request that asks for "auto": of those that keep the contract, the one
// with the least expected seconds, added up over all ranks. The cost of a policy is first guessed,
// then measured: each request that ends gives the seconds of attending and estimating, and the
// density that its contract needed, for prompts of about its length. Rows whose keys and values are
// cached, under the same policy or densely, cost nothing. Used by the coordinator's thread alone.
class AutoPolicy {
 public:
  AutoPolicy(const AutoSetting& setting, const AttentionGeometry& geometry);

  struct Choice {
    AttentionPolicy policy;
    std::string reason;  // for people, with the seconds that were expected
  };
  // Chooses for a prompt of `prompt` tokens; `asked` is automatic. cached(policy): how many
  // tokens of its beginning need not be computed under the policy.
  using Cached = absl::FunctionRef<int64_t(const AttentionPolicy& policy)>;
  Choice Choose(const AttentionPolicy& asked, int64_t prompt, Cached cached) const;

  // Learns from the report of a request that computed rows [cached, prompt) under `policy`.
  void Learn(const AttentionPolicy& policy, int64_t prompt, int64_t cached,
             const AttentionReport& report);

 private:
  // A candidate other than dense: a form of a policy (AutoForm).
  struct Candidate {
    AttentionPolicy policy;
    std::string label;
    double estimate_seconds = 0;      // for each causal pair
    double density = 0;               // where nothing is known yet
    std::map<int, double> densities;  // [log2 of the prompt]
  };
  double Expected(const Candidate& candidate, int64_t prompt, double pairs) const;

  double pair_seconds_ = 0;  // of attending, for each pair
  std::vector<Candidate> candidates_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_REQUEST_AUTO_POLICY_H_
