// The choice of tokens, on the host side.
#include "kernels/cuda/sm80/sampling.h"

#include <span>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/ops.h"
#include "kernels/ops/checks.h"

namespace annulus::cuda {
namespace {

// Everything of one call. Rows come last: they say where the rest lies, and where that grows, they
// move from one step of a graph to the next, and nothing else that the kernel is given.
absl::StatusOr<const SampleRow*> UploadRows(CudaStream& stream, std::span<const SampleRow> rows) {
  size_t bytes = rows.size_bytes() + CudaStream::kUploadAlignment;
  for (const SampleRow& row : rows) {
    bytes += row.edits.size_bytes() + row.seen.size_bytes() + row.allowed.size_bytes() +
             3 * CudaStream::kUploadAlignment;
  }
  ANNULUS_RETURN_IF_ERROR(stream.BeginUpload(bytes));
  std::vector<SampleRow> there(rows.begin(), rows.end());
  for (SampleRow& row : there) {
    row.seen = {stream.Upload(row.seen), row.seen.size()};
    row.allowed = {stream.Upload(row.allowed), row.allowed.size()};
    row.edits = {stream.Upload(row.edits), row.edits.size()};
  }
  const SampleRow* const address = stream.Upload(std::span<const SampleRow>(there));
  ANNULUS_RETURN_IF_ERROR(stream.SendUpload());
  return address;
}

}  // namespace

absl::Status Sample(Stream& stream, const SampleParams& params) {
  CheckSample(params);
  if (params.rows.empty()) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  ANNULUS_ASSIGN_OR_RETURN(const SampleRow* const rows, UploadRows(*own, params.rows));
  return StatusOf(LaunchSample(own->handle(), {params.logits, rows, params.tokens}), "sample");
}

}  // namespace annulus::cuda
