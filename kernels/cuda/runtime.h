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

// What the backend needs of CUDA besides launching kernels. There are two implementations, and a
// binary links one: runtime_cuda.cc and graphs_cuda.cc over the CUDA runtime, and the emulated one
// of tests/support/cuda/. All functions are thread-safe; errors are those of error.h. Nothing is
// enqueued on a stream that holds launches back: see NativeOf.
//
// Where a kernel never ends, functions that allocate, free or copy now may not return either:
// device_waits.h has ways that do.

namespace annulus::cuda {

struct DeviceInfo {
  int ordinal = 0;
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  size_t memory_bytes = 0;
  int multiprocessors = 0;
  size_t shared_bytes = 0;  // that one block may ask for
};

// The devices that CUDA shows this process. Where there is none, or no driver that this binary
// could use, FAILED_PRECONDITION says why and what to do.
absl::StatusOr<std::vector<DeviceInfo>> FindDevices();

// Device memory, aligned to at least 256 bytes; bytes > 0. RESOURCE_EXHAUSTED where it is refused.
absl::StatusOr<std::byte*> AllocateDevice(int ordinal, size_t bytes);
void FreeDevice(int ordinal, std::byte* memory);
// Of the device's memory, what is nobody's.
absl::StatusOr<size_t> FreeMemory(int ordinal);
// Host memory that devices can copy from and to while the host goes on, and that kernels of any
// device reach at the same address. `ordinal`: the device that pins it, and that lets it go.
absl::StatusOr<std::byte*> AllocatePinned(int ordinal, size_t bytes);
void FreePinned(int ordinal, std::byte* memory);

absl::StatusOr<StreamHandle> OpenStream(int ordinal);
void CloseStream(StreamHandle stream);
// Copies between any two of host and device memory, in the stream's order. Pinned memory must stay
// as it is until the copy is done; other host memory, which is pageable, is free when the call
// returns, so the call may wait for all that the stream has to do before.
absl::Status CopyAsync(StreamHandle stream, void* destination, const void* source, size_t bytes);
absl::StatusOr<bool> IsPageable(const void* memory);
// Whether all that was enqueued is done.
absl::StatusOr<bool> StreamIdle(StreamHandle stream);
// Copies now, on no stream, between the host's memory and that of the device `ordinal`.
absl::Status CopyNow(int ordinal, void* destination, const void* source, size_t bytes);
// What kernels of compute capability 9.0 need to copy boxes of `tensor`. FAILED_PRECONDITION where
// the driver cannot make it, INVALID_ARGUMENT where the tensor is not as tensor_map.h says.
absl::StatusOr<TensorMap> EncodeTensorMap(const PagesTensor& tensor);
// Makes `ordinal` the device of the calling thread, which launches kernels: those of a stream only
// while its device is the thread's.
absl::Status UseDevice(int ordinal);

// OK where this binary has code of `kernel` (AddressOf of common/launch.h) for the device, which an
// error calls `name`: FAILED_PRECONDITION where it has none for its architecture.
absl::Status FindImage(int ordinal, absl::string_view name, const void* kernel);

// The launch itself, now.
absl::Status EnqueueHeld(StreamHandle stream, const HeldLaunch& launch);

// Graphs: launches that a device takes as one, and does in their order. `ordinal`: whose kernels
// and events they are. RESOURCE_EXHAUSTED where its memory does not do.
absl::StatusOr<GraphHandle> BuildGraph(int ordinal, std::span<const HeldLaunch> launches);
// What stands at `index` is `launch` whenever the graph is run from now on, also while it runs.
// INVALID_ARGUMENT where the graph has no such place, or a launch and an event would change places.
absl::Status SetInGraph(GraphHandle graph, size_t index, const HeldLaunch& launch);
absl::Status RunGraph(StreamHandle stream, GraphHandle graph);
// Not while it runs.
void CloseGraph(GraphHandle graph);

// Whether `from` can read and write memory of `to` over a link between the two.
absl::StatusOr<bool> CanReach(int from, int to);
// Lets `from` do so, for as long as the process lives. Any number of times.
absl::Status EnableReach(int from, int to);
// Copies from memory of the device `from_ordinal` to that of `to_ordinal`, in the order of a stream
// of either.
absl::Status CopyBetween(StreamHandle stream, int to_ordinal, void* to, int from_ordinal,
                         const void* from, size_t bytes);

// Events. `timed`: SecondsBetween may ask.
absl::StatusOr<EventHandle> OpenEvent(int ordinal, bool timed);
void CloseEvent(EventHandle event);
// Sets the event behind everything enqueued in a stream of its device.
absl::Status RecordEvent(StreamHandle stream, EventHandle event);
// Later work of the stream, of any device, begins once the event as it was last recorded has been
// reached.
absl::Status WaitForEvent(StreamHandle stream, EventHandle event);
// Whether the event has been reached as it was last recorded, if it was.
absl::StatusOr<bool> EventReached(EventHandle event);
// Of two timed events of one device that have been reached.
absl::StatusOr<double> SecondsBetween(EventHandle from, EventHandle to);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_RUNTIME_H_
