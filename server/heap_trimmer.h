#ifndef ANNULUS_SERVER_HEAP_TRIMMER_H_
#define ANNULUS_SERVER_HEAP_TRIMMER_H_

#include <cstddef>

#include "engine/api.h"

namespace annulus {

// Gives freed memory of the heap back to the system, which the C library keeps otherwise: a burst
// of connections or requests would be held as resident memory for good. Looks only where resident
// memory has grown, so it costs nothing in quiet times. Not thread-safe.
class HeapTrimmer {
 public:
  // To be called now and then. Trims at most every few seconds.
  void Tick(SteadyTime now);

 private:
  SteadyTime next_look_{};
  size_t resident_ = 0;  // after the last trim
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_HEAP_TRIMMER_H_
