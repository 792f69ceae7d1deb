#ifndef ANNULUS_TESTS_ENGINE_MODEL_GATED_SOURCE_H_
#define ANNULUS_TESTS_ENGINE_MODEL_GATED_SOURCE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/files/tensor_source.h"
#include "engine/model/made/random_tensors.h"
#include "engine/model/model_config.h"

namespace annulus::testing {

// Random weights whose reads fail, or wait for a minute at most, as a test says. Thread-safe.
class GatedSource final : public TensorSource {
 public:
  explicit GatedSource(const ModelConfig& config) : source_(MakeRandomTensors(config, 3)) {}

  std::vector<std::string> Names() const override { return source_->Names(); }
  bool Has(absl::string_view name) const override { return source_->Has(name); }
  absl::StatusOr<TensorInfo> Describe(absl::string_view name) const override {
    return source_->Describe(name);
  }
  absl::Status Read(absl::string_view name, std::span<std::byte> destination) const override {
    const absl::Status passed = Pass();
    return passed.ok() ? source_->Read(name, destination) : passed;
  }
  absl::Status ReadRange(absl::string_view name, size_t offset,
                         std::span<std::byte> destination) const override {
    const absl::Status passed = Pass();
    return passed.ok() ? source_->ReadRange(name, offset, destination) : passed;
  }

  void Fail(bool fails) { fails_ = fails; }
  void Close(bool closed) {
    const std::lock_guard lock(mutex_);
    closed_ = closed;
    changed_.notify_all();
  }
  // Reads that wait until the source is open.
  int waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_;
  }

 private:
  static constexpr std::chrono::seconds kLong{60};

  absl::Status Pass() const {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.wait_for(lock, kLong, [this] { return !closed_; });
    --waiting_;
    return fails_ ? absl::DataLossError("truncated") : absl::OkStatus();
  }

  const std::unique_ptr<TensorSource> source_;
  std::atomic<bool> fails_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool closed_ = false;  // guarded by mutex_, as waiting_
  mutable int waiting_ = 0;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_MODEL_GATED_SOURCE_H_
