// Pooling of block scores in the SIMD path.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/simd/ops.h"
#include "kernels/cpu/simd/scores.h"
#include "kernels/ops/checks.h"

namespace annulus::cpu {
namespace {

constexpr float kNoMass = -std::numeric_limits<float>::infinity();
constexpr int64_t kMassBlocks = 1024;  // of a task: they and a list's scores of them lie in L1

// Log of the sum of exp over `count` scores and over `before`, itself such a log.
float LogOfSum(const SimdKernels& isa, const float* scores, int64_t count, float before) {
  std::array<float, kPanel> largest;
  std::array<float, kPanel> total = {};
  largest.fill(-std::numeric_limits<float>::max());
  const int64_t rows = count / kPanel;
  const int64_t rest = count % kPanel;
  isa.add_exp_sums(scores, rows, kPanel, kPanel, largest.data(), total.data());
  isa.add_exp_sums(scores + rows * kPanel, rest > 0 ? 1 : 0, kPanel, rest, largest.data(),
                   total.data());
  const float most = std::max(before, *std::max_element(largest.begin(), largest.end()));
  float sum = before == kNoMass ? 0 : ExpOfNegative(before - most);
  for (int i = 0; i < kPanel; ++i) sum += total[i] * ExpOfNegative(largest[i] - most);
  return sum > 0 ? most + std::log(sum) : kNoMass;
}

}  // namespace

absl::Status ScoreSums(const SimdKernels& isa, CpuStream& stream, const ScoreSumsParams& params) {
  CheckScoreSums(params);
  stream.ParallelRows(params.scores.rows, params.scores.cols * 4, [&](int64_t begin, int64_t end) {
    for (int64_t list = begin; list < end; ++list) {
      const float before = params.add ? params.sums[list] : kNoMass;
      params.sums[list] = LogOfSum(isa, params.scores.row(list), params.scores.cols, before);
    }
  });
  return absl::OkStatus();
}

absl::Status BlockMasses(CpuStream& stream, const BlockMassesParams& params) {
  CheckBlockMasses(params);
  const int group = params.heads / params.kv_heads;
  const int64_t parts = (params.masses.cols + kMassBlocks - 1) / kMassBlocks;
  stream.ParallelFor(params.masses.rows * parts, [&](int64_t task, int) {
    const int64_t row = task / parts;
    const int64_t first = task % parts * kMassBlocks;
    const int64_t count = std::min(kMassBlocks, params.masses.cols - first);
    const int64_t run = row / params.kv_heads;
    const int64_t begin = run == 0 ? 0 : params.ends[run - 1];
    const int64_t lists = (params.ends[run] - begin) * group;
    float* const masses = params.masses.row(row) + first;
    std::fill_n(masses, count, 0.0f);
    for (int64_t i = 0; i < lists; ++i) {
      const int64_t list =
          (begin + i / group) * params.heads + row % params.kv_heads * group + i % group;
      const float sum = params.sums[list];
      if (sum == kNoMass) continue;
      const float* const scores = params.scores.row(list) + first;
      for (int64_t b = 0; b < count; ++b) masses[b] += ExpOfNegative(scores[b] - sum);
    }
    for (int64_t b = 0; b < count; ++b) masses[b] /= static_cast<float>(lists);
  });
  return absl::OkStatus();
}

}  // namespace annulus::cpu
