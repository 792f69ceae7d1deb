#include "bench/model/host_machine.h"

#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"

namespace annulus::bench {
namespace {

class HostMemoryMeter final : public MemoryMeter {
 public:
  HostMemoryMeter(const PeakMeter& meter, int threads, ReadBuffer buffer)
      : meter_(meter), threads_(threads), buffer_(std::move(buffer)) {}

  absl::StatusOr<double> BytesPerSecond() override { return meter_.ReadOnce(buffer_, threads_); }
  int64_t host_bytes() const override { return static_cast<int64_t>(buffer_.bytes()); }

 private:
  const PeakMeter& meter_;
  const int threads_;
  const ReadBuffer buffer_;
};

class HostMachine final : public BenchMachine {
 public:
  HostMachine(const PeakMeter& meter, int threads, std::optional<PeakKind> peak,
              std::optional<ForcedRouting> routing, std::unique_ptr<Backend> backend)
      : meter_(meter), threads_(threads), peak_(peak), backend_(std::move(backend)) {
    if (routing.has_value()) {
      RegisterForcedKernels(*routing, kernels_);
    } else {
      RegisterCpuKernels(kernels_);
    }
  }

  Backend& backend() override { return *backend_; }
  const KernelRegistry& kernels() const override { return kernels_; }

  absl::Status ChooseProducts(DType weights) override {
    ANNULUS_ASSIGN_OR_RETURN(ceiling_, Ceiling::Choose(meter_, weights, threads_, peak_));
    return absl::OkStatus();
  }
  absl::StatusOr<CeilingRates> MeasureProducts() override { return ceiling_->Measure(); }
  std::string products_name() const override { return std::string(PeakName(ceiling_->best())); }
  std::string vector_name() const override { return std::string(PeakName(ceiling_->vector())); }

  absl::StatusOr<std::unique_ptr<MemoryMeter>> TakeMemoryMeter() override {
    ANNULUS_ASSIGN_OR_RETURN(ReadBuffer buffer, meter_.TakeReadBuffer());
    return std::make_unique<HostMemoryMeter>(meter_, threads_, std::move(buffer));
  }
  std::string memory_name() const override { return std::string(PeakName(PeakKind::kMemoryRead)); }

 private:
  const PeakMeter& meter_;
  const int threads_;
  const std::optional<PeakKind> peak_;
  const std::unique_ptr<Backend> backend_;
  KernelRegistry kernels_;
  std::optional<Ceiling> ceiling_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BenchMachine>> OpenHostMachine(
    const PeakMeter& meter, int threads, std::optional<PeakKind> peak,
    std::optional<ForcedRouting> routing) {
  ANNULUS_ASSIGN_OR_RETURN(auto backend, CreateCpuBackend({.shared_threads = threads}));
  return std::make_unique<HostMachine>(meter, threads, peak, routing, std::move(backend));
}

}  // namespace annulus::bench
