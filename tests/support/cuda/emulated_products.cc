// kernels/cuda/products.h in plain loops.
#include "kernels/base/check.h"
#include "kernels/base/dtype.h"
#include "kernels/cuda/products.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/cuda/emulated_streams.h"

namespace annulus::cuda {
namespace {

void MultiplyNow(const Product& p, std::byte* workspace) {
  const GuardedMemory::Access access(EmulatedDevice::Get().Holder(p.output));
  workspace[Products::kWorkspaceBytes - 1] = std::byte{0};
  const auto* const input = static_cast<const BFloat16*>(p.input);
  const auto* const weight = static_cast<const BFloat16*>(p.weight);
  for (int64_t row = 0; row < p.rows; ++row) {
    for (int64_t o = 0; o < p.out; ++o) {
      float sum = p.bias == nullptr ? 0 : p.bias[o];
      for (int64_t i = 0; i < p.in; ++i) {
        sum += ToFloat(input[row * p.depth + i]) * ToFloat(weight[o * p.depth + i]);
      }
      float& output = p.output[row * p.stride + o];
      output = p.accumulate ? output + sum : sum;
    }
  }
}

class EmulatedProducts final : public Products {
 public:
  explicit EmulatedProducts(int ordinal) : ordinal_(ordinal) {}

  absl::Status Multiply(StreamHandle stream, const Product& p, std::byte* workspace) override {
    ANNULUS_CHECK(reinterpret_cast<uintptr_t>(workspace) % 256 == 0);
    ANNULUS_CHECK(p.depth >= p.in && p.stride >= p.out);
    ANNULUS_CHECK(EmulatedStreams::Get().DeviceOf(stream) == ordinal_)
        << "a library opened for another device";
    EmulatedStreams::Get().Enqueue(stream, [p, workspace] {
      MultiplyNow(p, workspace);
      return true;
    });
    return absl::OkStatus();
  }

 private:
  const int ordinal_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Products>> OpenProducts() {
  if (!EmulatedDevice::Get().products) {
    return absl::FailedPreconditionError("the emulated device has no library");
  }
  return std::make_unique<EmulatedProducts>(CurrentDevice());
}

}  // namespace annulus::cuda
