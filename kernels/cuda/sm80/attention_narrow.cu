// Attention over pages of 8-bit keys and values.
#include "kernels/cuda/sm80/attention_kernel.h"

namespace annulus::cuda {

int LaunchAttentionNarrow(StreamHandle stream, AttentionShape shape, int dim, int64_t units,
                          const AttentionArguments& arguments) {
  return LaunchAttentionOf<BFloat16, true>(stream, shape, dim, units, arguments);
}

}  // namespace annulus::cuda
