// Prefill attention of compute capability 9.0 over pages of 8-bit keys and values.
#include "kernels/cuda/sm90/attention_kernel.h"

namespace annulus::cuda {

int LaunchHopperAttentionNarrow(StreamHandle stream, int dim, int64_t blocks,
                                const HopperAttentionArguments& arguments) {
  return LaunchHopperAttentionOf<BFloat16, true>(stream, dim, blocks, arguments);
}

}  // namespace annulus::cuda
