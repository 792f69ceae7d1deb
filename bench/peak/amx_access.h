#ifndef ANNULUS_BENCH_PEAK_AMX_ACCESS_H_
#define ANNULUS_BENCH_PEAK_AMX_ACCESS_H_

namespace annulus::bench::peak {

// Linux gives a process the tile registers only on request (arch_prctl, ARCH_REQ_XCOMP_PERM).
enum class AmxAccess { kAbsent, kRefused, kGranted };

// Requests the tile registers, if the processor has them, for all threads of the process.
AmxAccess RequestAmx();

}  // namespace annulus::bench::peak

#endif  // ANNULUS_BENCH_PEAK_AMX_ACCESS_H_
