#ifndef ANNULUS_BENCH_PEAK_VECTOR_LOOPS_H_
#define ANNULUS_BENCH_PEAK_VECTOR_LOOPS_H_

// VectorLoops as templates over the width of a vector, in GCC's vector types. Compile each unit
// that includes this for one instruction set, with a * b + c contracted (-ffp-contract=fast).

#include <cstdint>

#include "bench/peak/loops.h"

#if defined(__x86_64__)
#define ANNULUS_PEAK_REGISTER "v"
#else
#define ANNULUS_PEAK_REGISTER "w"
#endif

namespace annulus::bench::peak {
namespace {

template <int kBytes>
struct Vector {
  typedef float F __attribute__((vector_size(kBytes)));
  typedef int32_t I __attribute__((vector_size(kBytes)));
  static constexpr int kLanes = kBytes / 4;
};

// `kChains` independent sums hide the latency of one; the sums and both factors fit into registers.
template <int kBytes, int kChains>
float MultiplyAdd(int64_t iterations) {
  using F = typename Vector<kBytes>::F;
  volatile float opaque = 0.999f;
  const F factor = F{} + opaque;
  const F addend = F{} + opaque * 1e-3f;
  F sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = F{} + (opaque + static_cast<float>(c));
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 32
    for (int c = 0; c < kChains; ++c) sums[c] = sums[c] * factor + addend;
  }
  F total = F{};
  for (int c = 0; c < kChains; ++c) total += sums[c];
  return total[0];
}

// Rounds with a magic number, evaluates a polynomial of degree 4 on [-1/2, 1/2], and sets the
// exponent with an integer shift and add: nine instructions per vector. The empty asm statements
// cost nothing, but keep the compiler from computing the same value only once.
template <int kBytes, int kVectors>
float Exponential(int64_t iterations) {
  using F = typename Vector<kBytes>::F;
  using I = typename Vector<kBytes>::I;
  volatile float opaque = -1.3f;
  F x = F{} + opaque;
  const F magic = F{} + 12582912.0f;  // 1.5 * 2^23: its low bits count whole numbers
  const F c0 = F{} + 0.99999926f;
  const F c1 = F{} + 0.69312181f;
  const F c2 = F{} + 0.24024745f;
  const F c3 = F{} + 0.05591786f;
  const F c4 = F{} + 0.00957010f;
  F last = F{};
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 32
    for (int c = 0; c < kVectors; ++c) {
      asm volatile("" : "+" ANNULUS_PEAK_REGISTER(x));
      const F shifted = x + magic;
      const F fraction = x - (shifted - magic);
      F power = c4 * fraction + c3;
      power = power * fraction + c2;
      power = power * fraction + c1;
      power = power * fraction + c0;
      last = (F)((I)power + ((I)shifted << 23));
      asm volatile("" : : ANNULUS_PEAK_REGISTER(last));
    }
  }
  return last[0];
}

template <int kBytes>
float Read(const float* data, int64_t count) {
  using F = typename Vector<kBytes>::F;
  constexpr int kSums = 4;
  constexpr int kLanes = Vector<kBytes>::kLanes;
  F sums[kSums] = {};
  for (int64_t i = 0; i < count; i += kSums * kLanes) {
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) {
      sums[s] += *reinterpret_cast<const F*>(data + i + s * kLanes);
    }
  }
  return (sums[0] + sums[1] + sums[2] + sums[3])[0];
}

template <int kBytes, int kChains, int kVectors>
VectorLoops MakeVectorLoops(const char* multiply_add, const char* exponential) {
  constexpr double kLanes = Vector<kBytes>::kLanes;
  VectorLoops loops;
  loops.multiply_add = {&MultiplyAdd<kBytes, kChains>, 2 * kLanes * kChains, multiply_add};
  loops.exponential = {&Exponential<kBytes, kVectors>, kLanes * kVectors, exponential};
  loops.read = &Read<kBytes>;
  return loops;
}

}  // namespace
}  // namespace annulus::bench::peak

#endif  // ANNULUS_BENCH_PEAK_VECTOR_LOOPS_H_
