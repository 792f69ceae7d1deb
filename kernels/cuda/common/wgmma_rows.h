#ifndef ANNULUS_KERNELS_CUDA_COMMON_WGMMA_ROWS_H_
#define ANNULUS_KERNELS_CUDA_COMMON_WGMMA_ROWS_H_

#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cuda/common/device.h"

// Products of a warpgroup (wgmma.h) with a in registers and b in shared memory in rows of depth
// (PanelMatrix with kOnePanel), a row for each column of d. So weights that are widened in
// registers multiply rows of inputs as they are stored. N is 32 or 64.
//
// MultiplyByRows: d = a b or, with `add`, d += a b. The rules of wgmma.h hold.

namespace annulus::cuda {

#if defined(__CUDACC__)

#define ANNULUS_D8(i)                                                                         \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define ANNULUS_D16 ANNULUS_D8(0), ANNULUS_D8(8)
#define ANNULUS_D32 ANNULUS_D16, ANNULUS_D8(16), ANNULUS_D8(24)
#define ANNULUS_D16_TEXT "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define ANNULUS_D32_TEXT \
  ANNULUS_D16_TEXT       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ANNULUS_MULTIPLY_BY_ROWS(columns, text, operands, a_, b_, add_)                            \
  ANNULUS_DEVICE void MultiplyByRows(BFloat16, float(&d)[columns / 2], const uint32_t(&a)[4],      \
                                     uint64_t b, bool add) {                                       \
    asm volatile("{ .reg .pred add; setp.ne.b32 add, %" add_                                       \
                 ", 0; "                                                                           \
                 "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 {" text "}, {" a_ \
                 "}, %" b_ ", add, 1, 1, 0; }"                                                     \
                 : operands                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                             \
                   "r"(static_cast<int>(add)));                                                    \
  }
ANNULUS_MULTIPLY_BY_ROWS(32, ANNULUS_D16_TEXT, ANNULUS_D16, "%16, %17, %18, %19", "20", "21")
ANNULUS_MULTIPLY_BY_ROWS(64, ANNULUS_D32_TEXT, ANNULUS_D32, "%32, %33, %34, %35", "36", "37")

#undef ANNULUS_D8
#undef ANNULUS_D16
#undef ANNULUS_D32
#undef ANNULUS_D16_TEXT
#undef ANNULUS_D32_TEXT
#undef ANNULUS_MULTIPLY_BY_ROWS

#else

void MultiplyByRows(BFloat16, float (&d)[16], const uint32_t (&a)[4], uint64_t b, bool add);
void MultiplyByRows(BFloat16, float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add);

#endif

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_WGMMA_ROWS_H_
