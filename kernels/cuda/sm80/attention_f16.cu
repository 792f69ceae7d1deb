// Attention over pages of f16 keys and values.
#include "kernels/cuda/sm80/attention_kernel.h"

namespace annulus::cuda {

int LaunchAttentionF16(StreamHandle stream, AttentionShape shape, int dim, int64_t units,
                       const AttentionArguments& arguments) {
  return LaunchAttentionOf<Float16, false>(stream, shape, dim, units, arguments);
}

}  // namespace annulus::cuda
