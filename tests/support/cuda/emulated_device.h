#ifndef ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_DEVICE_H_
#define ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_DEVICE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/runtime.h"
#include "tests/support/cuda/guarded_memory.h"

namespace annulus::cuda {

// The devices behind runtime.h where this library is linked instead of CUDA: host memory, streams
// of emulated_streams.h, and faults on demand. One per process. Thread-safe.
struct EmulatedDevice {
  static constexpr int kMostDevices = 4;
  static constexpr size_t kMemoryBytes = size_t{1} << 30;  // of each

  std::atomic<int> find_error{0};   // numbers of cudaError_t; 0: none
  std::atomic<int> image_error{0};  // of looking for a kernel
  std::atomic<int> allocate_error{0};
  std::atomic<int> copy_error{0};
  std::atomic<int> event_error{0};  // of recording one
  std::atomic<int> wait_error{0};
  std::atomic<int> wait_error_of{-1};  // which device's streams it meets; -1: all
  // A device that does nothing more, as behind a kernel that never ends: what its streams have to
  // do stays undone, and calls that allocate, free or copy now do not return. See
  // EmulatedStreams::Forget.
  std::atomic<bool> hangs{false};
  std::atomic<int> hangs_of{-1};  // which device; -1: all
  std::atomic<int> lives{0};      // how often what hung was forgotten
  std::atomic<int> tensor_error{0};
  std::atomic<int> graph_build_error{0};
  std::atomic<int> graph_set_error{0};
  std::atomic<int> graph_run_error{0};
  std::atomic<int> major{9};
  std::atomic<int> minor{0};
  std::atomic<int> multiprocessors{4};  // few: small tests then leave units whole, and split them
  std::atomic<size_t> allocated{0};     // bytes of device memory in use, of all devices
  // The same of each device, and what other processes hold of each.
  std::array<std::atomic<size_t>, kMostDevices> allocated_on{};
  std::atomic<size_t> held_by_others{0};
  // Calls of AllocateDevice, FreeDevice, AllocatePinned and FreePinned, refused ones too.
  std::atomic<int64_t> memory_calls{0};
  std::atomic<size_t> pinned{0};  // bytes of pinned memory, kept ones too

  std::atomic<int> devices{1};
  std::atomic<int> odd_device{-1};           // one with another name, of 9.0; -1: none
  std::atomic<bool> reach{true};             // whether devices reach each other's memory
  std::atomic<int> between_microseconds{0};  // that a copy between devices takes
  std::atomic<int> copies_between{0};        // calls of CopyBetween

  std::atomic<int64_t> copies{0};      // calls of CopyAsync
  std::atomic<int64_t> lookups{0};     // calls of IsPageable
  std::atomic<int64_t> host_waits{0};  // questions of the host for a stream or event
  std::atomic<int> events{0};          // that live
  std::atomic<int> graphs{0};          // that live
  std::atomic<int64_t> graph_runs{0};  // since the start
  std::atomic<int64_t> launches{0};    // since the start, outside of graphs

  std::atomic<bool> products{false};     // whether there is a library: see kernels/cuda/products.h
  std::atomic<int> library_products{0};  // that it has taken
  std::atomic<int> fp8_products{0};      // those of them that are of fp8
  // Products of so many outputs it has no way for; -1: it has for all.
  std::atomic<int64_t> no_way_for_out{-1};
  std::atomic<bool> no_way_for_scales{false};  // nor for products with scales
  // Products of so many outputs it has a way for and then does not support; -1: it supports all.
  std::atomic<int64_t> unsupported_out{-1};
  std::atomic<int> ways_asked{0};  // what it was asked for, since the start
  // Device memory allocated from now on is out of the host's reach (guarded_memory.h), as a GPU's
  // is, and out of reach of other devices' kernels. Otherwise tests may look at it. Pinned memory
  // is always within reach.
  std::atomic<bool> guarded{false};

  static EmulatedDevice& Get();
  bool Hangs(int ordinal) const { return hangs && (hangs_of < 0 || hangs_of == ordinal); }
  // The guarded memory that holds the address; null: none.
  GuardedMemory* Holder(const void* address);

  std::array<GuardedMemory, kMostDevices> memories{
      GuardedMemory{kMemoryBytes}, GuardedMemory{kMemoryBytes}, GuardedMemory{kMemoryBytes},
      GuardedMemory{kMemoryBytes}};
};

// Shared memory that one block may ask for, by compute capability.
size_t SharedBytes(int major, int minor);
// The device of the calling thread.
int CurrentDevice();
// Returns once the device does something: at once, unless it hangs; where that is forgotten
// meanwhile, never, as a call ends with its process.
void WaitWhileHanging(int ordinal);
// Whether EnableReach(from, to) has been called.
bool IsReachEnabled(int from, int to);

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_DEVICE_H_
