#include "bench/peak/vector_loops.h"

namespace annulus::bench::peak {

VectorLoops Avx2Loops() { return MakeVectorLoops<32, 12, 4>("vfmadd ymm", "avx2"); }

}  // namespace annulus::bench::peak
