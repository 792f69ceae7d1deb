// Attention over pages of bf16 keys and values.
#include "kernels/cuda/sm80/attention_kernel.h"

namespace annulus::cuda {

int LaunchAttentionBf16(StreamHandle stream, AttentionShape shape, int dim, int64_t units,
                        const AttentionArguments& arguments) {
  return LaunchAttentionOf<BFloat16, false>(stream, shape, dim, units, arguments);
}

size_t AttentionBytes(AttentionShape shape, int dim) {
  if (shape == AttentionShape::kDecode) {
    return WithDecodeConfig<BFloat16, false>(
        dim, [](auto config) { return sizeof(DecodeShared<decltype(config)>); });
  }
  return WithPrefillConfig<BFloat16, false>(
      dim, [](auto config) { return sizeof(PrefillShared<decltype(config)>); });
}

}  // namespace annulus::cuda
