#ifndef ANNULUS_KERNELS_CUDA_COMMON_DEVICE_H_
#define ANNULUS_KERNELS_CUDA_COMMON_DEVICE_H_

#include <cstddef>
#include <cstdint>

// The CUDA execution model in words of our own, so that every kernel compiles twice: with nvcc, and
// as host C++ over the declarations below, which tests/support/cuda/ implements. Kernels of the
// portable path use only the parts of CUDA that this folder wraps.
//
// A block has blockDim.x threads, a multiple of 32. All 32 lanes of a warp must reach a collective
// (Shuffle*, Ballot, and those of matrix.h); all threads of a block must reach SyncThreads.

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#define ANNULUS_DEVICE __device__ __forceinline__
// The number of threads that fit on a multiprocessor (CUDA C++ Programming Guide, "Technical
// Specifications per Compute Capability"). GPUs made for graphics, such as 8.6, 8.9 and 12.0, have
// 1536.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000
#define ANNULUS_ROOM 2048
#else
#define ANNULUS_ROOM 1536
#endif
// Declares a kernel with at most `threads` threads per block, of which `blocks` blocks fit on a
// multiprocessor, or fewer on one with less room.
#define ANNULUS_KERNEL(threads, blocks) \
  __global__ void __launch_bounds__(    \
      threads, (threads) * (blocks) <= ANNULUS_ROOM ? (blocks) : ANNULUS_ROOM / (threads))
#define ANNULUS_ARGUMENT const __grid_constant__

namespace annulus::cuda {

ANNULUS_DEVICE int ThreadIndex() { return static_cast<int>(threadIdx.x); }
ANNULUS_DEVICE int BlockThreads() { return static_cast<int>(blockDim.x); }
ANNULUS_DEVICE int64_t BlockX() { return blockIdx.x; }
ANNULUS_DEVICE int64_t BlockY() { return blockIdx.y; }
ANNULUS_DEVICE int64_t GridX() { return gridDim.x; }

// The block's shared memory, as large as given at the launch, aligned to 1024 bytes.
ANNULUS_DEVICE std::byte* SharedMemory() {
  extern __shared__ __align__(1024) unsigned char annulus_shared[];
  return reinterpret_cast<std::byte*>(annulus_shared);
}

ANNULUS_DEVICE void SyncThreads() { __syncthreads(); }
// SyncThreads that also returns whether `predicate` holds in any thread.
ANNULUS_DEVICE bool SyncThreadsOr(bool predicate) { return __syncthreads_or(predicate) != 0; }
ANNULUS_DEVICE void SyncWarp() { __syncwarp(); }
ANNULUS_DEVICE float ShuffleXor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
ANNULUS_DEVICE uint32_t ShuffleXor(uint32_t value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
// The value in lane `lane`.
ANNULUS_DEVICE float ShuffleFrom(float value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
ANNULUS_DEVICE uint32_t ShuffleFrom(uint32_t value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}

// Bit i of the result says whether `predicate` holds in lane i.
ANNULUS_DEVICE uint32_t Ballot(bool predicate) { return __ballot_sync(0xffffffffu, predicate); }

// a * b + c, rounded once; on the host maybe twice. The compiler sees no product that it could keep
// for another use of a and b.
ANNULUS_DEVICE float MultiplyAdd(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// Adds 1 to a counter in global memory and returns the sum. A block's writes before a SyncThreads
// and this are seen by the blocks that count later, after a SyncThreads of theirs.
ANNULUS_DEVICE int32_t Arrivals(int32_t* counter) {
  __threadfence();
  const int32_t sum = atomicAdd(counter, 1) + 1;
  __threadfence();
  return sum;
}

// 2^x, within 2 units in the last place; subnormal results become 0.
ANNULUS_DEVICE float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// log2(x), with an absolute error within 2^-22; outside [0.5, 2] this is the relative error.
ANNULUS_DEVICE float Log2(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
// 1 / x, within 1 unit in the last place; 0 for infinity.
ANNULUS_DEVICE float Reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Returns `value`, but forces the compiler to recompute what depends on it at this point. Otherwise
// it would keep addresses of a loop, or descriptors of its products, in registers, and spill
// others.
ANNULUS_DEVICE uint32_t Unhoisted(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// a * b, rounded: never contracted with a sum.
ANNULUS_DEVICE float RoundedProduct(float a, float b) { return __fmul_rn(a, b); }

// The number of bits that are set.
ANNULUS_DEVICE int CountBits(uint32_t bits) { return __popc(bits); }
ANNULUS_DEVICE uint32_t BitsOf(float value) { return __float_as_uint(value); }
ANNULUS_DEVICE float FloatOf(uint32_t bits) { return __uint_as_float(bits); }

}  // namespace annulus::cuda

#else

#define ANNULUS_DEVICE inline
#define ANNULUS_KERNEL(threads, blocks) inline void
#define ANNULUS_ARGUMENT const

namespace annulus::cuda {

int ThreadIndex();
int BlockThreads();
int64_t BlockX();
int64_t BlockY();
int64_t GridX();
std::byte* SharedMemory();
void SyncThreads();
bool SyncThreadsOr(bool predicate);
void SyncWarp();
float ShuffleXor(float value, int mask);
uint32_t ShuffleXor(uint32_t value, int mask);
float ShuffleFrom(float value, int lane);
uint32_t ShuffleFrom(uint32_t value, int lane);
uint32_t Ballot(bool predicate);
inline float MultiplyAdd(float a, float b, float c) { return a * b + c; }
float Exp2(float x);
float Log2(float x);
float Reciprocal(float x);
inline int32_t Arrivals(int32_t* counter) { return ++*counter; }
inline uint32_t Unhoisted(uint32_t value) { return value; }
inline float RoundedProduct(float a, float b) { return a * b; }
inline int CountBits(uint32_t bits) { return __builtin_popcount(bits); }
inline uint32_t BitsOf(float value) { return __builtin_bit_cast(uint32_t, value); }
inline float FloatOf(uint32_t bits) { return __builtin_bit_cast(float, bits); }

}  // namespace annulus::cuda

#endif

namespace annulus::cuda {

inline constexpr int kWarp = 32;

// 16 bytes that move in one access; the address must be a multiple of 16.
struct alignas(16) Bytes16 {
  uint32_t words[4];
};

// Returns `condition`, and has the compiler move what happens if it does not hold out of the way.
ANNULUS_DEVICE bool Usual(bool condition) { return __builtin_expect(condition, true); }

ANNULUS_DEVICE int Lane() { return ThreadIndex() % kWarp; }
ANNULUS_DEVICE int WarpIndex() { return ThreadIndex() / kWarp; }

template <class T>
ANNULUS_DEVICE T Smaller(T a, T b) {
  return b < a ? b : a;
}
template <class T>
ANNULUS_DEVICE T Larger(T a, T b) {
  return a < b ? b : a;
}

// The hyperbolic tangent, within 2^-22.
ANNULUS_DEVICE float Tanh(float x) { return 1 - 2 * Reciprocal(1 + Exp2(2.8853900817779268f * x)); }

// The sum over the lanes of a warp, added in the same order for all of them.
ANNULUS_DEVICE float WarpSum(float value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += ShuffleXor(value, mask);
  return value;
}
ANNULUS_DEVICE uint32_t WarpMax(uint32_t value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = Larger(value, ShuffleXor(value, mask));
  return value;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_DEVICE_H_
