#ifndef ANNULUS_TESTS_SUPPORT_COUNTING_HEAP_H_
#define ANNULUS_TESTS_SUPPORT_COUNTING_HEAP_H_

#include <cstdint>

namespace annulus::testing {

// Bytes that operator new has given out and not taken back, of a program that is linked with
// counting_heap.cc, which replaces it. Thread-safe.
int64_t HeapBytes();
// The most of them at once since the last call, or the start; begins anew.
int64_t TakeHeapBytesMost();

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_COUNTING_HEAP_H_
