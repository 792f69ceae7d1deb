#include "bench/peak/amx_access.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace annulus::bench::peak {

#if defined(__x86_64__)

AmxAccess RequestAmx() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILE_DATA
  constexpr unsigned kTileBit = 1u << 24;      // CPUID leaf 7, EDX
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTileBit) == 0) {
    return AmxAccess::kAbsent;
  }
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? AmxAccess::kGranted
                                                                     : AmxAccess::kRefused;
}

#else

AmxAccess RequestAmx() { return AmxAccess::kAbsent; }

#endif

}  // namespace annulus::bench::peak
