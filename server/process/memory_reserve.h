#ifndef ANNULUS_SERVER_PROCESS_MEMORY_RESERVE_H_
#define ANNULUS_SERVER_PROCESS_MEMORY_RESERVE_H_

#include <cstddef>

namespace annulus::server {

// A block of memory that is freed when the system has no more, so that running work can end.
//
// Large allocations (texts, token ids, answers) are made within Guarded, where a failure becomes
// the call's status. Small ones, such as a queue entry or a log line, are everywhere, and a failure
// would end the process; those use the reserve. While the reserve is used up, calls that need
// memory are refused. It does not help code that calls malloc directly and aborts on failure, as
// gRPC does for its buffers.
//
// Only one may exist in a process, because it installs the handler of operator new
// (std::set_new_handler).
class MemoryReserve {
 public:
  static constexpr size_t kBytes = size_t{8} << 20;
  static constexpr size_t kSmall = size_t{1} << 20;  // larger allocations do not use the reserve

  MemoryReserve();
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // Whether the reserve is used up, so that calls should take no more memory. Thread-safe.
  static bool Gone();
  // Allocates the reserve again if it is used up. Returns false if the system still has too little
  // memory. Thread-safe.
  bool Restore();
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_PROCESS_MEMORY_RESERVE_H_
