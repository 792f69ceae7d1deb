#ifndef ANNULUS_KERNELS_CUDA_SM90_CODED_ROWS_H_
#define ANNULUS_KERNELS_CUDA_SM90_CODED_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/sm80/elementwise.h"
#include "kernels/cuda/sm80/rows/rows_op.h"

namespace annulus::cuda {

struct CodedRowsArguments {
  RowsOp op;
  // What LaunchRoundRows would be told of the op's output: kFloat8, kFloat8Steps or kFloat8Wide.
  RoundRowsArguments codes;
};
// LaunchRowsOp and then LaunchRoundRows of its output, bit for bit, as one kernel of compute
// capability 9.0. A cluster of kMostClusterBlocks blocks makes a row, each a part of its columns,
// and they exchange their largest magnitudes. So a row that is rounded is not read back from
// memory, and decoding has one kernel less before the products. Returns 0 or CUDA's error number.
// On trial: see trial.h.
int LaunchCodedRows(StreamHandle stream, const CodedRowsArguments& arguments);
// Bytes of shared memory per block, of rows with codes for `depth` elements. Pure.
size_t CodedRowsBytes(const RowsOp& op, int64_t depth);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_CODED_ROWS_H_
