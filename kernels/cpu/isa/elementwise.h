#ifndef ANNULUS_KERNELS_CPU_ISA_ELEMENTWISE_H_
#define ANNULUS_KERNELS_CPU_ISA_ELEMENTWISE_H_

#include <cstdint>

#include "kernels/cpu/isa/math.h"
#include "kernels/cpu/simd/kernels.h"

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

// Calls step(i, load, store) for i = 0, V::kLanes, ... below `count`; the last step loads and
// stores only what is left, with 0 in the other lanes.
template <class V, class Step>
inline void ForEachVector(int64_t count, const Step& step) {
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) {
    step([i](const float* p) { return V::Load(p + i); },
         [i](float* p, typename V::Float x) { V::Store(p + i, x); });
  }
  if (i < count) {
    const int64_t rest = count - i;
    step([i, rest](const float* p) { return V::LoadPartial(p + i, rest); },
         [i, rest](float* p, typename V::Float x) { V::StorePartial(p + i, x, rest); });
  }
}

// The sum of a row.
template <class V>
float SumOfRow(const float* input, int64_t cols) {
  typename V::Float sum = V::Zero();
  ForEachVector<V>(cols, [&](auto load, auto) { sum = V::Add(load(input), sum); });
  return V::Sum(sum);
}

template <class V>
float SumOfSquares(const float* input, int64_t cols) {
  typename V::Float squares = V::Zero();
  ForEachVector<V>(cols, [&](auto load, auto) {
    const typename V::Float x = load(input);
    squares = V::MulAdd(x, x, squares);
  });
  return V::Sum(squares);
}

// The sum of squared distances from `mean`. What is left behind the last whole vector is added one
// by one: lanes that load nothing hold 0, which is as far from the mean as any other number.
template <class V>
float SumOfDistances(const float* input, float mean, int64_t cols) {
  typename V::Float squares = V::Zero();
  int64_t i = 0;
  for (; i + V::kLanes <= cols; i += V::kLanes) {
    const typename V::Float x = V::Sub(V::Load(input + i), V::Set(mean));
    squares = V::MulAdd(x, x, squares);
  }
  float rest = 0;
  for (; i < cols; ++i) rest += (input[i] - mean) * (input[i] - mean);
  return V::Sum(squares) + rest;
}

template <class V>
void NormRow(const NormedRow& row) {
  const auto count = static_cast<float>(row.cols);
  const float mean = row.norm.centred ? SumOfRow<V>(row.input, row.cols) / count : 0;
  const float squares = row.norm.centred ? SumOfDistances<V>(row.input, mean, row.cols)
                                         : SumOfSquares<V>(row.input, row.cols);
  const typename V::Float inverse = V::Set(1 / __builtin_sqrtf(squares / count + row.norm.epsilon));
  ForEachVector<V>(row.cols, [&](auto load, auto store) {
    const typename V::Float x = V::Sub(load(row.input), V::Set(mean));
    typename V::Float value = V::Mul(V::Mul(x, inverse), load(row.weight));
    if (row.bias != nullptr) value = V::Add(value, load(row.bias));
    store(row.output, row.accumulate ? V::Add(load(row.output), value) : value);
  });
}

// x / (1 + exp(-y))
template <class V>
inline typename V::Float TimesSigmoid(typename V::Float x, typename V::Float y) {
  return V::Div(x, V::Add(V::Set(1.0f), Exp<V>(V::Sub(V::Zero(), y))));
}

template <class V>
void SiluMulRow(const float* gate, const float* up, float* output, int64_t cols, float, float) {
  ForEachVector<V>(cols, [&](auto load, auto store) {
    const typename V::Float x = load(gate);
    store(output, V::Mul(TimesSigmoid<V>(x, x), load(up)));
  });
}

// (1 + tanh(t)) / 2 = 1 / (1 + exp(-2 t)).
template <class V>
inline typename V::Float GeluTanh(typename V::Float x) {
  const typename V::Float linear = V::Set(1.5957691216f);
  const typename V::Float cubic = V::Set(1.5957691216f * 0.044715f);
  return TimesSigmoid<V>(x, V::Mul(x, V::MulAdd(V::Mul(x, x), cubic, linear)));
}

template <class V>
void GeluTanhMulRow(const float* gate, const float* up, float* output, int64_t cols, float, float) {
  ForEachVector<V>(cols, [&](auto load, auto store) {
    store(output, V::Mul(GeluTanh<V>(load(gate)), load(up)));
  });
}

template <class V>
void GeluTanhRow(const float* gate, const float*, float* output, int64_t cols, float, float) {
  ForEachVector<V>(cols, [&](auto load, auto store) { store(output, GeluTanh<V>(load(gate))); });
}

template <class V>
void ClampedSwigluRow(const float* gate, const float* up, float* output, int64_t cols, float alpha,
                      float limit) {
  const typename V::Float most = V::Set(limit);
  const typename V::Float least = V::Set(-limit);
  const typename V::Float one = V::Set(1.0f);
  ForEachVector<V>(cols, [&](auto load, auto store) {
    // The bound comes first: if a lane is NaN, both instruction sets return the second operand.
    const typename V::Float x = V::Min(most, load(gate));
    const typename V::Float value = V::Min(most, V::Max(least, load(up)));
    store(output, V::Mul(TimesSigmoid<V>(x, V::Mul(V::Set(alpha), x)), V::Add(value, one)));
  });
}

template <class V>
void SoftCapRow(float* values, float cap, int64_t count) {
  const typename V::Float factor = V::Set(cap);
  ForEachVector<V>(count, [&](auto load, auto store) {
    store(values, V::Mul(factor, Tanh<V>(V::Div(load(values), factor))));
  });
}

template <class V>
void ScaleRow(float* values, float factor, int64_t count) {
  ForEachVector<V>(
      count, [&](auto load, auto store) { store(values, V::Mul(load(values), V::Set(factor))); });
}

// Bounds come second in Max, so that NaN does not spread: see ClampedSwigluRow.
template <class V>
void AddExpSums(const float* values, int64_t rows, int64_t stride, int64_t columns, float* largest,
                float* total) {
  ForEachVector<V>(columns, [&](auto load, auto store) {
    const typename V::Float before = load(largest);
    typename V::Float most = before;
    for (int64_t r = 0; r < rows; ++r) most = V::Max(load(values + r * stride), most);
    typename V::Float sum = V::Mul(load(total), ExpWeight<V>(V::Sub(before, most)));
    for (int64_t r = 0; r < rows; ++r) {
      sum = V::Add(sum, ExpWeight<V>(V::Sub(load(values + r * stride), most)));
    }
    store(largest, most);
    store(total, sum);
  });
}

template <class V>
void AddScaledRow(const float* input, float factor, float* output, int64_t count) {
  ForEachVector<V>(count, [&](auto load, auto store) {
    store(output, V::MulAdd(load(input), V::Set(factor), load(output)));
  });
}

template <class V>
void RopeTableRow(int32_t position, const float* inverse_frequencies, float scale, float* cosine,
                  float* sine, int64_t pairs) {
  const typename V::Double at = V::DoubleSet(position);
  const typename V::Double factor = V::DoubleSet(scale);
  const auto step = [&](const float* frequencies, float* cosines, float* sines) {
    typename V::Double s;
    typename V::Double c;
    SinCos<V>(V::DoubleMul(V::DoubleLoad(frequencies), at), &s, &c);
    V::DoubleStore(cosines, V::DoubleMul(c, factor));
    V::DoubleStore(sines, V::DoubleMul(s, factor));
  };
  int64_t i = 0;
  for (; i + V::kDoubles <= pairs; i += V::kDoubles) {
    step(inverse_frequencies + i, cosine + i, sine + i);
  }
  if (i == pairs) return;
  float frequencies[V::kDoubles] = {};
  float cosines[V::kDoubles];
  float sines[V::kDoubles];
  for (int64_t j = 0; i + j < pairs; ++j) frequencies[j] = inverse_frequencies[i + j];
  step(frequencies, cosines, sines);
  for (int64_t j = 0; i + j < pairs; ++j) {
    cosine[i + j] = cosines[j];
    sine[i + j] = sines[j];
  }
}

template <class V>
void RopeHead(float* values, const float* cosine, const float* sine, int64_t pairs) {
  ForEachVector<V>(pairs, [&](auto load, auto store) {
    const typename V::Float a = load(values);
    const typename V::Float b = load(values + pairs);
    const typename V::Float c = load(cosine);
    const typename V::Float s = load(sine);
    store(values, V::MulSub(a, c, V::Mul(b, s)));
    store(values + pairs, V::MulAdd(b, c, V::Mul(a, s)));
  });
}

template <class V, class T>
void Narrow(const float* source, void* destination, int64_t count) {
  T* const to = static_cast<T*>(destination);
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) V::Store(to + i, V::Load(source + i));
  if (i == count) return;
  T rest[V::kLanes];
  V::Store(rest, V::LoadPartial(source + i, count - i));
  for (int64_t j = 0; i + j < count; ++j) to[i + j] = rest[j];
}

template <class V, class T>
void Widen(const void* source, float* destination, int64_t count) {
  const T* const from = static_cast<const T*>(source);
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) V::Store(destination + i, V::Load(from + i));
  if (i == count) return;
  T rest[V::kLanes] = {};
  for (int64_t j = 0; i + j < count; ++j) rest[j] = from[i + j];
  V::StorePartial(destination + i, V::Load(rest), count - i);
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_ELEMENTWISE_H_
