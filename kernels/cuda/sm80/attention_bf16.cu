// Attention over pages of bf16 keys and values.
#include "kernels/cuda/sm80/attention_kernel.h"

namespace annulus::cuda {

int LaunchAttentionBf16(StreamHandle stream, AttentionShape shape, int dim, int64_t units,
                        const AttentionArguments& arguments) {
  return LaunchAttentionOf<BFloat16, false>(stream, shape, dim, units, arguments);
}

size_t AttentionBytes(AttentionShape shape, int dim) {
  if (shape == AttentionShape::kPrefill) {
    return WithPrefillConfig<BFloat16, false>(
        dim, [](auto config) { return sizeof(PrefillShared<decltype(config)>); });
  }
  return WithAttentionConfig<BFloat16, false>(
      dim, [](auto config) { return sizeof(AttentionShared<decltype(config)>); });
}

}  // namespace annulus::cuda
