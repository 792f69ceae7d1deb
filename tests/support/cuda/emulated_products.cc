// kernels/cuda/products.h in plain loops.
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/dtype.h"
#include "kernels/cuda/product_ways.h"
#include "kernels/cuda/products.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/cuda/emulated_streams.h"

namespace annulus::cuda {
namespace {

float FactorAt(const Product& p, const void* factor, int64_t at) {
  if (p.factors == Factors::kFloat8E4M3) {
    return ToFloat(static_cast<const Float8E4M3*>(factor)[at]);
  }
  if (p.factors == Factors::kFloat16) return ToFloat(static_cast<const Float16*>(factor)[at]);
  return ToFloat(static_cast<const BFloat16*>(factor)[at]);
}

void MultiplyNow(const Product& p, std::byte* workspace) {
  const GuardedMemory::Access access(EmulatedDevice::Get().Holder(p.output));
  // Numbers that are none, at both ends: what another part of the scratch begins or ends with.
  constexpr size_t kTouched = size_t{64} << 10;
  std::memset(workspace, 0xff, kTouched);
  std::memset(workspace + Products::kWorkspaceBytes - kTouched, 0xff, kTouched);
  for (int64_t row = 0; row < p.rows; ++row) {
    for (int64_t o = 0; o < p.out; ++o) {
      float sum = p.bias == nullptr ? 0 : p.bias[o];
      for (int64_t i = 0; i < p.in; ++i) {
        sum += FactorAt(p, p.input, row * p.depth + i) * FactorAt(p, p.weight, o * p.depth + i);
      }
      if (p.input_scales != nullptr) sum *= p.input_scales[row] * p.weight_scales[o];
      float& output = p.output[row * p.stride + o];
      output = p.accumulate ? output + sum : sum;
    }
  }
}

bool Aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

// Why cuBLASLt would refuse a product of e4m3; null: it would not.
const char* Fp8Refusal(const Product& p) {
  const EmulatedDevice& device = EmulatedDevice::Get();
  const int capability = 10 * device.major + device.minor;
  if (capability < 89) return "e4m3 before compute capability 8.9";
  if (p.in % 16 != 0 || p.depth % 16 != 0) return "rows of factors that are no multiple of 16";
  if (p.out % 4 != 0 || p.stride % 4 != 0) return "rows of outputs that are no multiple of 4";
  if (!Aligned(p.input) || !Aligned(p.weight) || !Aligned(p.output)) return "alignment";
  if (p.bias != nullptr) return "a bias in float32";
  if ((p.input_scales == nullptr) != (p.weight_scales == nullptr)) return "one side's scales";
  if (p.input_scales != nullptr && capability != 90) return "scales of rows beside 9.0";
  return nullptr;
}

class EmulatedProducts final : public Products {
 public:
  explicit EmulatedProducts(int ordinal) : ordinal_(ordinal) {}

  absl::StatusOr<bool> Serves(const Product& p) override {
    ANNULUS_CHECK(p.depth >= p.in && p.stride >= p.out);
    const absl::StatusOr<const Way*> way =
        ways_.Find(KindOf(p), [&]() -> absl::StatusOr<std::optional<Way>> {
          EmulatedDevice& device = EmulatedDevice::Get();
          ++device.ways_asked;
          if (p.out == device.no_way_for_out) return std::nullopt;
          if (p.input_scales != nullptr && device.no_way_for_scales) return std::nullopt;
          return Way{};
        });
    return *way != nullptr;
  }

  absl::StatusOr<bool> Multiply(StreamHandle stream, const Product& p,
                                std::byte* workspace) override {
    ANNULUS_CHECK(Serves(p).value()) << "a product that the library does not serve";
    ANNULUS_CHECK(CurrentDevice() == ordinal_) << "the thread's device is " << CurrentDevice();
    ANNULUS_CHECK(EmulatedStreams::Get().DeviceOf(stream) == ordinal_)
        << "a library opened for another device";
    const bool fp8 = p.factors == Factors::kFloat8E4M3;
    const char* const refusal = fp8 ? Fp8Refusal(p) : nullptr;
    if (refusal != nullptr) {
      return absl::InternalError(absl::StrCat("the emulated library refuses: ", refusal));
    }
    // What the library takes for granted of factors where it is told nothing else
    // (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES and _B_BYTES), and of its workspace.
    for (const void* const address : {p.input, p.weight, static_cast<const void*>(workspace)}) {
      ANNULUS_CHECK(reinterpret_cast<uintptr_t>(address) % 256 == 0) << "alignment of a product";
    }
    if (p.out == EmulatedDevice::Get().unsupported_out) {
      ways_.Drop(KindOf(p));
      return false;
    }
    ++EmulatedDevice::Get().library_products;
    if (fp8) ++EmulatedDevice::Get().fp8_products;
    EmulatedStreams::Get().Enqueue(stream, [p, workspace] {
      MultiplyNow(p, workspace);
      return true;
    });
    return true;
  }

 private:
  struct Way {};  // there is but one

  const int ordinal_;
  ProductWays<Way> ways_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Products>> OpenProducts() {
  if (!EmulatedDevice::Get().products) {
    return absl::FailedPreconditionError("the emulated device has no library");
  }
  return std::make_unique<EmulatedProducts>(CurrentDevice());
}

}  // namespace annulus::cuda
