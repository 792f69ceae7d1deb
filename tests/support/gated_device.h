#ifndef ANNULUS_TESTS_SUPPORT_GATED_DEVICE_H_
#define ANNULUS_TESTS_SUPPORT_GATED_DEVICE_H_

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include "kernels/backend.h"

namespace annulus::testing {

// A backend over that of the processor which says that the host cannot access its memory, as a GPU
// does. Copies of pages, which are those of so many bytes or more, wait while it is closed and fail
// on demand. Thread-safe.
class GatedDevice final : public Backend {
 public:
  GatedDevice(Backend& processor, size_t page_bytes)
      : processor_(processor), page_bytes_(page_bytes), capabilities_(processor.capabilities()) {
    capabilities_.host_accessible = false;
    capabilities_.nodes = 1;
  }

  void Close() { Change(&GatedDevice::closed_, true); }
  void Open() { Change(&GatedDevice::closed_, false); }
  // Closes once so many more copies of pages have passed.
  void CloseAfter(int64_t copies) { Change(&GatedDevice::passing_, copies); }
  // What copies of pages return from now on. A copy that fails changes nothing.
  void Fail(absl::Status with) { Change(&GatedDevice::status_, std::move(with)); }
  void WaitForCopies(int waiting) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= waiting; });
  }
  int64_t copies() const {
    std::lock_guard lock(mutex_);
    return copies_;
  }

  const BackendCapabilities& capabilities() const override { return capabilities_; }
  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override {
    return processor_.Allocate(bytes);
  }
  absl::StatusOr<DeviceBuffer> AllocateHost(size_t bytes) override {
    return processor_.AllocateHost(bytes);
  }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int threads) override {
    return processor_.CreateStream(threads);
  }
  absl::Status Copy(Stream& stream, void* destination, const void* source, size_t bytes) override {
    if (bytes >= page_bytes_) {
      std::unique_lock lock(mutex_);
      ++copies_;
      ++waiting_;
      if (passing_ >= 0 && passing_-- == 0) closed_ = true;
      changed_.notify_all();
      changed_.wait(lock, [&] { return !closed_; });
      --waiting_;
      if (!status_.ok()) return status_;
    }
    return processor_.Copy(stream, destination, source, bytes);
  }

 private:
  template <typename Value>
  void Change(Value GatedDevice::*what, Value value) {
    std::lock_guard lock(mutex_);
    this->*what = std::move(value);
    changed_.notify_all();
  }

  Backend& processor_;
  const size_t page_bytes_;
  BackendCapabilities capabilities_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  int64_t passing_ = -1;  // before it closes; below 0: it does not
  absl::Status status_;
  int waiting_ = 0;
  int64_t copies_ = 0;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_GATED_DEVICE_H_
