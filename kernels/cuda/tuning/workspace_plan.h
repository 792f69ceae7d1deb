#ifndef ANNULUS_KERNELS_CUDA_TUNING_WORKSPACE_PLAN_H_
#define ANNULUS_KERNELS_CUDA_TUNING_WORKSPACE_PLAN_H_

#include <cstddef>

#include "kernels/cuda/runtime.h"
#include "kernels/ops/workspace.h"

// What ops of this backend take of a stream's workspace at most. Pure: host code alone. Each bound
// is that of one op, so what a stream needs is the largest of them.

namespace annulus::cuda {

// Where arrays of an upload begin, and the shortest area for them: so many are on their way at once
// that their stream is rarely waited for.
inline constexpr size_t kUploadAlignment = 64;
inline constexpr size_t kLeastUploads = size_t{1} << 20;

// `library`: whether the stream leaves products of many rows to one. Of `linear` with up to so many
// rows, whichever way it goes.
size_t MostProductScratch(const ProductShape& shape, const DeviceInfo& device, bool library);

// Of `attention`: parts of units that were shared out.
size_t MostAttentionScratch(const WorkShape& most, const DeviceInfo& device);

// Of `block_scores` and `summary_scores`: packed queries, and queries that are copied.
size_t MostScoresScratch(const WorkShape& most);

// Host arrays of any one op.
size_t MostUploads(const WorkShape& most, const DeviceInfo& device);
// Host arrays of a step that is held back as a whole, each of whose items is one row under no
// lists.
size_t HeldUploads(const WorkShape& most, const DeviceInfo& device);

// See Backend::PlanWorkspace.
WorkspaceBytes PlanWorkspace(const WorkShape& most, const DeviceInfo& device, bool library);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_WORKSPACE_PLAN_H_
