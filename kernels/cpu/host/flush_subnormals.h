#ifndef ANNULUS_KERNELS_CPU_HOST_FLUSH_SUBNORMALS_H_
#define ANNULUS_KERNELS_CPU_HOST_FLUSH_SUBNORMALS_H_

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

// While an object exists, arithmetic on this thread reads and writes subnormal numbers (below
// 1.2e-38) as 0, as matrix tiles always do. Their values are too small to matter, and on x86 each
// vector that holds one costs about 100 cycles more.
class FlushSubnormals {
 public:
#if defined(__aarch64__)
  FlushSubnormals() : old_(__builtin_aarch64_get_fpcr()) {
    __builtin_aarch64_set_fpcr(old_ | 0x1000000);  // FZ
  }
  ~FlushSubnormals() { __builtin_aarch64_set_fpcr(old_); }
#else
  FlushSubnormals() : old_(__builtin_ia32_stmxcsr()) {
    __builtin_ia32_ldmxcsr(old_ | 0x8040);  // FTZ and DAZ
  }
  ~FlushSubnormals() { __builtin_ia32_ldmxcsr(old_); }
#endif
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  const unsigned old_;
};

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_HOST_FLUSH_SUBNORMALS_H_
