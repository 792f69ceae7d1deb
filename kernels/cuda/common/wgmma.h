#ifndef ANNULUS_KERNELS_CUDA_COMMON_WGMMA_H_
#define ANNULUS_KERNELS_CUDA_COMMON_WGMMA_H_

#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cuda/common/device.h"

// Products of a warpgroup (4 warps; the first one's number is a multiple of 4) by the tensor cores
// of compute capability 9.0. Source: PTX ISA 8.x, "Asynchronous Warpgroup Level Matrix
// Instructions".
//
// d [64][N] += a [64][16] b [16][N] in float32. Warp w of the warpgroup has rows 16 w to 16 w + 15
// of a and d, distributed over its lanes as in matrix.h: d[4 n + i] is element i of the lane's part
// of the columns 8 n to 8 n + 7, and a[0..3] is its part of a. Products are asynchronous: from the
// product until WgmmaWait, do not touch the registers of d and a or the shared memory, except for
// further products into d.
//
// Of e4m3 a step is twice as deep: d [64][N] += a [64][32] b [32][N]. Depth runs along the rows of
// both sides, also where a is in registers. There a[i] is a word of codes 4 t to 4 t + 3 of row g +
// 8 (i % 2), 16 (i / 2) further along the depth (g, t: matrix.h). Codes and products are exact, but
// the tensor cores of 9.0 keep about 14 bits of their sums (DeepSeek-AI 2024, arXiv 2412.19437,
// section 3.3.2): add up at most 128 products in d, then add d to a sum of your own.
//
//   WgmmaFence();  // before the first product after other uses of d or a
//   MultiplyShared(..); ..; WgmmaCommit();
//   WgmmaWait<0>(); SettleRegisters(d);

namespace annulus::cuda {

inline constexpr int kWarpgroup = 4 * kWarp;

#if defined(__CUDACC__)

// Orders this warp's uses of registers before the products that follow.
ANNULUS_DEVICE void WgmmaFence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Closes this warp's group of products.
ANNULUS_DEVICE void WgmmaCommit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most the latest `kPending` groups of this warp are unfinished.
template <int kPending>
ANNULUS_DEVICE void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving uses of `d` across this point, because it assumes that products
// finish where they are issued.
template <int kCount>
ANNULUS_DEVICE void SettleRegisters(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define ANNULUS_D8(i)                                                                         \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define ANNULUS_D32(i) ANNULUS_D8(i), ANNULUS_D8(i + 8), ANNULUS_D8(i + 16), ANNULUS_D8(i + 24)
#define ANNULUS_D64 ANNULUS_D32(0), ANNULUS_D32(32)
#define ANNULUS_D128 ANNULUS_D64, ANNULUS_D32(64), ANNULUS_D32(96)
#define ANNULUS_D32_TEXT                                                                  \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ANNULUS_D64_TEXT                                                                  \
  ANNULUS_D32_TEXT                                                                        \
  ", "                                                                                    \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ANNULUS_D128_TEXT                                                                 \
  ANNULUS_D64_TEXT                                                                        \
  ", "                                                                                    \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, " \
  "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, " \
  "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "    \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "  \
  "%126, %127"

// d = a b or, with `add`, d += a b. Both a and b lie in shared memory, in rows of depth (see
// PanelMatrix).
#define ANNULUS_MULTIPLY_SHARED(Type, type, columns, text, operands, a_, b_, add_)               \
  ANNULUS_DEVICE void MultiplyShared(Type, float(&d)[columns / 2], uint64_t a, uint64_t b,       \
                                     bool add) {                                                 \
    asm volatile("{ .reg .pred add; setp.ne.b32 add, %" add_                                     \
                 ", 0; "                                                                         \
                 "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" text \
                 "}, %" a_ ", %" b_ ", add, 1, 1, 0, 0; }"                                       \
                 : operands                                                                      \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                  \
  }

// d += a b, with a in registers and b in shared memory as rows of outputs, one row per step of
// depth.
#define ANNULUS_MULTIPLY_REGISTERS(Type, type, columns, text, operands, a_, b_, add_)            \
  ANNULUS_DEVICE void MultiplyRegisters(Type, float(&d)[columns / 2], const uint32_t(&a)[4],     \
                                        uint64_t b) {                                            \
    asm volatile("{ .reg .pred add; setp.ne.b32 add, %" add_                                     \
                 ", 0; "                                                                         \
                 "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" text \
                 "}, {" a_ "}, %" b_ ", add, 1, 1, 1; }"                                         \
                 : operands                                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));                  \
  }

#define ANNULUS_PRODUCTS_OF(Type, type)                                                            \
  ANNULUS_MULTIPLY_SHARED(Type, type, 64, ANNULUS_D32_TEXT, ANNULUS_D32(0), "32", "33", "34")      \
  ANNULUS_MULTIPLY_SHARED(Type, type, 128, ANNULUS_D64_TEXT, ANNULUS_D64, "64", "65", "66")        \
  ANNULUS_MULTIPLY_REGISTERS(Type, type, 64, ANNULUS_D32_TEXT, ANNULUS_D32(0),                     \
                             "%32, %33, %34, %35", "36", "37")                                     \
  ANNULUS_MULTIPLY_REGISTERS(Type, type, 128, ANNULUS_D64_TEXT, ANNULUS_D64, "%64, %65, %66, %67", \
                             "68", "69")                                                           \
  ANNULUS_MULTIPLY_REGISTERS(Type, type, 256, ANNULUS_D128_TEXT, ANNULUS_D128,                     \
                             "%128, %129, %130, %131", "132", "133")

ANNULUS_PRODUCTS_OF(BFloat16, "bf16")
ANNULUS_PRODUCTS_OF(Float16, "f16")

// The same of e4m3: d = a b or, with `add`, d += a b. `a_text` names a in the instruction.
#define ANNULUS_MULTIPLY_CODES(Name, A, columns, text, operands, a_text, a_operands, b_, add_) \
  ANNULUS_DEVICE void Name(Float8E4M3, float(&d)[columns / 2], A a, uint64_t b, bool add) {    \
    asm volatile("{ .reg .pred add; setp.ne.b32 add, %" add_                                   \
                 ", 0; "                                                                       \
                 "wgmma.mma_async.sync.aligned.m64n" #columns "k32.f32.e4m3.e4m3 {" text       \
                 "}, " a_text ", %" b_ ", add, 1, 1; }"                                        \
                 : operands                                                                    \
                 : a_operands, "l"(b), "r"(static_cast<int>(add)));                            \
  }
#define ANNULUS_WORDS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
using FourWords = const uint32_t (&)[4];

ANNULUS_MULTIPLY_CODES(MultiplyShared, uint64_t, 128, ANNULUS_D64_TEXT, ANNULUS_D64, "%64", "l"(a),
                       "65", "66")
ANNULUS_MULTIPLY_CODES(MultiplyRegisters, FourWords, 64, ANNULUS_D32_TEXT, ANNULUS_D32(0),
                       "{%32, %33, %34, %35}", ANNULUS_WORDS, "36", "37")

#undef ANNULUS_MULTIPLY_CODES
#undef ANNULUS_WORDS
#undef ANNULUS_D8
#undef ANNULUS_D32
#undef ANNULUS_D64
#undef ANNULUS_D128
#undef ANNULUS_D32_TEXT
#undef ANNULUS_D64_TEXT
#undef ANNULUS_D128_TEXT
#undef ANNULUS_MULTIPLY_SHARED
#undef ANNULUS_MULTIPLY_REGISTERS
#undef ANNULUS_PRODUCTS_OF

#else

void WgmmaFence();
void WgmmaCommit();
void WgmmaWaitFor(int pending);
template <int kPending>
inline void WgmmaWait() {
  WgmmaWaitFor(kPending);
}
template <int kCount>
inline void SettleRegisters(float (&)[kCount]) {}
void MultiplyShared(BFloat16, float (&d)[32], uint64_t a, uint64_t b, bool add);
void MultiplyShared(Float16, float (&d)[32], uint64_t a, uint64_t b, bool add);
void MultiplyShared(BFloat16, float (&d)[64], uint64_t a, uint64_t b, bool add);
void MultiplyShared(Float16, float (&d)[64], uint64_t a, uint64_t b, bool add);
void MultiplyRegisters(BFloat16, float (&d)[32], const uint32_t (&a)[4], uint64_t b);
void MultiplyRegisters(Float16, float (&d)[32], const uint32_t (&a)[4], uint64_t b);
void MultiplyRegisters(BFloat16, float (&d)[64], const uint32_t (&a)[4], uint64_t b);
void MultiplyRegisters(Float16, float (&d)[64], const uint32_t (&a)[4], uint64_t b);
void MultiplyRegisters(BFloat16, float (&d)[128], const uint32_t (&a)[4], uint64_t b);
void MultiplyRegisters(Float16, float (&d)[128], const uint32_t (&a)[4], uint64_t b);
void MultiplyShared(Float8E4M3, float (&d)[64], uint64_t a, uint64_t b, bool add);
void MultiplyRegisters(Float8E4M3, float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add);

#endif

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_WGMMA_H_
