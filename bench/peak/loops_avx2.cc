#include "bench/peak/vector_loops.h"

namespace annulus::peak {

VectorLoops Avx2Loops() { return MakeVectorLoops<32, 12, 4>("vfmadd ymm", "avx2"); }

}  // namespace annulus::peak
