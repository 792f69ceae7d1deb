#ifndef ANNULUS_BENCH_REPORT_RESIDENT_MEMORY_H_
#define ANNULUS_BENCH_REPORT_RESIDENT_MEMORY_H_

#include <cstdint>

namespace annulus::bench {

// The largest resident memory of this process between Resume and Pause, so that the bench's own
// buffers can be left out. Linux tracks the peak (VmHWM of /proc/self/status) and resets it on
// request (writing 5 to /proc/self/clear_refs). If that is not allowed, earlier peaks are included.
// Not thread-safe.
class ResidentMemory {
 public:
  void Resume();
  // `held`: bytes that the bench itself holds; they are subtracted.
  void Pause(int64_t held = 0);
  // Bytes; 0 before the first Pause, and if the system does not say.
  int64_t peak() const { return peak_; }

 private:
  int64_t peak_ = 0;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_REPORT_RESIDENT_MEMORY_H_
