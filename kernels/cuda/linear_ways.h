#ifndef ANNULUS_KERNELS_CUDA_LINEAR_WAYS_H_
#define ANNULUS_KERNELS_CUDA_LINEAR_WAYS_H_

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sm80/linear.h"
#include "kernels/cuda/sm90/coded_rows.h"
#include "kernels/ops/linear.h"

namespace annulus::cuda {

// Launches a product of at most kFewRows rows by tensor cores on such a device, all with the same
// weights. Returns 0 or CUDA's error number.
using FewRowsLaunch = int (*)(StreamHandle stream, const DeviceInfo& device,
                              const LinearArguments& arguments);
// The way of all op tables: LaunchFewRowsTensor.
int LaunchStreamed(StreamHandle stream, const DeviceInfo& device, const LinearArguments& arguments);

// Launches a product of more than kFewRows rows by tensor cores on such a device, whose `tiles` are
// those of ManyRowsTiles. Returns 0 or CUDA's error number.
using ManyRowsLaunch = int (*)(StreamHandle stream, const DeviceInfo& device,
                               const ManyRowsArguments& arguments);

// Launches an op that makes rows together with what rounds them: LaunchCodedRows. Returns 0 or
// CUDA's error number.
using CodedRowsLaunch = int (*)(StreamHandle stream, const CodedRowsArguments& arguments);

// Several products of the same rows of inputs, in one launch.
struct JointWay {
  // How many of `parts`, from the first on, are one launch on such a device. 0: the first goes one
  // of the other ways. Null: so do all. Pure.
  size_t (*count)(std::span<const LinearParams> parts, const DeviceInfo& device) = nullptr;
  // Of inputs that are not rounded; with Activations::kFp8 they are codes in float32. Returns 0 or
  // CUDA's error number.
  int (*launch)(StreamHandle stream, const DeviceInfo& device,
                std::span<const LinearArguments> products) = nullptr;
};

// How an op table computes its products.
struct LinearWays {
  bool with_library = true;  // products of many rows may go to cuBLASLt
  FewRowsLaunch few_rows = LaunchStreamed;
  ManyRowsLaunch many_rows = nullptr;  // the others of more than kFewRows rows; not null
  // For products that take codes of rows that the stream keeps back (CudaStream::KeepRows), of all
  // sizes that the table keeps back. Null: those rows are made first, and then rounded.
  CodedRowsLaunch coded_rows = nullptr;
  JointWay joint = {};  // comes before all others
};

// OpTable::linears in these ways.
absl::Status LinearsBy(const LinearWays& ways, Stream& stream, std::span<const LinearParams> parts);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_LINEAR_WAYS_H_
