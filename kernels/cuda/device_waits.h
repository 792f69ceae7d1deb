#ifndef ANNULUS_KERNELS_CUDA_DEVICE_WAITS_H_
#define ANNULUS_KERNELS_CUDA_DEVICE_WAITS_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/runtime.h"

namespace annulus::cuda {

// Makes every wait of the host for a device end. A process cannot stop a kernel that it started, so
// if one never ends, CUDA's own waits would not end either. A wait that takes longer than `longest`
// returns UNAVAILABLE, with what was waited for and what to do, and the devices count as lost. From
// then on every wait returns that status at once, including those under way.
//
// Memory that a lost device may still write to must not be reused, and freeing it would wait for
// the device. So all memory, streams and graphs of lost devices are kept until the process ends.
//
// Waits for streams and events poll: first without pause, for about as long as a decode step takes,
// so as not to lengthen it; then with pauses, so that a long prompt does not occupy a core. Calls
// that block inside CUDA, and cannot be polled, run on a thread of their own. Thread-safe.
class DeviceWaits {
 public:
  explicit DeviceWaits(std::chrono::milliseconds longest) : longest_(longest) {}
  DeviceWaits(const DeviceWaits&) = delete;

  // Waits until everything enqueued on the stream is done. The stream must not hold launches back.
  absl::Status ForStream(StreamHandle stream);
  // Waits until the event, as it was last recorded, has been reached; returns at once if it never
  // was recorded.
  absl::Status ForEvent(EventHandle event);

  // Runs `call` on another thread, which is abandoned if it does not return. So `call` must own
  // everything it uses, including its results.
  absl::Status Call(absl::string_view what, std::function<absl::Status()> call);

  // Like the functions of runtime.h, but bounded in time. Memory of a lost device is not freed.
  absl::StatusOr<std::byte*> AllocateDevice(int ordinal, size_t bytes);
  void FreeDevice(int ordinal, std::byte* memory);
  absl::StatusOr<size_t> FreeMemory(int ordinal);
  absl::StatusOr<std::byte*> AllocatePinned(int ordinal, size_t bytes);
  void FreePinned(int ordinal, std::byte* memory);

  // Whether the address lies in memory that was allocated here and not freed. If so it is device or
  // pinned memory, and CUDA need not be asked.
  bool Holds(const void* address) const;

  // Not OK once a wait has timed out; says why. `is_lost` checks the same without a lock.
  absl::Status lost() const;
  bool is_lost() const { return is_lost_; }

 private:
  absl::Status Until(absl::string_view what, absl::FunctionRef<absl::StatusOr<bool>()> ended);
  absl::Status Lose(absl::string_view what);
  std::byte* Keep(std::byte* memory, size_t bytes);
  void Drop(std::byte* memory);

  const std::chrono::milliseconds longest_;
  std::atomic<bool> is_lost_{false};
  mutable std::mutex mutex_;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
  mutable std::mutex blocks_mutex_;
  std::map<const std::byte*, size_t> blocks_ ABSL_GUARDED_BY(blocks_mutex_);  // address -> bytes
};

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_DEVICE_WAITS_H_
