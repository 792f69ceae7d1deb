#ifndef ANNULUS_KERNELS_CUDA_COMMON_WGMMA_H_
#define ANNULUS_KERNELS_CUDA_COMMON_WGMMA_H_

#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cuda/common/device.h"

// Products of a warpgroup (4 warps, the first of them a multiple of 4) by the tensor cores of
// compute capability 9.0. Source: PTX ISA 8.x, "Asynchronous Warpgroup Level Matrix Instructions".
//
// d [64][N] += a [64][16] b [16][N] in float32. Warp w of the warpgroup has rows 16 w to 16 w + 15
// of a and d, each lane as in matrix.h: d[4 n + i] is element i of its part of the columns 8 n to
// 8 n + 7, and a[0..3] its part of a. Products are asynchronous: registers of d and a, and shared
// memory, must be left alone from the product until WgmmaWait, but for further products into d.
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
// Waits until at most `kPending` of this warp's latest groups are not done.
template <int kPending>
ANNULUS_DEVICE void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving uses of `d` across this point: it believes that products are done
// where they are issued.
template <int kCount>
ANNULUS_DEVICE void SettleRegisters(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define ANNULUS_D32                                                                               \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
      "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
      "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),  \
      "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define ANNULUS_D64                                                                               \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
      "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
      "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),  \
      "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),  \
      "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),  \
      "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),  \
      "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),  \
      "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define ANNULUS_D32_TEXT                                                                  \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ANNULUS_D64_TEXT                                                                  \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, " \
  "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// d = a b, or d += a b where `add`. Both lie in shared memory, rows of depth (see Matrix).
#define ANNULUS_MULTIPLY_SHARED(Type, type)                                                   \
  ANNULUS_DEVICE void MultiplyShared(Type, float(&d)[64], uint64_t a, uint64_t b, bool add) { \
    asm volatile(                                                                             \
        "{ .reg .pred add; setp.ne.b32 add, %66, 0; "                                         \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" ANNULUS_D64_TEXT    \
        "}, %64, %65, add, 1, 1, 0, 0; }"                                                     \
        : ANNULUS_D64                                                                         \
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                        \
  }

// d += a b: a in registers, b in shared memory as rows of outputs, one for each step of depth.
#define ANNULUS_MULTIPLY_REGISTERS_64(Type, type)                                                 \
  ANNULUS_DEVICE void MultiplyRegisters(Type, float(&d)[32], const uint32_t(&a)[4], uint64_t b) { \
    asm volatile(                                                                                 \
        "{ .reg .pred add; setp.ne.b32 add, %37, 0; "                                             \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" ANNULUS_D32_TEXT         \
        "}, {%32, %33, %34, %35}, %36, add, 1, 1, 1; }"                                           \
        : ANNULUS_D32                                                                             \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));                            \
  }

#define ANNULUS_MULTIPLY_REGISTERS_128(Type, type)                                                \
  ANNULUS_DEVICE void MultiplyRegisters(Type, float(&d)[64], const uint32_t(&a)[4], uint64_t b) { \
    asm volatile(                                                                                 \
        "{ .reg .pred add; setp.ne.b32 add, %69, 0; "                                             \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" ANNULUS_D64_TEXT        \
        "}, {%64, %65, %66, %67}, %68, add, 1, 1, 1; }"                                           \
        : ANNULUS_D64                                                                             \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));                            \
  }

ANNULUS_MULTIPLY_SHARED(BFloat16, "bf16")
ANNULUS_MULTIPLY_SHARED(Float16, "f16")
ANNULUS_MULTIPLY_REGISTERS_64(BFloat16, "bf16")
ANNULUS_MULTIPLY_REGISTERS_64(Float16, "f16")
ANNULUS_MULTIPLY_REGISTERS_128(BFloat16, "bf16")
ANNULUS_MULTIPLY_REGISTERS_128(Float16, "f16")

#undef ANNULUS_D32
#undef ANNULUS_D64
#undef ANNULUS_D32_TEXT
#undef ANNULUS_D64_TEXT
#undef ANNULUS_MULTIPLY_SHARED
#undef ANNULUS_MULTIPLY_REGISTERS_64
#undef ANNULUS_MULTIPLY_REGISTERS_128

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
void MultiplyShared(BFloat16, float (&d)[64], uint64_t a, uint64_t b, bool add);
void MultiplyShared(Float16, float (&d)[64], uint64_t a, uint64_t b, bool add);
void MultiplyRegisters(BFloat16, float (&d)[32], const uint32_t (&a)[4], uint64_t b);
void MultiplyRegisters(Float16, float (&d)[32], const uint32_t (&a)[4], uint64_t b);
void MultiplyRegisters(BFloat16, float (&d)[64], const uint32_t (&a)[4], uint64_t b);
void MultiplyRegisters(Float16, float (&d)[64], const uint32_t (&a)[4], uint64_t b);

#endif

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_WGMMA_H_
