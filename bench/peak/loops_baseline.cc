#include "bench/peak/vector_loops.h"

namespace annulus::bench::peak {

// 16 bytes: what every x86-64 (SSE2) and AArch64 (NEON) has.
VectorLoops BaselineLoops() { return MakeVectorLoops<16, 10, 4>("baseline", "baseline"); }

}  // namespace annulus::bench::peak
