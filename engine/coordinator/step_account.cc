#include "engine/coordinator/step_account.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "engine/sparse/dilated.h"

namespace annulus {
namespace {

Request::AttendSeconds SecondsOf(const std::vector<RankResult>& results) {
  Request::AttendSeconds seconds;
  for (const RankResult& rank : results) {
    seconds.all_ranks += rank.ring.compute_seconds;
    seconds.wall = std::max(seconds.wall, rank.ring.compute_seconds);
  }
  return seconds;
}

}  // namespace

void StepAccount::Add(const StepPlan& plan, const std::vector<RankResult>& results,
                      const Requests& requests) {
  if (EndsItsChunks(plan)) {
    CountAttention(plan, results, requests);
    CountModes(plan, requests);
  } else if (!plan.items.empty()) {
    CountStretch(plan, results, requests);
  }
  CountRing(results);
}

// What a chunk attended is booked when it ends; the time of its stretches, as they go.
void StepAccount::CountStretch(const StepPlan& plan, const std::vector<RankResult>& results,
                               const Requests& requests) {
  requests.at(plan.items[0].sequence)->CountAttending(SecondsOf(results));
}

void StepAccount::CountAttention(const StepPlan& plan, const std::vector<RankResult>& results,
                                 const Requests& requests) {
  std::map<std::pair<SequenceId, int32_t>, std::vector<const LayerAttention*>> reported;
  const Request::AttendSeconds seconds = SecondsOf(results);
  std::map<std::pair<SequenceId, int32_t>, double> estimates;  // of the slowest rank
  for (const RankResult& rank : results) {
    std::map<std::pair<SequenceId, int32_t>, double> of_rank;
    for (const LayerAttention& part : rank.attention) {
      reported[{part.sequence, part.begin}].push_back(&part);
      of_rank[{part.sequence, part.begin}] += part.estimate_seconds;
    }
    for (const auto& [item, estimate] : of_rank) {
      estimates[item] = std::max(estimates[item], estimate);
    }
  }
  PairCount step_pairs;
  std::vector<PairCount> pairs;
  for (const PlanItem& item : plan.items) {
    Request& request = *requests.at(item.sequence);
    const auto outcome = request.attention_account().Add(reported[{item.sequence, item.begin}]);
    request.attention_account().AddEstimateWall(estimates[{item.sequence, item.begin}]);
    pairs.push_back(outcome.pairs.has_value() ? *outcome.pairs
                                              : CountAttended(item, *request.sequence()));
    step_pairs += pairs.back();
    // A request whose activations are NaN fails by itself, but a NaN in these sums would stay there
    // for ever.
    if (std::isfinite(outcome.covered)) {
      since_start_.covered += outcome.covered;
      since_start_.samples += outcome.samples;
    }
    if (std::isfinite(outcome.estimated)) {
      since_start_.estimated += outcome.estimated;
      since_start_.estimates += outcome.estimates;
    }
    metrics_.attention_layers_raised.Add(static_cast<double>(outcome.raised));
    metrics_.attention_layers_dense.Add(static_cast<double>(outcome.dense));
    metrics_.attention_layers_kept.Add(
        static_cast<double>(outcome.layers - outcome.raised - outcome.dense));
  }
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const double share = step_pairs.chosen > 0 ? pairs[i].chosen / step_pairs.chosen : 0;
    requests.at(plan.items[i].sequence)
        ->CountStep(plan.items[i].mode, pairs[i],
                    {share * seconds.all_ranks, share * seconds.wall});
  }
  pairs_since_start_ += step_pairs;
  if (pairs_since_start_.causal > 0) {
    metrics_.attention_density.Set(pairs_since_start_.density());
  }
  if (since_start_.samples > 0) {
    metrics_.attention_coverage.Set(since_start_.covered / since_start_.samples);
  }
  if (since_start_.estimates > 0) {
    metrics_.attention_estimated_coverage.Set(since_start_.estimated / since_start_.estimates);
  }
}

// Counts the pairs of items that the ranks do not report.
PairCount StepAccount::CountAttended(const PlanItem& item, const Sequence& sequence) {
  if (sequence.attention == nullptr) return DensePairs(item.begin, item.end);
  if (!sequence.attention->rules.empty()) return {};  // its rows attended nothing
  const AttentionPolicy& policy = sequence.attention->policy;
  const std::vector<DilatedBranch> branches = DilatedBranches(policy);
  if (!branches.empty()) return CountDilatedPairs(branches, heads_, item.begin, item.end);
  if (ChoosesByContent(policy)) return {};  // its rows attended nothing
  const PatternShape shape = ShapeFor(policy, item.begin, item.end, kv_heads_);
  return CountPairs(*patterns_.Get(policy, shape), item.begin, item.end);
}

void StepAccount::CountRing(const std::vector<RankResult>& results) {
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const RingCounters& ring = results[rank].ring;
    RankMetrics& metrics = metrics_.ranks[rank];
    metrics.compute_seconds.Add(ring.compute_seconds);
    metrics.exposed_wait_seconds.Add(ring.wait_seconds);
    metrics.send_seconds.Add(ring.send_seconds);
    metrics.pass_kv_bytes.Add(static_cast<double>(ring.bytes_pass_kv));
    metrics.pass_q_bytes.Add(static_cast<double>(ring.bytes_pass_q));
    metrics.estimate_bytes.Add(static_cast<double>(ring.bytes_estimate));
  }
}

void StepAccount::CountModes(const StepPlan& plan, const Requests& requests) {
  for (const PlanItem& item : plan.items) {
    if (requests.at(item.sequence)->sequence()->ring.size() < 2) continue;
    (item.mode == RingMode::kPassKv ? metrics_.mode_pass_kv : metrics_.mode_pass_q).Increment();
  }
}

}  // namespace annulus
