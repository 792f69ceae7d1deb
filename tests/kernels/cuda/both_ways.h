#ifndef ANNULUS_TESTS_KERNELS_CUDA_BOTH_WAYS_H_
#define ANNULUS_TESTS_KERNELS_CUDA_BOTH_WAYS_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device_waits.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/trial.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::cuda {

inline DeviceInfo HopperWith(int multiprocessors) {
  DeviceInfo device = FindDevices()->front();
  device.multiprocessors = multiprocessors;
  return device;
}

struct ProductSize {
  int64_t rows;
  int64_t in;
  int64_t out;
};

// Products of "cuda/sm90" and of a table that is on trial beside it, on a stream of such a device.
class BothWays {
 public:
  BothWays(const ProductSize& shape, const DeviceInfo& device,
           const OpTable& trial = TrialOf(HopperOps()).value())
      : shape_(shape),
        trial_(trial),
        input_(shape.rows, shape.in, 1),
        source_(shape.out, shape.in) {
    std::mt19937 random(static_cast<uint32_t>(shape.in));
    input_.FillNormal(random);
    source_.FillNormal(random);
    bias_.FillNormal(random);
    const auto waits = std::make_shared<DeviceWaits>(std::chrono::seconds(60));
    stream_ = CudaStream::Create(device, waits, /*with_library=*/false).value();
  }

  // Adds to an output that is there already; in a graph if `held`.
  testing::TestMatrix MultiplyBy(const OpTable& table, const PackedMatrix& weight,
                                 Activations activations, bool held) {
    testing::TestMatrix output(shape_.rows, shape_.out, 2);
    for (int64_t r = 0; r < shape_.rows; ++r) std::fill_n(output.row(r), shape_.out, 0.5f);
    LinearParams params;
    params.input = input_.view();
    params.weight = &weight;
    params.bias = bias_.row(0);
    params.output = output.view();
    params.accumulate = true;
    params.activations = activations;
    const auto graph = held ? stream_->BeginGraph().value() : nullptr;
    EXPECT_TRUE(table.linear(*stream_, params).ok());
    if (held) {
      EXPECT_TRUE(graph->Launch().ok());
    }
    EXPECT_TRUE(stream_->Synchronize().ok());
    EXPECT_TRUE(output.PaddingUntouched());
    return output;
  }

  void ExpectSameBits(DType dtype, Activations activations, bool held) {
    const PackedMatrix weight = testing::Pack(old_, source_, dtype);
    const testing::TestMatrix whole = MultiplyBy(old_, weight, activations, held);
    const testing::TestMatrix split = MultiplyBy(trial_, weight, activations, held);
    for (int64_t r = 0; r < shape_.rows; ++r) {
      ASSERT_TRUE(testing::SameBits(whole.row(r), split.row(r), shape_.out)) << "row " << r;
    }
  }

 private:
  const ProductSize shape_;
  const OpTable old_ = HopperOps();
  const OpTable trial_;
  testing::TestMatrix input_;
  testing::TestMatrix source_;
  testing::TestMatrix bias_{1, shape_.out};
  std::unique_ptr<CudaStream> stream_;
};

// Of every dtype of weights that tensor cores multiply, and of fp8 with inputs that are codes too.
inline void ExpectSameBitsOfAll(const ProductSize& shape, const DeviceInfo& device,
                                const OpTable& trial = TrialOf(HopperOps()).value()) {
  BothWays both(shape, device, trial);
  for (const DType dtype : testing::kWeightDTypes) {
    if (dtype == DType::kF32 || dtype == DType::kF16) continue;
    SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " in " << shape.in << " out "
                                      << shape.out << " rows " << shape.rows);
    both.ExpectSameBits(dtype, Activations::kFloat, /*held=*/false);
    if (dtype == DType::kF8E4M3) both.ExpectSameBits(dtype, Activations::kFp8, /*held=*/false);
  }
}

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_KERNELS_CUDA_BOTH_WAYS_H_
