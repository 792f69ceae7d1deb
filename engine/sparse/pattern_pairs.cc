#include "engine/sparse/pattern_pairs.h"

#include <algorithm>
#include <iterator>

#include "engine/sparse/dilated.h"
#include "engine/sparse/policy_type.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

// A policy as one head follows it, and the share of the layers and heads that do.
struct HeadPolicy {
  AttentionPolicy policy;
  int head = 0;  // 0 if all heads choose alike
  double share = 0;
};

std::vector<HeadPolicy> PoliciesIn(const AttentionAssignment& attention,
                                   std::span<const int32_t> layers, int kv_heads) {
  const double share = 1.0 / (static_cast<double>(layers.size()) * kv_heads);
  std::vector<HeadPolicy> policies;
  for (const int32_t layer : layers) {
    for (const LayerPart& part : PartsOf(attention, layer, kv_heads)) {
      const bool heads_differ = TypeOf(part.policy.kind).heads_differ;
      for (int head = 0; head < kv_heads; ++head) {
        if (!part.heads[head]) continue;
        const int group = heads_differ ? head : 0;
        auto known = std::find_if(policies.begin(), policies.end(), [&](const HeadPolicy& one) {
          return one.head == group && one.policy == part.policy;
        });
        if (known == policies.end()) {
          policies.push_back(HeadPolicy{part.policy, group});
          known = std::prev(policies.end());
        }
        known->share += share;
      }
    }
  }
  return policies;
}

// The keys that a row attends, in the mean over its block's rows.
double KeysOf(const HeadPolicy& head, int64_t row) {
  const AttentionPolicy& policy = head.policy;
  const double causal = static_cast<double>(row) + 0.5;
  if (AttendsAllInPrompts(policy)) return causal;
  if (const auto branches = DilatedBranches(policy); !branches.empty()) {
    // Of a branch, a head has one of `rate` rows, and in each one of `rate` keys of the segment.
    double keys = 0;
    for (const DilatedBranch& branch : branches) {
      const double segment = row < branch.segment ? causal : branch.segment / 2.0;
      keys += segment / branch.rate / branch.rate;
    }
    return keys;
  }
  PolicyType::CountBlocks* const count = TypeOf(policy.kind).count_blocks;
  ANNULUS_CHECK(count != nullptr) << PolicyName(policy.kind) << " chooses from content";
  const int64_t blocks = count(policy, head.head, static_cast<int32_t>(row / policy.block));
  const double older = static_cast<double>(blocks - 1) * policy.block;
  return std::min(causal, older + (policy.block + 1) / 2.0);
}

// Lists change at the beginning, where a window is not full yet, and slowly later.
int64_t NextLook(int64_t row) { return row + std::max<int64_t>(64, row / 8); }

}  // namespace

PatternPairs::PatternPairs(const AttentionAssignment& attention, std::span<const int32_t> layers,
                           int kv_heads, int64_t tokens) {
  ANNULUS_CHECK(!layers.empty() && kv_heads > 0) << "no layers or heads";
  const std::vector<HeadPolicy> policies = PoliciesIn(attention, layers, kv_heads);
  for (int64_t row = 0;; row = NextLook(row)) {
    Sample sample;
    sample.row = static_cast<double>(row);
    for (const HeadPolicy& policy : policies) {
      sample.keys += policy.share * KeysOf(policy, row);
    }
    if (!samples_.empty()) {
      const Sample& last = samples_.back();
      sample.pairs = last.pairs + (sample.row - last.row) * (sample.keys + last.keys) / 2;
    }
    samples_.push_back(sample);
    if (row >= tokens) break;
  }
}

double PatternPairs::Before(int64_t row) const {
  const auto position = static_cast<double>(row);
  const auto after =
      std::upper_bound(samples_.begin(), samples_.end(), position,
                       [](double value, const Sample& sample) { return value < sample.row; });
  const Sample& last = *std::prev(after);
  const double rows = position - last.row;
  if (after == samples_.end()) return last.pairs + rows * last.keys;
  const double keys = last.keys + (after->keys - last.keys) * rows / (after->row - last.row);
  return last.pairs + rows * (last.keys + keys) / 2;
}

}  // namespace annulus
