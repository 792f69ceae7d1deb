#include "engine/request/auto_policy.h"

#include <bit>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/sparse/block_pattern.h"
#include "engine/sparse/block_ranking.h"
#include "engine/sparse/policy_type.h"

namespace annulus {
namespace {

// The weight of a new measurement against all earlier ones together.
constexpr double kNews = 0.3;
// Fewer rows say little about speed.
constexpr int64_t kLeastRows = 512;

int Octave(int64_t prompt) { return std::bit_width(static_cast<uint64_t>(prompt)); }

void Blend(double news, double& known) { known += kNews * (news - known); }

// Whether two policies choose by the same estimator.
bool Alike(const AttentionPolicy& a, const AttentionPolicy& b) {
  return a.kind == b.kind && EstimateOf(a).source == EstimateOf(b).source;
}

}  // namespace

AutoPolicy::AutoPolicy(const AutoSetting& setting, const AttentionGeometry& geometry)
    : pair_seconds_(setting.layers * geometry.pair_flops() / setting.flops) {
  if (!setting.scores) return;
  for (const PolicyType* type : kPolicyTypes) {
    for (const AutoForm& form : type->forms) {
      const AttentionPolicy policy = *ParsePolicy(form.policy);
      if (EstimateOf(policy).source == BlockEstimate::Source::kGates && !setting.gates) continue;
      Candidate& candidate = candidates_.emplace_back();
      candidate.policy = policy;
      candidate.label = form.label;
      candidate.estimate_seconds = form.estimate_share * pair_seconds_;
      candidate.density = form.density;
    }
  }
}

double AutoPolicy::Expected(const Candidate& candidate, int64_t prompt, double pairs) const {
  // Takes the measurement of the nearest length.
  double density = candidate.density;
  int nearest = 64;
  for (const auto& [octave, known] : candidate.densities) {
    const int away = std::abs(octave - Octave(prompt));
    if (away >= nearest) continue;
    nearest = away;
    density = known;
  }
  return pairs * (density * pair_seconds_ + candidate.estimate_seconds);
}

AutoPolicy::Choice AutoPolicy::Choose(const AttentionPolicy& asked, int64_t prompt,
                                      Cached cached) const {
  const double coverage = asked.coverage > 0 ? asked.coverage : kAutoCoverage;
  const int64_t shortest = int64_t{2} * kProbeBlocks * asked.block;
  Choice choice;
  if (coverage >= 1) {
    choice.reason = "auto: a coverage of 1 is dense";
    return choice;
  }
  if (candidates_.empty()) {
    choice.reason = "auto: dense, because the kernels cannot score blocks";
    return choice;
  }
  if (prompt < shortest) {
    choice.reason =
        absl::StrCat("auto: dense, because ", prompt, " tokens are fewer than ", shortest);
    return choice;
  }
  int64_t reused = cached(choice.policy);
  double best = DensePairs(reused, prompt).causal * pair_seconds_;
  std::string expected = absl::StrFormat("dense %.3g s", best);
  for (const Candidate& candidate : candidates_) {
    AttentionPolicy policy = candidate.policy;
    policy.block = asked.block;
    policy.coverage = coverage;
    const int64_t kept = cached(policy);
    const double seconds = Expected(candidate, prompt, DensePairs(kept, prompt).causal);
    absl::StrAppendFormat(&expected, ", %s %.3g s", candidate.label, seconds);
    if (seconds >= best) continue;
    best = seconds;
    reused = kept;
    choice.policy = policy;
  }
  choice.reason = absl::StrCat("auto: ", PolicyName(choice.policy.kind), "; expected: ", expected,
                               " for ", prompt - reused, " of ", prompt, " tokens");
  return choice;
}

void AutoPolicy::Learn(const AttentionPolicy& policy, int64_t prompt, int64_t cached,
                       const AttentionReport& report) {
  if (prompt - cached < kLeastRows || report.density <= 0) return;
  const double pairs = DensePairs(cached, prompt).causal;
  if (report.attend_seconds > 0) {
    Blend(report.attend_seconds / (pairs * report.density), pair_seconds_);
  }
  for (Candidate& candidate : candidates_) {
    if (!Alike(candidate.policy, policy) || policy.coverage == 0) continue;
    Blend(report.estimate_seconds / pairs, candidate.estimate_seconds);
    const auto [known, fresh] = candidate.densities.try_emplace(Octave(prompt), report.density);
    if (!fresh) Blend(report.density, known->second);
  }
}

}  // namespace annulus
