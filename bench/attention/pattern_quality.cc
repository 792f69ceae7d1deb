#include "bench/attention/pattern_quality.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "bench/attention/structured_head.h"
#include "engine/sparse/block_pattern.h"
#include "engine/sparse/dilated.h"

namespace annulus::bench {
namespace {

// Softmax of one row over its causal keys.
std::vector<float> RowWeights(const StructuredHead& head, int64_t row) {
  const float* const query = head.query_row(row);
  const float scale = 1 / std::sqrt(static_cast<float>(head.head_dim));
  std::vector<float> weights(static_cast<size_t>(row) + 1);
  for (int64_t j = 0; j <= row; ++j) {
    const float* const key = head.key_row(j);
    float sum = 0;
    for (int d = 0; d < head.head_dim; ++d) sum += query[d] * key[d];
    weights[j] = sum * scale;
  }
  const float most = *std::max_element(weights.begin(), weights.end());
  double total = 0;
  for (float& weight : weights) {
    weight = std::exp(weight - most);
    total += weight;
  }
  for (float& weight : weights) weight = static_cast<float>(weight / total);
  return weights;
}

// Adds the values of keys [begin, end) with their weights, each times what `times` says of its key.
template <typename Times>
void AddValues(const StructuredHead& head, std::span<const float> weights, int64_t begin,
               int64_t end, const Times& times, std::vector<double>& output) {
  for (int64_t j = begin; j < end; ++j) {
    const double weight = double{weights[j]} * times(j);
    if (weight == 0) continue;
    const float* const value = head.value_row(j);
    for (int d = 0; d < head.head_dim; ++d) output[d] += weight * value[d];
  }
}

constexpr auto kOnce = [](int64_t) { return 1; };

// Sums of one policy over all sampled rows.
class Tally {
 public:
  Tally(const JudgedPolicy& judged, const QualityOptions& options)
      : policy_(ResolvePolicy(judged.policy, options.tokens)),
        chosen_(judged.chosen),
        branches_(DilatedBranches(policy_)),
        options_(options) {}

  // `weights` are of the rows of one query block of the policy, [row]; `dense` are their outputs.
  void Add(const StructuredHead& head, int head_index, std::span<const std::vector<float>> weights,
           std::span<const std::vector<double>> dense) {
    const auto block = static_cast<int32_t>((weights.front().size() - 1) / policy_.block);
    BlockPattern pattern;
    std::span<const int32_t> keys;
    if (chosen_ != nullptr) {
      keys = chosen_(head_index, block);
    } else {
      PatternShape shape =
          ShapeFor(policy_, block * policy_.block, block * policy_.block + 1, options_.heads);
      pattern = BuildBlockPattern(policy_, shape);
      keys = pattern.keys(shape.head_groups == 1 ? 0 : head_index, block);
    }
    std::vector<double> mass(static_cast<size_t>(block) + 1);
    for (size_t row = 0; row < weights.size(); ++row) {
      AddRow(head, head_index, weights[row], dense[row], keys);
      for (size_t j = 0; j < weights[row].size(); ++j) mass[j / policy_.block] += weights[row][j];
    }
    AddOracle(std::move(mass), static_cast<double>(weights.size()));
  }

  PatternQuality Result() const {
    PatternQuality quality;
    quality.coverage = covered_ / rows_;
    quality.relative_error = std::sqrt(error_ / norm_);
    quality.oracle_density = oracle_blocks_ / causal_blocks_;
    return quality;
  }

 private:
  void AddRow(const StructuredHead& head, int head_index, const std::vector<float>& weights,
              const std::vector<double>& dense, std::span<const int32_t> keys) {
    const int64_t row = static_cast<int64_t>(weights.size()) - 1;
    const auto times = [&](int64_t key) {
      if (branches_.empty()) return 1;
      int count = 0;  // a key that several branches keep is attended by each
      for (const DilatedBranch& branch : branches_) count += branch.Keeps(head_index, row, key);
      return count;
    };
    std::vector<double> output(dense.size());
    double covered = 0;
    double total = 0;
    for (const int32_t key : keys) {
      const int64_t begin = int64_t{key} * policy_.block;
      const int64_t end = std::min<int64_t>(begin + policy_.block, row + 1);
      AddValues(head, weights, begin, end, times, output);
      for (int64_t j = begin; j < end; ++j) {
        covered += times(j) > 0 ? double{weights[j]} : 0;
        total += double{weights[j]} * times(j);
      }
    }
    for (size_t d = 0; d < dense.size(); ++d) {
      const double attended = total == 0 ? 0 : output[d] / total;
      error_ += (attended - dense[d]) * (attended - dense[d]);
      norm_ += dense[d] * dense[d];
    }
    covered_ += covered;
    rows_ += 1;
  }

  void AddOracle(std::vector<double> mass, double rows) {
    causal_blocks_ += static_cast<double>(mass.size());
    std::sort(mass.begin(), mass.end(), std::greater<>());
    double sum = 0;
    for (const double share : mass) {
      oracle_blocks_ += 1;
      sum += share / rows;
      if (sum >= options_.oracle_coverage) break;
    }
  }

  const AttentionPolicy policy_;
  const std::function<std::span<const int32_t>(int, int32_t)> chosen_;
  const std::vector<DilatedBranch> branches_;
  const QualityOptions& options_;
  double covered_ = 0, rows_ = 0, error_ = 0, norm_ = 0;
  double oracle_blocks_ = 0, causal_blocks_ = 0;
};

// Rows of a block, evenly spread over those that it has.
std::vector<int64_t> RowsOf(int64_t block, int32_t block_tokens, const QualityOptions& options) {
  if (options.last_row_only) return {options.tokens - 1};
  const int64_t begin = block * block_tokens;
  const int64_t end = std::min<int64_t>(begin + block_tokens, options.tokens);
  const int64_t count = std::min<int64_t>(options.rows, end - begin);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < count; ++i)
    rows.push_back(begin + (2 * i + 1) * (end - begin) / (2 * count));
  return rows;
}

}  // namespace

std::vector<PatternQuality> MeasureQuality(std::span<const JudgedPolicy> policies,
                                           const QualityOptions& options,
                                           const std::function<void(int head)>& done) {
  std::vector<Tally> tallies;
  int32_t largest = 1;
  for (const JudgedPolicy& judged : policies) {
    tallies.emplace_back(judged, options);
    largest = std::max(largest, judged.policy.block);
  }
  std::vector<int64_t> looked_at = options.looked_at;
  const int64_t blocks = (options.tokens + largest - 1) / largest;
  const int64_t count = looked_at.empty() ? std::min<int64_t>(options.query_blocks, blocks) : 0;
  for (int64_t i = 0; i < count; ++i) {
    looked_at.push_back((2 * i + 1) * blocks / (2 * count) * largest);
  }
  for (int h = 0; h < options.heads; ++h) {
    const StructuredHead head =
        MakeStructuredHead(options.tokens, options.head_dim, h, options.seed);
    for (const int64_t first : looked_at) {
      std::vector<std::vector<float>> weights;
      std::vector<std::vector<double>> dense;
      for (size_t p = 0; p < policies.size(); ++p) {
        // Policies with blocks of one size look at the same rows.
        if (p > 0 && policies[p].policy.block == policies[p - 1].policy.block) {
          tallies[p].Add(head, h, weights, dense);
          continue;
        }
        const int32_t block = policies[p].policy.block;
        weights.clear();
        dense.clear();
        for (const int64_t row : RowsOf(first / block, block, options)) {
          weights.push_back(RowWeights(head, row));
          dense.emplace_back(static_cast<size_t>(options.head_dim));
          AddValues(head, weights.back(), 0, row + 1, kOnce, dense.back());
        }
        tallies[p].Add(head, h, weights, dense);
      }
    }
    done(h);
  }
  std::vector<PatternQuality> results;
  for (const Tally& tally : tallies) results.push_back(tally.Result());
  return results;
}

}  // namespace annulus::bench
