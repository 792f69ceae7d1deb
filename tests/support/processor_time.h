#ifndef ANNULUS_TESTS_SUPPORT_PROCESSOR_TIME_H_
#define ANNULUS_TESTS_SUPPORT_PROCESSOR_TIME_H_

#include <time.h>

namespace annulus::testing {

// Seconds of a processor that a thread or a process has taken so far. For limits on time: other
// load on the machine does not count.
inline double ProcessorSeconds(clockid_t of) {
  timespec time{};
  clock_gettime(of, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

inline double ThreadSeconds() { return ProcessorSeconds(CLOCK_THREAD_CPUTIME_ID); }
inline double ProcessSeconds() { return ProcessorSeconds(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_PROCESSOR_TIME_H_
