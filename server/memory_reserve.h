#ifndef ANNULUS_SERVER_MEMORY_RESERVE_H_
#define ANNULUS_SERVER_MEMORY_RESERVE_H_

#include <cstddef>

namespace annulus {

// Memory set aside for the day on which the system has no more, so that what is under way can end.
//
// Large allocations, of texts, token ids and answers, are made where a failure becomes the call's
// status (Guarded). Small ones, of a queue's entry or a log line, are everywhere, and one that
// fails would end the process; those take of the reserve. While it is gone, calls that need memory
// are refused. Not covered: what calls malloc itself and ends the process without it, as gRPC does
// for its buffers.
//
// One at a time in a process: it is the handler of operator new (std::set_new_handler).
class MemoryReserve {
 public:
  static constexpr size_t kBytes = size_t{8} << 20;
  static constexpr size_t kSmall = size_t{1} << 20;  // what the reserve is for: all below

  MemoryReserve();
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // Whether it is used up, so that calls should take no more memory. Any thread.
  static bool Gone();
  // Sets it aside again if it is gone; false where the system still has too little. Any thread.
  bool Restore();
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_MEMORY_RESERVE_H_
