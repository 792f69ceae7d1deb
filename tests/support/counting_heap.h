#ifndef ANNULUS_TESTS_SUPPORT_COUNTING_HEAP_H_
#define ANNULUS_TESTS_SUPPORT_COUNTING_HEAP_H_

#include <cstddef>
#include <cstdint>

namespace annulus::testing {

// Bytes that operator new has given out and not taken back, of a program that is linked with
// counting_heap.cc, which replaces it. Thread-safe.
int64_t HeapBytes();
// The most of them at once since the last call, or the start; begins anew.
int64_t TakeHeapBytesMost();

// How often operator new was called so far, by all threads.
int64_t HeapAllocations();

// From now on the allocation number `nth`, from 0, of at least `least_bytes` by any thread but the
// caller's fails once, as if the system had no memory.
void FailAllocation(size_t least_bytes, int64_t nth);
// The same of the caller's own allocations alone, of any size: those of its helpers go well.
void FailOwnAllocation(int64_t nth);
// Whether it has failed; also ends what FailAllocation asked for.
bool TakeAllocationFailed();

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_COUNTING_HEAP_H_
