#ifndef ANNULUS_SERVER_PROCESS_THREAD_RESERVE_H_
#define ANNULUS_SERVER_PROCESS_THREAD_RESERVE_H_

#include <cstdint>

#include "absl/status/status.h"

namespace annulus::server {

// Idle threads that make place for others when the system lets the process start no more (pids.max
// of its control group, TasksMax, ulimit -u).
//
// gRPC starts some of its threads only once many calls come. It hands work to such a thread without
// looking whether it could be started, so a single failure leaves calls that never end, also after
// the limit is lifted. Therefore a daemon starts as many threads as gRPC may start later before it
// is ready. Whenever pthread_create fails because of a limit, one of them ends, and the call is
// repeated. (A program that is linked with this file has a pthread_create of its own in front of
// the C library's, which its shared libraries use as well.)
//
// Only one may exist in a process. Thread-safe.
class ThreadReserve {
 public:
  // How many gRPC 1.51 starts on demand at most: two executors with 2 threads for each processor,
  // and a few for timers and events.
  static int ForThisMachine();

  explicit ThreadReserve(int threads);
  // Ends the idle threads.
  ~ThreadReserve();
  ThreadReserve(const ThreadReserve&) = delete;
  ThreadReserve& operator=(const ThreadReserve&) = delete;

  // Starts the threads that are missing. RESOURCE_EXHAUSTED if the system lets the process have
  // fewer; those that could be started stay.
  absl::Status Fill();

  bool full() const;
  // How often a thread could not be started although the reserve was used up.
  static int64_t failures();
};

// How many threads a daemon has at most that computes with `computing` threads on `ranks` ranks,
// with those that gRPC starts on demand. A little more than in fact.
int ThreadsNeeded(int computing, int ranks);

// RESOURCE_EXHAUSTED unless the system lets the process have so many more threads at a time, with
// stacks of the usual size. Tries it: starts them and ends them.
absl::Status CheckThreadRoom(int threads);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_PROCESS_THREAD_RESERVE_H_
