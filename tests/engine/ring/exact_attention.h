#ifndef ANNULUS_TESTS_ENGINE_RING_EXACT_ATTENTION_H_
#define ANNULUS_TESTS_ENGINE_RING_EXACT_ATTENTION_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/dtype.h"
#include "tests/engine/ring/ring_world.h"

namespace annulus::testing {

// Attention of one row and head in float64, in the plainest way, and the norms that bound what
// float32 kernels may differ from it.
struct ExactRow {
  std::vector<double> o;  // [v_dim]
  double lse = 0;
  int keys = 0;
  double score = 0;  // largest scale * sum_d |q_d k_d|
  double value = 0;  // largest |v|
};

// Two channels at a time: most of the suite's time is spent here.
using Lanes = double __attribute__((vector_size(16)));
inline Lanes ReadLanes(const float* values) { return Lanes{values[0], values[1]}; }
inline Lanes Magnitude(Lanes x) { return x < 0 ? -x : x; }

// `query` is the row's and head's [k_dim]; `key` and `value` hold positions 0..position, [columns].
// k_dim and v_dim are even.
inline ExactRow AttendExactly(const RingShape& s, int32_t position, int head, const float* query,
                              const float* key, const float* value) {
  ExactRow row;
  const int kv = head / (s.heads / s.kv_heads);
  const int32_t first = s.window > 0 ? std::max(0, position - s.window + 1) : 0;
  row.keys = position - first + 1;
  std::vector<double> scores;
  double top = -INFINITY;
  for (int32_t j = first; j <= position; ++j) {
    const float* const k = &key[j * s.key_columns() + kv * s.k_dim];
    Lanes score = {};
    Lanes norm = {};
    for (int d = 0; d < s.k_dim; d += 2) {
      const Lanes product = ReadLanes(query + d) * ReadLanes(k + d);
      score += product;
      norm += Magnitude(product);
    }
    scores.push_back((score[0] + score[1]) * s.scale());
    row.score = std::max(row.score, (norm[0] + norm[1]) * s.scale());
    top = std::max(top, scores.back());
  }
  double sum = 0;
  row.o.assign(s.v_dim, 0);
  Lanes largest = {};
  for (int32_t j = first; j <= position; ++j) {
    const double weight = std::exp(scores[j - first] - top);
    sum += weight;
    const float* const v = &value[j * s.value_columns() + kv * s.v_dim];
    for (int d = 0; d < s.v_dim; d += 2) {
      const Lanes lanes = ReadLanes(v + d);
      const Lanes weighted = weight * lanes;
      row.o[d] += weighted[0];
      row.o[d + 1] += weighted[1];
      const Lanes magnitude = Magnitude(lanes);
      largest = magnitude > largest ? magnitude : largest;
    }
  }
  row.value = std::max(largest[0], largest[1]);
  for (double& o : row.o) o /= sum;
  row.lse = top + std::log(sum);
  return row;
}

// How far a kernel's result may be from the exact one, to first order in its roundings:
// - a score is k_dim float32 products and sums of operands rounded to `operand`: off by at most
//   delta = (k_dim + 2) eps score + 2 operand score;
// - a weight is then off by the factor delta + exp, where exp is the relative error of the kernel's
//   exponential and of its argument, 2 eps score;
// - weights, and values that pages hold in 8 bits, may be rounded to `operand` before they meet;
//   where they are, exp is below `operand` too;
// - numerator and denominator sum `keys` terms each, off by keys eps;
// - each merge forms two weights from two lse, each at most |score| + log(keys) large.
struct AttentionTolerance {
  double o = 0;
  double lse = 0;
};
inline AttentionTolerance Tolerance(const RingShape& s, const ExactRow& row, double operand,
                                    int merges) {
  const double eps = std::numeric_limits<float>::epsilon() / 2;
  const double exponential = 4e-6 + 2 * eps * row.score;
  const double weight = (s.k_dim + 2) * eps * row.score + 2 * operand * (row.score + 1) +
                        exponential + row.keys * eps;
  const double lse = row.score + std::log(static_cast<double>(row.keys));
  const double merge = merges * eps * (2 * lse + 4);
  return {row.value * (2 * weight + operand + 2 * merge + eps), weight + merge + 2 * eps * lse};
}

// Every row of `output` against the exact result over `key` and `value` (positions 0.., as stored).
inline void ExpectExact(const RingShape& s, const std::vector<float>& query,
                        const std::vector<float>& key, const std::vector<float>& value,
                        const RingRows& rows, const RingOutput& output, double operand,
                        int merges) {
  for (int32_t position = rows.begin; position < rows.end; ++position) {
    const int64_t at = position - rows.begin;
    for (int head = 0; head < s.heads; ++head) {
      const ExactRow exact = AttendExactly(
          s, position, head, &query[position * s.query_columns() + int64_t{head} * s.k_dim],
          key.data(), value.data());
      const AttentionTolerance allowed = Tolerance(s, exact, operand, merges);
      ASSERT_NEAR(output.lse[at * s.heads + head], exact.lse, allowed.lse)
          << "row " << position << " head " << head;
      for (int d = 0; d < s.v_dim; ++d) {
        ASSERT_NEAR(output.o[at * s.output_columns() + int64_t{head} * s.v_dim + d], exact.o[d],
                    allowed.o)
            << "row " << position << " head " << head << " channel " << d;
      }
    }
  }
}

// Most that storing as `dtype` may change `value`, one of a head whose largest magnitude is
// `largest`: half a unit in the last place, or half the spacing of the smallest numbers. int8 has
// one bf16 scale for the head, at most 2^-8 off largest / 127.
inline double StorageTolerance(DType dtype, double value, double largest) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kBF16:
      return std::abs(value) * 0x1p-8;
    case DType::kF16:
      return std::max(std::abs(value) * 0x1p-11, 0x1p-25);
    case DType::kF8E4M3:
      return std::max(std::abs(value) * 0x1p-4, 0x1p-10);
    case DType::kF8E5M2:
      return std::max(std::abs(value) * 0x1p-3, 0x1p-17);
    case DType::kI8:
      return largest / 127 * 0.5 * (1 + 0x1p-8) + largest * 0x1p-8;
    default:
      ADD_FAILURE() << "no page holds " << DTypeName(dtype);
      return 0;
  }
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_RING_EXACT_ATTENTION_H_
