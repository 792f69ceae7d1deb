#ifndef ANNULUS_KERNELS_CPU_ISA_SUMMARIES_H_
#define ANNULUS_KERNELS_CPU_ISA_SUMMARIES_H_

#include <cstdint>

#include "kernels/cpu/isa/math.h"
#include "kernels/cpu/simd/kernels.h"

// Upper bounds of the scores that a page's keys can reach, from their least and greatest elements.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

// Bounds for heads [head, head + kHeads) of one page; elements are loaded once for all of them.
template <class V, int kHeads>
void BoundHeads(const SummaryBounds& x, int64_t page, int head) {
  const float* least = x.least + page * x.parts * x.stride;
  const float* greatest = x.greatest + page * x.parts * x.stride;
  const float* const query = x.query + int64_t{head} * x.k_dim;
  float most[kHeads];
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) most[h] = -kInfinity;
  for (int part = 0; part < x.parts; ++part, least += x.stride, greatest += x.stride) {
    typename V::Float sum[kHeads];
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) sum[h] = V::Zero();
    int d = 0;
    for (; d + V::kLanes <= x.k_dim; d += V::kLanes) {
      const typename V::Float low = V::Load(least + d);
      const typename V::Float high = V::Load(greatest + d);
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) {
        const typename V::Float q = V::Load(query + h * x.k_dim + d);
        sum[h] = V::Add(sum[h], V::Max(V::Mul(q, low), V::Mul(q, high)));
      }
    }
    if (d < x.k_dim) {
      const typename V::Float low = V::LoadPartial(least + d, x.k_dim - d);
      const typename V::Float high = V::LoadPartial(greatest + d, x.k_dim - d);
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) {
        const typename V::Float q = V::LoadPartial(query + h * x.k_dim + d, x.k_dim - d);
        sum[h] = V::Add(sum[h], V::Max(V::Mul(q, low), V::Mul(q, high)));
      }
    }
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      const float part_most = V::Sum(sum[h]);
      if (part_most > most[h]) most[h] = part_most;
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) x.scores[(head + h) * x.score_stride + page] = most[h];
}

template <class V>
void BoundSummaries(const SummaryBounds& x) {
  constexpr int kHeads = 4;
  for (int64_t page = 0; page < x.pages; ++page) {
    int head = 0;
    for (; head + kHeads <= x.heads; head += kHeads) BoundHeads<V, kHeads>(x, page, head);
    for (; head < x.heads; ++head) BoundHeads<V, 1>(x, page, head);
  }
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_SUMMARIES_H_
