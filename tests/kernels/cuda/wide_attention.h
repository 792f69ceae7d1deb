#ifndef ANNULUS_TESTS_KERNELS_CUDA_WIDE_ATTENTION_H_
#define ANNULUS_TESTS_KERNELS_CUDA_WIDE_ATTENTION_H_

#include "tests/kernels/cpu/attention_fixture.h"

namespace annulus::testing {

// Some rows of many positions, of which `FillProblem` makes the rest: two units of each kv head and
// a part of a third, and tiles enough to use every stage of shared memory again.
inline Problem WideProblem(DType dtype, int page_tokens, int dim) {
  Problem problem;
  problem.shape = {
      .page_tokens = page_tokens, .kv_heads = 2, .k_dim = dim, .v_dim = dim, .dtype = dtype};
  problem.group = 2;
  problem.end = 700;
  problem.positions = Consecutive(560, 130);
  return problem;
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_KERNELS_CUDA_WIDE_ATTENTION_H_
