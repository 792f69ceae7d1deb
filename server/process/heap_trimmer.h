#ifndef ANNULUS_SERVER_PROCESS_HEAP_TRIMMER_H_
#define ANNULUS_SERVER_PROCESS_HEAP_TRIMMER_H_

#include <cstddef>

#include "engine/api.h"

namespace annulus::server {

// Returns freed heap memory to the system. The C library would keep it, so the memory of one burst
// of connections or requests would stay resident forever. Trims only for half a minute after
// resident memory has grown, so it costs nothing in quiet times. Not thread-safe.
class HeapTrimmer {
 public:
  // Call this periodically. Trims at most every 5 seconds.
  void Tick(SteadyTime now);

 private:
  SteadyTime next_look_{};
  int looks_left_ = 0;   // to trim at
  size_t resident_ = 0;  // bytes after the last trim
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_PROCESS_HEAP_TRIMMER_H_
