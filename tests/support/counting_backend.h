#ifndef ANNULUS_TESTS_SUPPORT_COUNTING_BACKEND_H_
#define ANNULUS_TESTS_SUPPORT_COUNTING_BACKEND_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "kernels/backend.h"
#include "kernels/base/pinned_size.h"
#include "kernels/base/status_macros.h"

namespace annulus::testing {

// A backend over another one, of one memory node, that counts what AllocateHost has given out and
// not taken back, and what that would take if it were pinned. Thread-safe. Must outlive what it
// gives out.
class CountingBackend final : public Backend {
 public:
  explicit CountingBackend(Backend& counted)
      : counted_(counted), capabilities_(counted.capabilities()) {
    capabilities_.nodes = 1;
  }

  // The most bytes at once so far.
  size_t host_most() const { return host_.most; }
  size_t pinned_most() const { return pinned_.most; }

  const BackendCapabilities& capabilities() const override { return capabilities_; }
  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override { return counted_.Allocate(bytes); }
  absl::StatusOr<size_t> FreeMemory() override { return counted_.FreeMemory(); }
  WorkspaceBytes PlanWorkspace(const WorkShape& most) const override {
    return counted_.PlanWorkspace(most);
  }
  absl::StatusOr<DeviceBuffer> AllocateHost(size_t bytes) override {
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer given, counted_.AllocateHost(bytes));
    const auto buffer = std::make_shared<DeviceBuffer>(std::move(given));
    host_.Add(bytes);
    pinned_.Add(PinnedSize(bytes));
    return DeviceBuffer(buffer->data(), bytes, [this, buffer, bytes](std::byte*) {
      buffer->Reset();
      host_.held -= bytes;
      pinned_.held -= PinnedSize(bytes);
    });
  }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int threads) override {
    return counted_.CreateStream(threads);
  }
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent(bool timed) override {
    return counted_.CreateEvent(timed);
  }
  absl::StatusOr<double> SecondsBetween(const Event& from, const Event& to) override {
    return counted_.SecondsBetween(from, to);
  }
  absl::Status WaitFor(const Event& event) override { return counted_.WaitFor(event); }
  absl::Status Copy(Stream& stream, void* destination, const void* source, size_t bytes) override {
    return counted_.Copy(stream, destination, source, bytes);
  }

 private:
  struct Count {
    void Add(size_t bytes) {
      const size_t now = held += bytes;
      for (size_t before = most; now > before && !most.compare_exchange_weak(before, now);) {
      }
    }
    std::atomic<size_t> held{0};
    std::atomic<size_t> most{0};
  };

  Backend& counted_;
  BackendCapabilities capabilities_;
  Count host_;
  Count pinned_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_COUNTING_BACKEND_H_
