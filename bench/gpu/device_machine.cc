#include "bench/gpu/device_machine.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/gpu/op_timer.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

// Rows of weights or inputs that are drawn; they repeat.
constexpr int64_t kDrawnRows = 1024;
static_assert(kDrawnRows % kPackRows == 0);

class CopyMeter final : public MemoryMeter {
 public:
  explicit CopyMeter(OpTimer& timer) : timer_(timer) {}

  absl::StatusOr<double> BytesPerSecond() override {
    ANNULUS_RETURN_IF_ERROR(timer_.TimeCopy());
    return timer_.copied_bytes() / timer_.copy_seconds();
  }

 private:
  OpTimer& timer_;
};

class DeviceMachine final : public BenchMachine {
 public:
  DeviceMachine(std::unique_ptr<Backend> backend, KernelRegistry kernels,
                const DeviceMachineOptions& options)
      : options_(options), backend_(std::move(backend)), kernels_(std::move(kernels)) {}

  absl::Status Start();

  Backend& backend() override { return *backend_; }
  const KernelRegistry& kernels() const override { return kernels_; }

  absl::Status ChooseProducts(DType weights) override;
  absl::StatusOr<CeilingRates> MeasureProducts() override;
  std::string products_name() const override {
    return absl::StrCat(in_fp8() ? "fp8" : "bf16", "_products");
  }

  absl::StatusOr<std::unique_ptr<MemoryMeter>> TakeMemoryMeter() override {
    return std::make_unique<CopyMeter>(*timer_);
  }
  std::string memory_name() const override { return "copy"; }

 private:
  bool in_fp8() const {
    return options_.activations == Activations::kFp8 && weights_ == DType::kF8E4M3;
  }
  absl::Status MakeWeight(const std::vector<float>& drawn, DType dtype);
  absl::Status MakeInput(const std::vector<float>& drawn);

  const DeviceMachineOptions options_;
  const std::unique_ptr<Backend> backend_;
  const KernelRegistry kernels_;
  const OpTable* ops_ = nullptr;
  std::unique_ptr<Stream> stream_;
  std::optional<OpTimer> timer_;
  DType weights_ = DType::kBF16;  // of the model
  PackedMatrix weight_;
  DeviceBuffer input_, output_;
};

absl::Status DeviceMachine::Start() {
  const std::vector<const OpTable*> tables = kernels_.Available(backend_->capabilities().name);
  if (tables.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this program has no kernels for ", backend_->capabilities().description));
  }
  ops_ = tables.front();
  ANNULUS_ASSIGN_OR_RETURN(stream_, backend_->CreateStream(1));
  ANNULUS_ASSIGN_OR_RETURN(
      OpTimer timer,
      OpTimer::Create(*backend_, *stream_, options_.enough_seconds, options_.copied_bytes));
  timer_.emplace(std::move(timer));
  return absl::OkStatus();
}

absl::Status DeviceMachine::MakeWeight(const std::vector<float>& drawn, DType dtype) {
  ANNULUS_ASSIGN_OR_RETURN(weight_,
                           CreateMatrix(*ops_, *backend_, options_.out, options_.in, dtype));
  for (int64_t first = 0; first < options_.out; first += kDrawnRows) {
    const int64_t rows = std::min(kDrawnRows, options_.out - first);
    ANNULUS_RETURN_IF_ERROR(
        ops_->pack_rows(weight_, first, {drawn.data(), DType::kF32, rows, options_.in}, nullptr));
  }
  return absl::OkStatus();
}

absl::Status DeviceMachine::MakeInput(const std::vector<float>& drawn) {
  const auto floats = static_cast<size_t>(options_.rows * options_.in);
  ANNULUS_ASSIGN_OR_RETURN(input_, backend_->Allocate(floats * sizeof(float)));
  for (size_t at = 0; at < floats; at += drawn.size()) {
    const size_t count = std::min(drawn.size(), floats - at);
    ANNULUS_RETURN_IF_ERROR(
        backend_->Copy(*stream_, input_.as<float>() + at, drawn.data(), count * sizeof(float)));
  }
  return stream_->Synchronize();
}

absl::Status DeviceMachine::ChooseProducts(DType weights) {
  weights_ = weights;
  const DType dtype = in_fp8() ? DType::kF8E4M3 : DType::kBF16;
  if (weight_.storage.size() > 0 && weight_.dtype == dtype) return absl::OkStatus();
  std::mt19937 random(1);
  std::vector<float> drawn(static_cast<size_t>(kDrawnRows * options_.in));
  for (float& x : drawn) x = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
  ANNULUS_RETURN_IF_ERROR(MakeWeight(drawn, dtype));
  ANNULUS_RETURN_IF_ERROR(MakeInput(drawn));
  const auto outputs = static_cast<size_t>(options_.rows * options_.out);
  ANNULUS_ASSIGN_OR_RETURN(output_, backend_->Allocate(outputs * sizeof(float)));
  return absl::OkStatus();
}

absl::StatusOr<CeilingRates> DeviceMachine::MeasureProducts() {
  LinearParams params;
  params.input = {input_.as<float>(), options_.rows, options_.in, options_.in};
  params.weight = &weight_;
  params.output = {output_.as<float>(), options_.rows, options_.out, options_.out};
  params.activations = in_fp8() ? Activations::kFp8 : Activations::kFloat;
  ANNULUS_ASSIGN_OR_RETURN(const OpSeconds seconds,
                           timer_->Time([&] { return ops_->linear(*stream_, params); }));
  const double operations =
      2.0 * static_cast<double>(options_.rows * options_.in) * static_cast<double>(options_.out);
  return CeilingRates{operations / seconds.device, 0};
}

}  // namespace

absl::StatusOr<std::unique_ptr<BenchMachine>> OpenDeviceMachine(
    std::unique_ptr<Backend> backend, KernelRegistry kernels, const DeviceMachineOptions& options) {
  auto machine = std::make_unique<DeviceMachine>(std::move(backend), std::move(kernels), options);
  ANNULUS_RETURN_IF_ERROR(machine->Start());
  return machine;
}

}  // namespace annulus::bench
