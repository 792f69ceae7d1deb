#ifndef ANNULUS_KERNELS_CUDA_TUNING_WORKSPACE_PLAN_H_
#define ANNULUS_KERNELS_CUDA_TUNING_WORKSPACE_PLAN_H_

#include <cstddef>

#include "kernels/cuda/runtime.h"
#include "kernels/ops/workspace.h"

// Upper bounds of the workspace that this backend's ops take of a stream. Pure host code. Each
// bound is for a single op, so a stream needs the largest of them.

namespace annulus::cuda {

// Alignment of arrays in an upload, and the least size of the upload area. It holds so many arrays
// that ops rarely wait for their stream.
inline constexpr size_t kUploadAlignment = 64;
inline constexpr size_t kLeastUploads = size_t{1} << 20;

// For `linear` with up to shape.rows rows, whichever kernel it uses. `library`: whether the stream
// leaves products of many rows to a library.
size_t MostProductScratch(const ProductShape& shape, const DeviceInfo& device, bool library);

// For `attention`: the parts of divided units, or of a round.
size_t MostAttentionScratch(const WorkShape& most, const DeviceInfo& device);

// For `block_scores` and `summary_scores`: packed queries, and copied queries.
size_t MostScoresScratch(const WorkShape& most);

// Host arrays of any one op.
size_t MostUploads(const WorkShape& most, const DeviceInfo& device);
// Host arrays of a step that is held back as a whole; each of its items has one row and no block
// lists.
size_t HeldUploads(const WorkShape& most, const DeviceInfo& device);

// Implements Backend::PlanWorkspace. `library`: whether tables that are not row_invariant have one.
WorkspaceBytes PlanWorkspace(const WorkShape& most, const DeviceInfo& device, bool library);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_WORKSPACE_PLAN_H_
