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

// Waits of the host for the devices of a backend, each of which ends. The process that started a
// kernel cannot end it, so where one never ends CUDA's own waits would not either: a wait that
// takes longer than `longest` is UNAVAILABLE, says what was waited for and what to do, and the
// devices are lost. From then on every wait returns that status at once, those under way too.
//
// What a lost device may still write to must not be given to others, and freeing it would wait for
// the device: all memory, streams and graphs of lost devices are left to the end of the process.
//
// Streams and events are asked again and again: at once, then without pause for about as long as a
// decoded step takes, so that none becomes longer, then with pauses, so that a long prompt costs no
// core. Calls that CUDA lets wait inside, and which cannot be asked, have a thread of their own for
// as long as they take. Thread-safe.
class DeviceWaits {
 public:
  explicit DeviceWaits(std::chrono::milliseconds longest) : longest_(longest) {}
  DeviceWaits(const DeviceWaits&) = delete;

  // Until all that was enqueued on the stream is done. The stream holds nothing back.
  absl::Status ForStream(StreamHandle stream);
  // Until the event has been reached as it was last recorded, if it was.
  absl::Status ForEvent(EventHandle event);

  // Runs `call` on another thread, which is left behind where it does not come back: `call` owns
  // what it uses, its results too.
  absl::Status Call(absl::string_view what, std::function<absl::Status()> call);

  // Those of runtime.h. What belongs to a lost device is not freed.
  absl::StatusOr<std::byte*> AllocateDevice(int ordinal, size_t bytes);
  void FreeDevice(int ordinal, std::byte* memory);
  absl::StatusOr<size_t> FreeMemory(int ordinal);
  absl::StatusOr<std::byte*> AllocatePinned(int ordinal, size_t bytes);
  void FreePinned(int ordinal, std::byte* memory);

  // Whether the address is in memory that came from here and has not gone back: then it is a
  // device's or pinned, and CUDA need not be asked.
  bool Holds(const void* address) const;

  // Not OK once a wait did not end: why. Checked by `is_lost` without a lock.
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
  std::map<const std::byte*, size_t> blocks_ ABSL_GUARDED_BY(blocks_mutex_);  // bytes
};

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_DEVICE_WAITS_H_
