// Prefill attention of compute capability 9.0 over pages of f16 keys and values.
#include "kernels/cuda/sm90/attention_kernel.h"

namespace annulus::cuda {

int LaunchHopperAttentionF16(StreamHandle stream, int dim, int64_t blocks,
                             const HopperAttentionArguments& arguments) {
  return LaunchHopperAttentionOf<Float16, false>(stream, dim, blocks, arguments);
}

}  // namespace annulus::cuda
