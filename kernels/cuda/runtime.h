#ifndef ANNULUS_KERNELS_CUDA_RUNTIME_H_
#define ANNULUS_KERNELS_CUDA_RUNTIME_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/common/launch_log.h"
#include "kernels/cuda/common/stream_handle.h"
#include "kernels/cuda/common/tensor_map.h"

// What the backend needs of CUDA besides launching kernels. A binary links one of two
// implementations: runtime_cuda.cc and graphs_cuda.cc over the CUDA runtime, or the emulation in
// tests/support/cuda/. All functions are thread-safe; errors are those of error.h. Do not enqueue
// on a stream while it holds launches back: see NativeOf.
//
// If a kernel never ends, functions that allocate, free or copy immediately may never return
// either; device_waits.h has versions that do.

namespace annulus::cuda {

struct DeviceInfo {
  int ordinal = 0;
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  size_t memory_bytes = 0;
  int multiprocessors = 0;
  size_t shared_bytes = 0;  // the most shared memory that one block may use
};

// The devices that CUDA shows to this process. FAILED_PRECONDITION, with what to do, if there is
// none, or no driver that this binary can use.
absl::StatusOr<std::vector<DeviceInfo>> FindDevices();

// Allocates device memory, aligned to at least 256 bytes; bytes > 0. RESOURCE_EXHAUSTED if there is
// none.
absl::StatusOr<std::byte*> AllocateDevice(int ordinal, size_t bytes);
void FreeDevice(int ordinal, std::byte* memory);
// Bytes of the device's memory that no process uses.
absl::StatusOr<size_t> FreeMemory(int ordinal);
// Allocates pinned host memory. Devices copy from and to it while the host goes on, and kernels of
// every device reach it at the same address. `ordinal` is the device that pins it and that must
// unpin it.
absl::StatusOr<std::byte*> AllocatePinned(int ordinal, size_t bytes);
void FreePinned(int ordinal, std::byte* memory);

absl::StatusOr<StreamHandle> OpenStream(int ordinal);
void CloseStream(StreamHandle stream);
// Copies between any combination of host and device memory, in the stream's order. Pinned memory
// must not change until the copy is done. Other (pageable) host memory is free when the call
// returns, so the call may wait for all earlier work of the stream.
absl::Status CopyAsync(StreamHandle stream, void* destination, const void* source, size_t bytes);
absl::StatusOr<bool> IsPageable(const void* memory);
// Whether everything enqueued is done.
absl::StatusOr<bool> StreamIdle(StreamHandle stream);
// Copies at once, outside any stream, between host memory and that of the device `ordinal`.
absl::Status CopyNow(int ordinal, void* destination, const void* source, size_t bytes);
// Creates what kernels of compute capability 9.0 need to copy boxes of `tensor`.
// FAILED_PRECONDITION if the driver cannot create it, INVALID_ARGUMENT if the tensor violates
// tensor_map.h.
absl::StatusOr<TensorMap> EncodeTensorMap(const PagesTensor& tensor);
// Makes `ordinal` the calling thread's device. A thread may launch on a stream only while the
// stream's device is the thread's.
absl::Status UseDevice(int ordinal);

// OK if this binary has code of `kernel` (AddressOf of common/launch.h) for the device's
// architecture; FAILED_PRECONDITION if not. Errors call the device `name`.
absl::Status FindImage(int ordinal, absl::string_view name, const void* kernel);

// Launches at once.
absl::Status EnqueueHeld(StreamHandle stream, const HeldLaunch& launch);

// Builds a graph: launches that a device receives together and runs in their order. `ordinal` is
// the device of its kernels and events. RESOURCE_EXHAUSTED if its memory does not suffice.
absl::StatusOr<GraphHandle> BuildGraph(int ordinal, std::span<const HeldLaunch> launches);
// Makes `launch` the one at `index` whenever the graph is run from now on; allowed while it runs.
// INVALID_ARGUMENT if the graph has no such index, or a launch of another kind there (KindOf).
absl::Status SetInGraph(GraphHandle graph, size_t index, const HeldLaunch& launch);
absl::Status RunGraph(StreamHandle stream, GraphHandle graph);
// Must not be called while the graph runs.
void CloseGraph(GraphHandle graph);

// Whether `from` can read and write memory of `to` over a link between them.
absl::StatusOr<bool> CanReach(int from, int to);
// Allows `from` to do so until the process ends. Idempotent.
absl::Status EnableReach(int from, int to);
// Copies from memory of the device `from_ordinal` to that of `to_ordinal`, in the order of a stream
// of either device.
absl::Status CopyBetween(StreamHandle stream, int to_ordinal, void* to, int from_ordinal,
                         const void* from, size_t bytes);

// Creates an event. `timed` allows SecondsBetween.
absl::StatusOr<EventHandle> OpenEvent(int ordinal, bool timed);
void CloseEvent(EventHandle event);
// Records the event after everything enqueued so far in a stream of its device.
absl::Status RecordEvent(StreamHandle stream, EventHandle event);
// Makes later work of the stream, which may be another device's, wait for the event as it was last
// recorded.
absl::Status WaitForEvent(StreamHandle stream, EventHandle event);
// Whether the event, as it was last recorded, has been reached; true if it was never recorded.
absl::StatusOr<bool> EventReached(EventHandle event);
// Seconds between two timed events of one device; both must have been reached.
absl::StatusOr<double> SecondsBetween(EventHandle from, EventHandle to);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_RUNTIME_H_
