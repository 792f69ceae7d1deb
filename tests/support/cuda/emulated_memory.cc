#include "tests/support/cuda/emulated_memory.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/runtime.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/cuda/emulated_streams.h"

namespace annulus::cuda {
namespace {

constexpr size_t kAlignment = 256;
constexpr int kHost = -1;
constexpr int kFreedByte = 0xff;  // NaN in every format

// Pinned blocks, and memory of devices that is not guarded.
class KnownBlocks {
 public:
  struct Block {
    const std::byte* begin = nullptr;  // null: none
    size_t bytes = 0;
    int ordinal = kHost;
  };

  // Never destroyed: it still knows what a device that hung has kept, and sanitizers look there.
  static KnownBlocks& Get() {
    static auto* const blocks = new KnownBlocks;
    return *blocks;
  }
  void Add(const Block& block) {
    std::lock_guard lock(mutex_);
    blocks_[block.begin] = block;
  }
  Block Remove(const std::byte* begin) {
    std::lock_guard lock(mutex_);
    const auto found = blocks_.find(begin);
    ANNULUS_CHECK(found != blocks_.end()) << "not the start of a block";
    const Block block = found->second;
    blocks_.erase(found);
    return block;
  }
  // The block that the address is in, or at the end of.
  Block Find(const void* address) {
    std::lock_guard lock(mutex_);
    const auto* const at = static_cast<const std::byte*>(address);
    const auto after = blocks_.upper_bound(at);
    if (after == blocks_.begin()) return {};
    const Block& block = std::prev(after)->second;
    return at <= block.begin + block.bytes ? block : Block{};
  }

 private:
  std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;  // by their beginning
};

std::byte* AllocateKnown(size_t bytes, int ordinal) {
  auto* const block = static_cast<std::byte*>(
      std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment));
  ANNULUS_CHECK(block != nullptr);
  std::memset(block, kFreedByte, bytes);
  KnownBlocks::Get().Add({block, bytes, ordinal});
  return block;
}

// The bytes that it had.
size_t FreeKnown(std::byte* memory) {
  const size_t bytes = KnownBlocks::Get().Remove(memory).bytes;
  std::memset(memory, kFreedByte, bytes);
  std::free(memory);
  return bytes;
}

// Of a block that `address` is in, so many bytes from there on; what is in none is not known.
void CheckInside(const void* address, size_t bytes) {
  size_t room = SIZE_MAX;
  if (GuardedMemory* const holder = EmulatedDevice::Get().Holder(address); holder != nullptr) {
    room = holder->RoomAt(static_cast<const std::byte*>(address));
  } else if (const auto block = KnownBlocks::Get().Find(address); block.begin != nullptr) {
    room = static_cast<size_t>(block.begin + block.bytes - static_cast<const std::byte*>(address));
  }
  ANNULUS_CHECK(bytes <= room) << "a copy of " << bytes << " bytes where a block has " << room;
}

// Whether the process has memory there.
bool IsMapped(uintptr_t address) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(address / page * page), 1, &resident) == 0;
}

// The stack of the thread that makes it.
class StackBounds {
 public:
  StackBounds() {
    pthread_attr_t attributes;
    ANNULUS_CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    void* lowest = nullptr;
    ANNULUS_CHECK(pthread_attr_getstack(&attributes, &lowest, &bytes_) == 0);
    pthread_attr_destroy(&attributes);
    begin_ = reinterpret_cast<uintptr_t>(lowest);
  }
  bool Holds(uintptr_t address) const { return address - begin_ < bytes_; }

 private:
  uintptr_t begin_ = 0;
  size_t bytes_ = 0;
};

const StackBounds main_stack;  // on which tests keep what their threads share

// Memory that no GPU is sure to reach, wherever tests on one get their heap from: the stacks of the
// thread that launches and of the main one, and what is in the program's files.
bool IsOnStackOrStatic(uintptr_t address) {
  static thread_local const StackBounds stack;
  Dl_info file;
  return stack.Holds(address) || main_stack.Holds(address) ||
         dladdr(reinterpret_cast<const void*>(address), &file) != 0;
}

}  // namespace

MemoryPlace PlaceOf(const void* address) {
  using Kind = MemoryPlace::Kind;
  EmulatedDevice& device = EmulatedDevice::Get();
  if (GuardedMemory* const holder = device.Holder(address); holder != nullptr) {
    if (!holder->HoldsBlockAt(static_cast<const std::byte*>(address))) return {Kind::kFreed};
    return {Kind::kDevice, static_cast<int>(holder - device.memories.data())};
  }
  const auto block = KnownBlocks::Get().Find(address);
  if (block.begin == nullptr) return {};
  return block.ordinal == kHost ? MemoryPlace{Kind::kPinned}
                                : MemoryPlace{Kind::kDevice, block.ordinal};
}

bool StaysInPlace(const void* address) {
  return PlaceOf(address).kind != MemoryPlace::Kind::kOther;
}

// The memories that both ends of a copy lie in are open while it runs, others are not.
void Move(void* to, const void* from, size_t bytes) {
  EmulatedDevice& device = EmulatedDevice::Get();
  CheckInside(to, bytes);
  CheckInside(from, bytes);
  const GuardedMemory::Access target(device.Holder(to));
  const GuardedMemory::Access source(device.Holder(from));
  std::memmove(to, from, bytes);
}

void CheckPointers(std::span<const std::byte> arguments, int ordinal, int other) {
  // Where Linux on x86-64 has programs, heaps and maps; below are shadows of sanitizers, as which
  // two small numbers side by side could be taken.
  constexpr uintptr_t kLowest = uintptr_t{0x55} << 40;
  constexpr uintptr_t kHighest = uintptr_t{1} << 47;
  using Kind = MemoryPlace::Kind;
  const bool guarded = EmulatedDevice::Get().guarded;
  for (size_t at = 0; at + sizeof(uintptr_t) <= arguments.size(); at += sizeof(uintptr_t)) {
    uintptr_t word = 0;
    std::memcpy(&word, arguments.data() + at, sizeof(word));
    if (word < kLowest || word >= kHighest) continue;
    const MemoryPlace place = PlaceOf(reinterpret_cast<const void*>(word));
    ANNULUS_CHECK(place.kind != Kind::kFreed)
        << "a kernel's arguments point to freed memory, at byte " << at;
    ANNULUS_CHECK(place.kind != Kind::kDevice || place.ordinal == ordinal || place.ordinal == other)
        << "a kernel of device " << ordinal << " is given memory of device " << place.ordinal
        << ", at byte " << at << " of its arguments";
    if (place.kind != Kind::kOther) continue;
    ANNULUS_CHECK(!IsOnStackOrStatic(word))
        << "a kernel is given memory of a stack or static memory, at byte " << at
        << " of its arguments";
    // Where tests may look at a device's memory, kernels may look at the tests' heap.
    ANNULUS_CHECK(!guarded || !IsMapped(word))
        << "a kernel is given memory of the host that is not pinned, at byte " << at
        << " of its arguments";
  }
}

absl::StatusOr<std::byte*> AllocateDevice(int ordinal, size_t bytes) {
  ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal));
  WaitWhileHanging(ordinal);
  EmulatedDevice& device = EmulatedDevice::Get();
  ++device.memory_calls;
  ANNULUS_ASSIGN_OR_RETURN(const size_t free, FreeMemory(ordinal));
  const int error =
      bytes > free ? static_cast<int>(kMemoryAllocation) : device.allocate_error.load();
  ANNULUS_RETURN_IF_ERROR(StatusOf(error, absl::StrCat("allocating ", bytes, " bytes")));
  device.allocated += bytes;
  device.allocated_on[static_cast<size_t>(ordinal)] += bytes;
  if (!device.guarded) return AllocateKnown(bytes, ordinal);
  std::byte* const memory = device.memories[static_cast<size_t>(ordinal)].Allocate(bytes);
  ANNULUS_CHECK(memory != nullptr) << "no gap of " << bytes << " bytes";
  return memory;
}

// As cudaFree, which waits for the device that has the memory, and for no other.
void FreeDevice(int ordinal, std::byte* memory) {
  if (memory == nullptr || !UseDevice(ordinal).ok()) return;
  WaitWhileHanging(ordinal);
  EmulatedStreams::Get().RunDevice(ordinal);
  EmulatedDevice& device = EmulatedDevice::Get();
  GuardedMemory* const holder = device.Holder(memory);
  const size_t bytes = holder != nullptr ? holder->Free(memory) : FreeKnown(memory);
  ++device.memory_calls;
  device.allocated -= bytes;
  device.allocated_on[static_cast<size_t>(ordinal)] -= bytes;
}

absl::StatusOr<size_t> FreeMemory(int ordinal) {
  ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal));
  const EmulatedDevice& device = EmulatedDevice::Get();
  const size_t taken = device.allocated_on[static_cast<size_t>(ordinal)] + device.held_by_others;
  return EmulatedDevice::kMemoryBytes - std::min(taken, EmulatedDevice::kMemoryBytes);
}

absl::StatusOr<std::byte*> AllocatePinned(int ordinal, size_t bytes) {
  ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal));
  WaitWhileHanging(ordinal);
  ++EmulatedDevice::Get().memory_calls;
  EmulatedDevice::Get().pinned += bytes;
  return AllocateKnown(bytes, kHost);
}

void FreePinned(int ordinal, std::byte* memory) {
  if (memory == nullptr || !UseDevice(ordinal).ok()) return;
  WaitWhileHanging(ordinal);
  ++EmulatedDevice::Get().memory_calls;
  EmulatedDevice::Get().pinned -= FreeKnown(memory);
}

}  // namespace annulus::cuda
