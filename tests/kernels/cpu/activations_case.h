#ifndef ANNULUS_TESTS_KERNELS_CPU_ACTIVATIONS_CASE_H_
#define ANNULUS_TESTS_KERNELS_CPU_ACTIVATIONS_CASE_H_

#include <algorithm>
#include <cstdint>
#include <random>

#include "gtest/gtest.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::testing {

// A linear layer whose inputs become codes, with weights of a dtype that this needs.
struct ActivationsCase {
  ActivationsCase(Activations activations, DType weights, int64_t rows, int64_t in, int64_t out,
                  uint32_t seed)
      : activations(activations),
        weights(weights),
        random(seed),
        input(rows, in, 3),
        weight(out, in),
        bias(1, out),
        initial(rows, out, 5) {
    input.FillNormal(random);
    weight.FillNormal(random);
    bias.FillNormal(random);
    initial.FillNormal(random);
  }

  // `step` rows at a time.
  TestMatrix Run(const OpTable& table, bool with_bias, bool accumulate, int64_t step) const {
    return Run(table, Pack(table, weight, weights), with_bias, accumulate, step);
  }
  TestMatrix Run(const OpTable& table, const PackedMatrix& packed, bool with_bias, bool accumulate,
                 int64_t step) const {
    TestMatrix output = initial;
    const auto stream = MakeStream(table, 2);
    for (int64_t begin = 0; begin < input.rows(); begin += step) {
      const int64_t count = std::min(step, input.rows() - begin);
      LinearParams params;
      params.input = input.view().row_range(begin, count);
      params.weight = &packed;
      params.bias = with_bias ? bias.row(0) : nullptr;
      params.accumulate = accumulate;
      params.output = output.view().row_range(begin, count);
      params.activations = activations;
      EXPECT_TRUE(table.linear(*stream, params).ok());
    }
    EXPECT_TRUE(stream->Synchronize().ok());
    EXPECT_TRUE(output.PaddingUntouched());
    return output;
  }

  Activations activations;
  DType weights;
  std::mt19937 random;
  TestMatrix input;
  TestMatrix weight;
  TestMatrix bias;
  TestMatrix initial;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_KERNELS_CPU_ACTIVATIONS_CASE_H_
