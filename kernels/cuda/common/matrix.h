#ifndef ANNULUS_KERNELS_CUDA_COMMON_MATRIX_H_
#define ANNULUS_KERNELS_CUDA_COMMON_MATRIX_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cuda/common/device.h"

// Asynchronous copies and the tensor cores of compute capability 8.0. Source of the layouts: PTX
// ISA 8.x, "Warp Level Matrix Instructions". With g = lane / 4 and t = lane % 4, a lane holds these
// elements:
//   A [16][16]: {(g, 2t), (g, 2t+1)}, {(g+8, 2t), ..}, {(g, 2t+8), ..}, {(g+8, 2t+8), ..}
//   B [16][8]:  {(2t, g), (2t+1, g)}, {(2t+8, g), (2t+9, g)}       row = depth, column = output
//   C [16][8]:  (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)         float32
// {..} is one register, with the first element in its low half.

namespace annulus::cuda {

#if defined(__CUDACC__)

// Copies 16 bytes from global to shared memory. If `present` is false, writes zeros instead and
// does not read `source`. Both addresses are multiples of 16. Visible to this thread after
// AsyncWait.
ANNULUS_DEVICE void AsyncCopy16(void* shared, const void* source, bool present) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = present ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(source), "r"(bytes)
               : "memory");
}
// Closes this thread's group of copies.
ANNULUS_DEVICE void AsyncCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most the latest `kPending` groups of this thread are unfinished.
template <int kPending>
ANNULUS_DEVICE void AsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Loads four 8x8 matrices of 16-bit elements from shared memory. Lane 8 * m + r passes the address,
// a multiple of 16, of row r of matrix m. In words[m] it receives the elements (g, 2t), (g, 2t+1).
ANNULUS_DEVICE void LoadMatrices(uint32_t (&words)[4], const void* row) {
  const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from)
               : "memory");
}
// Like LoadMatrices, transposed: the lane receives (2t, g), (2t+1, g).
ANNULUS_DEVICE void LoadTransposed(uint32_t (&words)[4], const void* row) {
  const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from)
               : "memory");
}

// c += a b, over bf16.
ANNULUS_DEVICE void MultiplyAdd(BFloat16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// c += a b, over f16.
ANNULUS_DEVICE void MultiplyAdd(Float16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Rounds two float32 to nearest even; the first goes to the low half. NaN stays NaN.
ANNULUS_DEVICE uint32_t Pack(BFloat16, float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
ANNULUS_DEVICE uint32_t Pack(Float16, float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Multiplies two pairs of bf16, rounding to nearest even; keeps subnormal numbers.
ANNULUS_DEVICE uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
  return product;
}
// Adds two pairs of bf16, rounding to nearest even.
ANNULUS_DEVICE uint32_t AddPairs(uint32_t a, uint32_t b) {
  uint32_t sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(0x3f803f80u), "r"(b));
  return sum;
}
// Multiplies or adds two pairs of f16, rounding to nearest even; keeps subnormal numbers.
ANNULUS_DEVICE uint32_t MultiplyHalves(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
ANNULUS_DEVICE uint32_t AddHalves(uint32_t a, uint32_t b) {
  uint32_t sum;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}
// Widens the f16 in the low half of `bits`, exactly.
ANNULUS_DEVICE float WidenHalf(uint32_t bits) {
  float value;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low; }"
      : "=f"(value)
      : "r"(bits));
  return value;
}
// Widens the f16 in the high half.
ANNULUS_DEVICE float WidenHighHalf(uint32_t bits) {
  float value;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high; }"
      : "=f"(value)
      : "r"(bits));
  return value;
}
// Byte i of the result is byte n of `word`, where n is the i-th nibble of `selector`; n = 4 gives
// 0.
ANNULUS_DEVICE uint32_t SelectBytes(uint32_t word, uint32_t selector) {
  return __byte_perm(word, 0, selector);
}
// Byte i of the result is byte n of `low` (n < 4) or byte n - 4 of `high`, where n is the i-th
// nibble of `selector`.
ANNULUS_DEVICE uint32_t CombineBytes(uint32_t low, uint32_t high, uint32_t selector) {
  return __byte_perm(low, high, selector);
}
// (word & mask) | bits in one instruction; with two constants the compiler needs two.
ANNULUS_DEVICE uint32_t MaskedOr(uint32_t word, uint32_t mask, uint32_t bits) {
  uint32_t merged;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(merged) : "r"(word), "r"(mask), "r"(bits));
  return merged;
}
// Sets all bits of each 16-bit half whose highest bit is set; clears the others.
ANNULUS_DEVICE uint32_t HalvesOfSign(uint32_t word) {
  uint32_t halves;
  asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(halves) : "r"(word));
  return halves;
}

#else

void AsyncCopy16(void* shared, const void* source, bool present);
void AsyncCommit();
void AsyncWaitFor(int pending);
template <int kPending>
inline void AsyncWait() {
  AsyncWaitFor(kPending);
}
void LoadMatrices(uint32_t (&words)[4], const void* row);
void LoadTransposed(uint32_t (&words)[4], const void* row);
void MultiplyAdd(BFloat16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void MultiplyAdd(Float16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
uint32_t Pack(BFloat16, float low, float high);
uint32_t Pack(Float16, float low, float high);
uint32_t MultiplyPairs(uint32_t a, uint32_t b);
uint32_t AddPairs(uint32_t a, uint32_t b);
uint32_t MultiplyHalves(uint32_t a, uint32_t b);
uint32_t AddHalves(uint32_t a, uint32_t b);
float WidenHalf(uint32_t bits);
inline float WidenHighHalf(uint32_t bits) { return WidenHalf(bits >> 16); }
uint32_t SelectBytes(uint32_t word, uint32_t selector);
uint32_t CombineBytes(uint32_t low, uint32_t high, uint32_t selector);
inline uint32_t MaskedOr(uint32_t word, uint32_t mask, uint32_t bits) {
  return (word & mask) | bits;
}
uint32_t HalvesOfSign(uint32_t word);

#endif

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_MATRIX_H_
