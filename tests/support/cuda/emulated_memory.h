#ifndef ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_MEMORY_H_
#define ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace annulus::cuda {

// Which memory an address is of. Ends of blocks belong to them: views of nothing may lie there.
struct MemoryPlace {
  enum class Kind : uint8_t {
    kOther,   // of the host, or of nobody
    kPinned,  // of the host, and all devices reach it
    kDevice,
    kFreed,  // of a device, which has it back
  };
  Kind kind = Kind::kOther;
  int ordinal = 0;  // kDevice
};
MemoryPlace PlaceOf(const void* address);

// Whether copies from or to `address` wait for their stream's turn: memory of a device and pinned
// memory. Other memory of the host is read and written before a call returns.
bool StaysInPlace(const void* address);

// Copies now. Ends the process where one side begins in a block and goes beyond it.
void Move(void* to, const void* from, size_t bytes);

// What a kernel of the device `ordinal` may not be given: ends the process where a word of its
// arguments is an address of memory that was freed, of a device that is neither its own nor
// `other`, of the calling thread's stack, the main thread's or static memory, or, while devices are
// guarded, of any of the host's that is not pinned. Words that only look like addresses are of
// nobody.
void CheckPointers(std::span<const std::byte> arguments, int ordinal, int other);

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_MEMORY_H_
