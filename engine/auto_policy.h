#ifndef ANNULUS_ENGINE_AUTO_POLICY_H_
#define ANNULUS_ENGINE_AUTO_POLICY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/api/result.h"
#include "engine/api/ring.h"
#include "engine/sparse/policy.h"

namespace annulus {

// What stays the same for all requests of an engine.
struct AutoSetting {
  bool scores = true;   // the kernels score blocks; without, only dense keeps a contract
  bool gates = false;   // there are gates for `learned`
  double flops = 50e9;  // of attention, per second and rank: measured, or ExchangeRates' guess
  int layers = 1;       // without a window
  int heads = 1;
  int head_dim = 64;
  int page_tokens = 64;
};

// Takes a policy for each request that asks for "auto": the one expected to be done first, all
// ranks' seconds added up, among those that keep the contract. What a policy costs is guessed at
// first, and measured from then on: every request that ends tells what attending and estimating
// took, and how dense its contract left it, for prompts of about its length. Rows whose keys and
// values are kept from before, under the same policy or densely, cost nothing. Used by the
// coordinator's thread alone.
class AutoPolicy {
 public:
  explicit AutoPolicy(const AutoSetting& setting);

  struct Choice {
    AttentionPolicy policy;
    std::string reason;  // for people, with the seconds that were expected
  };
  // For a prompt of so many tokens; `asked` is of the kind kAuto. cached(policy): the length of its
  // beginning that need not be computed under the policy.
  using Cached = absl::FunctionRef<int64_t(const AttentionPolicy& policy)>;
  Choice Choose(const AttentionPolicy& asked, int64_t prompt, Cached cached) const;

  // What came of a request under `policy` that computed rows [cached, prompt).
  void Learn(const AttentionPolicy& policy, int64_t prompt, int64_t cached,
             const AttentionReport& report);

 private:
  // A candidate beside dense.
  struct Candidate {
    AttentionPolicy policy;
    double estimate_seconds = 0;      // for each causal pair
    double density = 0;               // where nothing is known yet
    std::map<int, double> densities;  // [log2 of the prompt]
  };
  double Expected(const Candidate& candidate, int64_t prompt, double pairs) const;

  const AutoSetting setting_;
  double pair_seconds_ = 0;  // of attending, for each pair
  std::vector<Candidate> candidates_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_AUTO_POLICY_H_
