#ifndef ANNULUS_KERNELS_CUDA_PINNED_POOL_H_
#define ANNULUS_KERNELS_CUDA_PINNED_POOL_H_

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "kernels/base/device_buffer.h"
#include "kernels/cuda/device_waits.h"

namespace annulus::cuda {

// Pinned memory of the host in blocks of powers of two, or of their own size above kMostKept.
// Pinning takes the driver as long as a kernel, so blocks that come back are kept for the next, up
// to kMostKept bytes. Thread-safe. Lives until its last block has come back.
class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  static constexpr size_t kMostKept = size_t{256} << 20;

  // The device that pins; any may reach the blocks.
  PinnedPool(std::shared_ptr<DeviceWaits> waits, int ordinal)
      : waits_(std::move(waits)), ordinal_(ordinal) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;

  // bytes > 0. Errors of AllocatePinned; those of DeviceWaits where a device is lost: it may still
  // write to blocks that came back.
  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes);

  size_t kept_bytes() const;

 private:
  void TakeBack(std::byte* block, size_t bytes);

  const std::shared_ptr<DeviceWaits> waits_;
  const int ordinal_;
  mutable std::mutex mutex_;
  std::map<size_t, std::vector<std::byte*>> kept_ ABSL_GUARDED_BY(mutex_);  // by size
  size_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_PINNED_POOL_H_
