#ifndef ANNULUS_TESTS_SUPPORT_FAKE_BACKEND_H_
#define ANNULUS_TESTS_SUPPORT_FAKE_BACKEND_H_

#include <atomic>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <new>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"

namespace annulus::testing {

// A backend that counts what it gave out and refuses on demand. Only Allocate works.
class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(bool host_accessible = true) {
    capabilities_.name = "fake";
    capabilities_.host_accessible = host_accessible;
  }

  const BackendCapabilities& capabilities() const override { return capabilities_; }

  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override {
    ++calls_;
    if (bytes > largest_allowed_) {
      return absl::ResourceExhaustedError(absl::StrCat("fake: no ", bytes, " bytes"));
    }
    auto* data = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}));
    std::memset(data, 0, bytes);
    bytes_out_ += bytes;
    return DeviceBuffer(data, bytes, [this, bytes](std::byte* released) {
      bytes_out_ -= bytes;
      ::operator delete (released, std::align_val_t{64});
    });
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int) override {
    return absl::UnimplementedError("fake backend has no streams");
  }
  absl::Status Copy(Stream&, void*, const void*, size_t) override {
    return absl::UnimplementedError("fake backend has no streams");
  }

  // Allocations of more bytes fail from now on.
  void RefuseAbove(size_t bytes) { largest_allowed_ = bytes; }
  void RefuseNothing() { largest_allowed_ = std::numeric_limits<size_t>::max(); }

  size_t largest_allowed() const { return largest_allowed_; }
  size_t bytes_out() const { return bytes_out_; }
  int calls() const { return calls_; }

 private:
  BackendCapabilities capabilities_;
  std::atomic<size_t> largest_allowed_{std::numeric_limits<size_t>::max()};
  std::atomic<size_t> bytes_out_{0};
  std::atomic<int> calls_{0};
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_FAKE_BACKEND_H_
