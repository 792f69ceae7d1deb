#include "bench/peak/vector_loops.h"

namespace annulus::peak {

VectorLoops Avx512Loops() { return MakeVectorLoops<64, 24, 8>("vfmadd zmm", "avx512"); }

}  // namespace annulus::peak
