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
#include "kernels/base/pinned_size.h"
#include "kernels/cuda/device_waits.h"

namespace annulus::cuda {

// A pool of pinned host memory. Blocks have the size that PinnedSize gives. Pinning takes the
// driver as long as a kernel runs, so the pool keeps freed blocks for reuse, up to kMostKept bytes
// in total. Thread-safe. The pool lives until its last block has been freed.
class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  static constexpr size_t kMostKept = kMostPinnedKept;

  // `ordinal`: the device that pins the blocks; every device can reach them.
  PinnedPool(std::shared_ptr<DeviceWaits> waits, int ordinal)
      : waits_(std::move(waits)), ordinal_(ordinal) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;

  // bytes > 0. Errors as for AllocatePinned. If a device is lost, returns the error of DeviceWaits:
  // the device may still write to freed blocks.
  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes);

 private:
  void TakeBack(std::byte* block, size_t bytes);

  const std::shared_ptr<DeviceWaits> waits_;
  const int ordinal_;
  std::mutex mutex_;
  std::map<size_t, std::vector<std::byte*>> kept_ ABSL_GUARDED_BY(mutex_);  // by size
  size_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_PINNED_POOL_H_
