#include "bench/peak/vector_loops.h"

namespace annulus::bench::peak {

VectorLoops Avx512Loops() { return MakeVectorLoops<64, 24, 8>("vfmadd zmm", "avx512"); }

}  // namespace annulus::bench::peak
