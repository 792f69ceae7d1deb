#ifndef ANNULUS_BENCH_REPORT_RESIDENT_MEMORY_H_
#define ANNULUS_BENCH_REPORT_RESIDENT_MEMORY_H_

#include <cstdint>

namespace annulus {

// The largest resident memory of this process that was measured between Resume and Pause, so that
// the buffers of the bench itself can be left out. Linux counts the peak (VmHWM of
// /proc/self/status) and starts it anew on request (5 written to /proc/self/clear_refs); where that
// is not allowed, Resume leaves older peaks in. Not thread-safe.
class ResidentMemory {
 public:
  void Resume();
  // `held`: bytes of the bench's own, which do not count.
  void Pause(int64_t held = 0);
  // Bytes; 0 before the first Pause and where the system does not say.
  int64_t peak() const { return peak_; }

 private:
  int64_t peak_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_BENCH_REPORT_RESIDENT_MEMORY_H_
