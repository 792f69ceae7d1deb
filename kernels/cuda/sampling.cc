// The choice of tokens, on the host side.
#include "kernels/cuda/sm80/sampling.h"

#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/ops.h"
#include "kernels/ops/checks.h"

namespace annulus::cuda {

absl::Status Sample(Stream& stream, const SampleParams& params) {
  CheckSample(params);
  if (params.rows.empty()) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  ANNULUS_ASSIGN_OR_RETURN(const SampleRow* const rows, own->UploadOne(params.rows));
  return StatusOf(LaunchSample(own->handle(), {params.logits, rows, params.tokens}), "sample");
}

}  // namespace annulus::cuda
