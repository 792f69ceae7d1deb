#ifndef ANNULUS_KERNELS_CUDA_SM80_ATTENTION_KERNEL_H_
#define ANNULUS_KERNELS_CUDA_SM80_ATTENTION_KERNEL_H_

// Attention over pages by the tensor cores of compute capability 8.0 and up, of many rows
// (attention_prefill.h) and of few (attention_decode.h): all instances. Scores, weights and sums
// are float32; queries and weights are rounded to the operand type T.
//
// The order in which a row is summed depends on the shape and on its unit (the first page, and how
// many pages a part has): see OpTable::row_invariant.
#include "kernels/cuda/sm80/attention_decode.h"
#include "kernels/cuda/sm80/attention_prefill.h"

namespace annulus::cuda {

// Calls `use` with the Config for few rows of a dimension. With WithPrefillConfig, these are all
// instances: 3 head dimensions by 2 shapes for every class of storage.
template <class T, bool kNarrow, class Use>
auto WithDecodeConfig(int dim, const Use& use) {
  if (dim <= 64) return use(DecodeConfig<T, kNarrow, 64>{});
  if (dim <= 128) return use(DecodeConfig<T, kNarrow, 128>{});
  return use(DecodeConfig<T, kNarrow, 256>{});
}

template <class T, bool kNarrow>
int LaunchAttentionOf(StreamHandle stream, AttentionShape shape, int dim, int64_t units,
                      const AttentionArguments& a) {
  if (shape == AttentionShape::kDecode) {
    return WithDecodeConfig<T, kNarrow>(dim, [&](auto config) {
      return LaunchDecodeAttention<decltype(config)>(stream, units, a);
    });
  }
  return WithPrefillConfig<T, kNarrow>(
      dim, [&](auto config) { return LaunchPrefill<decltype(config)>(stream, units, a); });
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ATTENTION_KERNEL_H_
