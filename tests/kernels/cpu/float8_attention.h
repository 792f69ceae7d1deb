#ifndef ANNULUS_TESTS_KERNELS_CPU_FLOAT8_ATTENTION_H_
#define ANNULUS_TESTS_KERNELS_CPU_FLOAT8_ATTENTION_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/base/activations.h"
#include "kernels/cpu/reference/float8_attention.h"
#include "tests/kernels/cpu/attention_fixture.h"

namespace annulus::testing {

inline AttentionResult AttendInFloat8(const Problem& problem) {
  const OpTable table = reference::WithFloat8Attention(Reference());
  return AttendOn(*MakeStream(2), table, problem);
}

// The scales of the codes of a problem's queries, [rows, heads].
inline std::vector<float> QueryScales(const Problem& problem) {
  std::vector<float> scales;
  const auto dim = static_cast<size_t>(problem.shape.k_dim);
  std::vector<Float8E4M3> codes(dim);
  for (int64_t r = 0; r < problem.rows(); ++r) {
    for (int h = 0; h < problem.heads(); ++h) {
      scales.push_back(RoundToFloat8({problem.query.row(r) + h * dim, dim}, codes));
    }
  }
  return scales;
}

// Makes queries what their codes stand for; then attention in fp8 rounds weights alone.
inline void RoundQueries(Problem& problem) {
  const auto dim = static_cast<size_t>(problem.shape.k_dim);
  std::vector<Float8E4M3> codes(dim);
  for (int64_t r = 0; r < problem.rows(); ++r) {
    for (int h = 0; h < problem.heads(); ++h) {
      float* const query = problem.query.row(r) + h * dim;
      const float scale = RoundToFloat8({query, dim}, codes);
      for (size_t d = 0; d < dim; ++d) query[d] = scale * ToFloat(codes[d]);
    }
  }
}

// The most by which codes of a row's queries may change one of its scores, at most: see
// float8_attention.h.
inline double ScoreError(const Problem& problem, int64_t row, int head, double query_scale) {
  const int dim = problem.shape.k_dim;
  const float* const query = problem.query.row(row) + head * dim;
  double largest = 0;
  for (int64_t j = 0; j < problem.k.rows(); ++j) {
    const float* const key = problem.k.row(j) + head / problem.group * dim;
    double error = 0;
    for (int d = 0; d < dim; ++d) {
      error += std::abs(key[d]) * (0x1p-4 * std::abs(query[d]) + 0x1p-10 * query_scale);
    }
    largest = std::max(largest, error);
  }
  return problem.scale() * largest;
}

// Attention in fp8 against attention that rounds nothing, by the bound of float8_attention.h but
// with the mean of the values' sizes, which is the attention to these, instead of the largest one.
// `sums`: what sums of products lose beside float32. `rounded`: whether queries are codes already.
inline void ExpectWithinFloat8(const Problem& problem, const AttentionResult& actual, bool rounded,
                               double sums = 0) {
  const auto once = [](int64_t, int, int64_t) { return 1; };
  const AttentionResult exact = DenseAttention(problem, once);
  Problem sizes = problem;
  double value_size = 0;
  double key_norm = 0;
  for (int64_t j = 0; j < sizes.v.rows(); ++j) {
    key_norm = std::max(key_norm, problem.k.RowNorm(j));
    for (int64_t c = 0; c < sizes.v.cols(); ++c) {
      sizes.v.row(j)[c] = std::abs(sizes.v.row(j)[c]);
      value_size = std::max(value_size, double{sizes.v.row(j)[c]});
    }
  }
  const AttentionResult mean_sizes = DenseAttention(sizes, once);
  const std::vector<float> scales = QueryScales(problem);
  const double keys = static_cast<double>(problem.k.rows());
  const int v_dim = problem.shape.v_dim;
  for (int64_t r = 0; r < problem.rows(); ++r) {
    for (int h = 0; h < problem.heads(); ++h) {
      const int64_t index = r * problem.heads() + h;
      const double norms = problem.scale() * problem.query.RowNorm(r) * key_norm;
      const double score = (rounded ? 0 : ScoreError(problem, r, h, scales[index])) +
                           (Rounding(problem.shape.k_dim) + sums) * norms +
                           8 * kUnit * (1 + norms + problem.soft_cap);
      if (std::isinf(exact.lse[index])) {
        ASSERT_EQ(actual.lse[index], exact.lse[index]) << "row " << r << " head " << h;
      } else {
        ASSERT_NEAR(actual.lse[index], exact.lse[index],
                    score + Rounding(keys) + 16 * kUnit * std::abs(exact.lse[index]))
            << "row " << r << " head " << h;
      }
      const double moved = std::exp(2 * score);
      for (int d = 0; d < v_dim; ++d) {
        const int64_t at = index * v_dim + d;
        const double bound = (moved - 1 + moved * (0x1p-4 + sums)) * mean_sizes.o[at] +
                             (keys * 0x1p-18 + Rounding(keys)) * value_size;
        ASSERT_NEAR(actual.o[at], exact.o[at], bound)
            << "row " << r << " head " << h << " element " << d;
      }
    }
  }
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_KERNELS_CPU_FLOAT8_ATTENTION_H_
