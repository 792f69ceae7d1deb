#include "engine/sparse/block_ranking.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/sparse/draw.h"
#include "kernels/base/check.h"
#include "kernels/base/exp_of_negative.h"

namespace annulus {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float Largest(std::span<const float> values) {
  std::array<float, 8> best;  // side by side: vectors
  best.fill(-kInfinity);
  size_t n = 0;
  for (; n + 8 <= values.size(); n += 8) {
    for (size_t i = 0; i < 8; ++i) best[i] = std::max(best[i], values[n + i]);
  }
  float most = *std::max_element(best.begin(), best.end());
  for (; n < values.size(); ++n) most = std::max(most, values[n]);
  return most;
}

// A block and its mass as a number that sorts from the largest on.
struct Ranked {
  uint32_t key;
  int32_t block;
};

// Sorts by key and keeps the order of equal ones: 10 bits at a time, as a long list of floats
// meets branches of no pattern in a sort that compares. `other` is workspace.
void SortByMass(std::vector<Ranked>& ranked, std::vector<Ranked>& other) {
  constexpr int kBits = 10;
  constexpr uint32_t kDigits = 1 << kBits;
  other.resize(ranked.size());
  for (int shift = 0; shift < 3 * kBits; shift += kBits) {
    std::array<uint32_t, kDigits> next = {};
    for (const Ranked& one : ranked) ++next[one.key >> shift & (kDigits - 1)];
    std::exclusive_scan(next.begin(), next.end(), next.begin(), uint32_t{0});
    for (const Ranked& one : ranked) other[next[one.key >> shift & (kDigits - 1)]++] = one;
    ranked.swap(other);
  }
}

// Adds the softmax of log masses, times `weight`. `weights` is workspace of the same size.
void AddShares(std::span<const float> log_mass, float weight, std::span<float> weights,
               std::span<float> mass) {
  const float most = Largest(log_mass);
  if (most == -kInfinity) return;
  for (size_t b = 0; b < log_mass.size(); ++b) weights[b] = ExpOfNegative(log_mass[b] - most);
  double total = 0;
  for (size_t b = 0; b < log_mass.size(); ++b) total += weights[b];
  const auto share = static_cast<float>(weight / total);
  for (size_t b = 0; b < log_mass.size(); ++b) mass[b] += share * weights[b];
}

}  // namespace

float LogAdd(float a, float b) {
  const float most = std::max(a, b);
  if (most == -kInfinity) return most;
  return most + std::log1p(std::exp(std::min(a, b) - most));
}

BlockScores::BlockScores(int64_t groups, int heads, int32_t blocks)
    : groups_(groups),
      heads_(heads),
      blocks_(static_cast<size_t>(blocks)),
      scores_(static_cast<size_t>(groups) * heads * blocks_, -kInfinity) {}

void BlockScores::Merge(std::span<const float> scores, std::span<const int32_t> blocks,
                        bool largest) {
  ANNULUS_CHECK(scores.size() == static_cast<size_t>(groups_) * heads_ * blocks.size());
  const float* from = scores.data();
  for (size_t list = 0; list < static_cast<size_t>(groups_) * heads_; ++list) {
    float* const to = scores_.data() + list * blocks_;
    for (const int32_t block : blocks) {
      const float score = *from++;
      if (static_cast<size_t>(block) >= blocks_ || score == -kInfinity) continue;
      to[block] = largest                   ? std::max(to[block], score)
                  : to[block] == -kInfinity ? score
                                            : LogAdd(to[block], score);
    }
  }
}

BlockMasses::BlockMasses(std::vector<int32_t> query_blocks, int kv_heads)
    : query_blocks_(std::move(query_blocks)), kv_heads_(kv_heads) {
  size_t size = 0;
  for (const int32_t block : query_blocks_) {
    offsets_.push_back(size);
    size += static_cast<size_t>(kv_heads) * (static_cast<size_t>(block) + 1);
  }
  masses_.resize(size);
}

void BlockMasses::Add(std::span<const float> masses, std::span<const int32_t> blocks) {
  ANNULUS_CHECK(masses.size() == query_blocks_.size() * kv_heads_ * blocks.size());
  const float* from = masses.data();
  for (size_t q = 0; q < query_blocks_.size(); ++q) {
    for (int kv_head = 0; kv_head < kv_heads_; ++kv_head, from += blocks.size()) {
      const std::span<float> to = row(q, kv_head);
      for (size_t p = 0; p < blocks.size(); ++p) {
        if (static_cast<size_t>(blocks[p]) < to.size()) to[blocks[p]] += from[p];
      }
    }
  }
}

BlockMasses MassesOf(const BlockScores& scores, int kv_heads, std::vector<int32_t> query_blocks) {
  ANNULUS_CHECK(scores.groups() == std::ssize(query_blocks));
  BlockMasses masses(std::move(query_blocks), kv_heads);
  const int group = scores.heads() / kv_heads;
  std::vector<float> weights;
  for (int64_t q = 0; q < scores.groups(); ++q) {
    for (int head = 0; head < scores.heads(); ++head) {
      const std::span<float> to = masses.row(static_cast<size_t>(q), head / group);
      weights.resize(to.size());
      AddShares(scores.row(q, head).first(to.size()), 1.0f / static_cast<float>(group), weights,
                to);
    }
  }
  return masses;
}

BlockRanking::BlockRanking(const BlockMasses& masses)
    : kv_heads_(masses.kv_heads()), query_blocks_(masses.query_blocks()) {
  size_t size = 0;
  for (const int32_t block : query_blocks_) {
    offsets_.push_back(size);
    size += static_cast<size_t>(kv_heads_) * (static_cast<size_t>(block) + 1);
  }
  order_.resize(size);
  kept_.resize(size);
  for (size_t q = 0; q < query_blocks_.size(); ++q) {
    for (int kv_head = 0; kv_head < kv_heads_; ++kv_head) {
      Rank(q, kv_head, masses.row(q, kv_head));
    }
  }
}

void BlockRanking::Rank(size_t q, int kv_head, std::span<const float> mass) {
  const size_t offset = Offset(q, kv_head);
  const std::span<int32_t> order = std::span(order_).subspan(offset, mass.size());
  const auto diagonal = static_cast<uint32_t>(mass.size()) - 1;
  // The diagonal, the first block, then the rest by mass. A mass is in [0, 2): its bits are those
  // of a number below 2^30 that grows with it.
  std::vector<Ranked> ranked, workspace;
  ranked.reserve(mass.size());
  for (uint32_t b = 1; b < diagonal; ++b) {
    ranked.push_back({~std::bit_cast<uint32_t>(mass[b]), static_cast<int32_t>(b)});
  }
  SortByMass(ranked, workspace);
  auto next = order.begin();
  *next++ = static_cast<int32_t>(diagonal);
  if (diagonal > 0) *next++ = 0;
  for (const Ranked& one : ranked) *next++ = one.block;
  double sum = 0;
  for (size_t n = 0; n < order.size(); ++n) kept_[offset + n] = sum += mass[order[n]];
}

size_t BlockRanking::Find(int32_t query_block) const {
  const auto found = std::lower_bound(query_blocks_.begin(), query_blocks_.end(), query_block);
  ANNULUS_CHECK(found != query_blocks_.end() && *found == query_block);
  return static_cast<size_t>(found - query_blocks_.begin());
}

int32_t BlockRanking::Count(size_t q, int kv_head, double tau) const {
  const int32_t all = query_blocks_[q] + 1;
  if (tau >= 1) return all;
  const auto kept = std::span(kept_).subspan(Offset(q, kv_head), all);
  const auto reached = std::lower_bound(kept.begin(), kept.end(), tau * kept.back());
  const auto count = static_cast<int32_t>(reached - kept.begin()) + 1;
  return std::clamp(count, std::min(all, 2), all);
}

double BlockRanking::Mass(size_t q, int kv_head, int32_t count) const {
  return kept_[Offset(q, kv_head) + count - 1];
}

BlockPattern MakePattern(
    std::span<const int32_t> query_blocks, int kv_heads, int32_t block_tokens,
    absl::FunctionRef<void(size_t q, int kv_head, std::vector<int32_t>& blocks)> choose) {
  BlockPattern pattern;
  pattern.block_tokens = block_tokens;
  pattern.offsets.push_back(0);
  pattern.shape.head_groups = kv_heads;
  if (query_blocks.empty()) return pattern;
  pattern.shape.first_block = query_blocks.front();
  pattern.shape.blocks = query_blocks.back() - query_blocks.front() + 1;
  std::vector<int32_t> blocks;
  for (int kv_head = 0; kv_head < kv_heads; ++kv_head) {
    size_t q = 0;
    for (int32_t i = query_blocks.front(); i <= query_blocks.back(); ++i) {
      if (query_blocks[q] == i) {
        blocks.clear();
        choose(q++, kv_head, blocks);
        pattern.chosen.insert(pattern.chosen.end(), blocks.begin(), blocks.end());
      }
      pattern.offsets.push_back(static_cast<int64_t>(pattern.chosen.size()));
    }
  }
  return pattern;
}

std::vector<int32_t> ProbeRows(int32_t begin, int32_t end, int32_t block_tokens, uint64_t seed) {
  const int64_t shortest = int64_t{kProbeBlocks} * block_tokens;  // a row's causal length: row + 1
  const int64_t first = std::max<int64_t>(begin, shortest - 1);
  if (first >= end) return {};
  return Draw(static_cast<int32_t>(first), end, kProbeRows, seed);
}

std::vector<double> Coverage(std::span<const float> exact, std::span<const int32_t> order,
                             std::span<const int32_t> counts, float sink) {
  const float most = std::max(sink, Largest(exact));
  if (most == -kInfinity) return std::vector<double>(counts.size(), 1.0);
  std::vector<float> weights(exact.size());
  for (size_t b = 0; b < exact.size(); ++b) weights[b] = ExpOfNegative(exact[b] - most);
  double kept = ExpOfNegative(sink - most);
  const double total = std::accumulate(weights.begin(), weights.end(), kept);
  std::vector<double> shares;
  auto next = order.begin();
  for (const int32_t count : counts) {
    while (next != order.begin() + count) kept += weights[*next++];
    shares.push_back(std::min(1.0, kept / total));
  }
  return shares;
}

}  // namespace annulus
