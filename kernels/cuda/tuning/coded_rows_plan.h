#ifndef ANNULUS_KERNELS_CUDA_TUNING_CODED_ROWS_PLAN_H_
#define ANNULUS_KERNELS_CUDA_TUNING_CODED_ROWS_PLAN_H_

#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sm80/rows/rows_op.h"

namespace annulus::cuda {

// Whether `op` should be kept back, so that a product can take its rows with their codes
// (sm90/coded_rows.h). Not on devices without clusters, nor for rows that do not fit the shared
// memory of a block; nor for as many rows as a library multiplies (kLibraryRows), because each
// block of a norm reads the whole row. Pure.
bool MakesCodedRows(const RowsOp& op, const DeviceInfo& device);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_CODED_ROWS_PLAN_H_
