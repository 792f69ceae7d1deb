#include "kernels/cuda/tuning/coded_rows_plan.h"

#include "kernels/cuda/ops.h"
#include "kernels/cuda/sm80/linear.h"
#include "kernels/cuda/sm90/coded_rows.h"

namespace annulus::cuda {

bool MakesCodedRows(const RowsOp& op, const DeviceInfo& device) {
  const MatrixView output = op.output();
  const int64_t depth = (output.cols + kRoundedDepth - 1) / kRoundedDepth * kRoundedDepth;
  return device.major == 9 && device.minor == 0 && output.rows > 0 && output.rows < kLibraryRows &&
         CodedRowsBytes(op, depth) <= device.shared_bytes;
}

}  // namespace annulus::cuda
