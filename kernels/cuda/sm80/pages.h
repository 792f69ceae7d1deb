#ifndef ANNULUS_KERNELS_CUDA_SM80_PAGES_H_
#define ANNULUS_KERNELS_CUDA_SM80_PAGES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/cuda/common/page_layout.h"
#include "kernels/cuda/common/stream_handle.h"
#include "kernels/ops/attention.h"

// Launches of the kernels that write and read pages and merge attention states. All pointers are
// device addresses. Each function returns 0 or CUDA's error number.

namespace annulus::cuda {

struct KvAppendArguments {
  PageLayout layout;
  ConstMatrixView k;
  ConstMatrixView v;
  std::byte* const* pages;  // [k.rows]
  const int32_t* slots;     // [k.rows]
};
int LaunchKvAppend(StreamHandle stream, const KvAppendArguments& arguments);

struct KvReadArguments {
  PageLayout layout;
  const std::byte* page;
  MatrixView k;
  MatrixView v;
};
int LaunchKvRead(StreamHandle stream, const KvReadArguments& arguments);

// into = into (+) from; if from_o is null, into = into (+) {0, sink[head]}.
struct MergeArguments {
  AttentionState into;
  const float* from_o;  // null: merge sinks
  const float* from_lse;
  const float* sink;
};
int LaunchMerge(StreamHandle stream, const MergeArguments& arguments);

// The address of some kernel of sm80/, for FindImage: all of sm80/ is compiled for the same
// architectures.
const void* AnyKernel();

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_PAGES_H_
