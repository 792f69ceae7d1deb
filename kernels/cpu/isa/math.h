#ifndef ANNULUS_KERNELS_CPU_ISA_MATH_H_
#define ANNULUS_KERNELS_CPU_ISA_MATH_H_

#include <cstdint>

// Elementary functions over a vector type V (isa_vec_*.h). Each lane is computed independently of
// the others and in the same way.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

inline constexpr float kInfinity = __builtin_inff();

// Computes n and exp(r), where x = n * ln 2 + r with |r| <= ln 2 / 2. The polynomial is a minimax
// fit of the relative error with 1 + r fixed (3e-9 in exact arithmetic, so the result is good to
// about one unit in the last place). ln 2 is split into two parts, and products are fused.
template <class V>
inline typename V::Float ReducedExp(typename V::Float x, typename V::Float* n) {
  *n = V::Round(V::Mul(x, V::Set(1.44269504f)));
  typename V::Float r = V::MulAdd(*n, V::Set(-0x1.62e430p-1f), x);
  r = V::MulAdd(*n, V::Set(1.904654323e-9f), r);
  typename V::Float p = V::Set(1.381454009e-3f);
  p = V::MulAdd(p, r, V::Set(8.368745108e-3f));
  p = V::MulAdd(p, r, V::Set(4.166839079e-2f));
  p = V::MulAdd(p, r, V::Set(1.666652040e-1f));
  p = V::MulAdd(p, r, V::Set(4.999999343e-1f));
  p = V::MulAdd(p, r, V::Set(1.0f));
  return V::MulAdd(p, r, V::Set(1.0f));
}

// exp(x) for x up to slightly above 0 (a softmax weight). Below -87, where the result would be
// subnormal, it is 0. NaN stays NaN.
template <class V>
inline typename V::Float ExpWeight(typename V::Float x) {
  const typename V::Float lowest = V::Set(-87.0f);
  typename V::Float n;
  const typename V::Float p = ReducedExp<V>(V::Max(lowest, x), &n);
  return V::Select(V::Less(x, lowest), V::Zero(), V::TimesPowerOfTwo(p, n));
}

// exp(x) for any x. Beyond float32's range it is 0 or infinity; subnormal results are rounded. NaN
// stays NaN.
template <class V>
inline typename V::Float Exp(typename V::Float x) {
  const typename V::Float bounded = V::Min(V::Set(90.0f), V::Max(V::Set(-105.0f), x));
  typename V::Float n;
  const typename V::Float p = ReducedExp<V>(bounded, &n);
  // 2^n itself may leave the range of normal numbers; its two halves do not.
  const typename V::Float half = V::Round(V::Mul(n, V::Set(0.5f)));
  const typename V::Float one = V::Set(1.0f);
  return V::Mul(V::Mul(p, V::TimesPowerOfTwo(one, half)), V::TimesPowerOfTwo(one, V::Sub(n, half)));
}

// log(1 + f) for f from -0.3 to 0.42, within 1e-7 (Cephes, logf).
template <class V>
inline typename V::Float LogNear1(typename V::Float f) {
  typename V::Float p = V::Set(7.0376836292e-2f);
  p = V::MulAdd(p, f, V::Set(-1.1514610310e-1f));
  p = V::MulAdd(p, f, V::Set(1.1676998740e-1f));
  p = V::MulAdd(p, f, V::Set(-1.2420140846e-1f));
  p = V::MulAdd(p, f, V::Set(1.4249322787e-1f));
  p = V::MulAdd(p, f, V::Set(-1.6668057665e-1f));
  p = V::MulAdd(p, f, V::Set(2.0000714765e-1f));
  p = V::MulAdd(p, f, V::Set(-2.4999993993e-1f));
  p = V::MulAdd(p, f, V::Set(3.3333331174e-1f));
  const typename V::Float square = V::Mul(f, f);
  const typename V::Float cube = V::Mul(V::Mul(p, f), square);
  return V::Add(f, V::MulAdd(square, V::Set(-0.5f), cube));
}

// log(x) for x from 1 to 2, within 2e-7. NaN stays NaN.
template <class V>
inline typename V::Float LogFrom1To2(typename V::Float x) {
  const auto high = V::Less(V::Set(1.41421356f), x);
  const typename V::Float mantissa = V::Select(high, V::Mul(x, V::Set(0.5f)), x);
  const typename V::Float log = LogNear1<V>(V::Sub(mantissa, V::Set(1.0f)));
  return V::Add(log, V::Select(high, V::Set(0.693147181f), V::Zero()));
}

// tanh(x), within 2e-7 relative. Near 0 an odd polynomial, else 1 - 2 / (exp(2 |x|) + 1) (Cephes,
// tanhf). NaN stays NaN.
template <class V>
inline typename V::Float Tanh(typename V::Float x) {
  const typename V::Float negated = V::Sub(V::Zero(), x);
  const typename V::Float size = V::Max(negated, x);
  const typename V::Float square = V::Mul(x, x);
  typename V::Float p = V::Set(-5.70498872745e-3f);
  p = V::MulAdd(p, square, V::Set(2.06390887954e-2f));
  p = V::MulAdd(p, square, V::Set(-5.37397155531e-2f));
  p = V::MulAdd(p, square, V::Set(1.33314422036e-1f));
  p = V::MulAdd(p, square, V::Set(-3.33332819422e-1f));
  const typename V::Float near = V::MulAdd(V::Mul(p, square), x, x);
  const typename V::Float one = V::Set(1.0f);
  const typename V::Float doubled = Exp<V>(V::Add(size, size));
  const typename V::Float far = V::Sub(one, V::Div(V::Set(2.0f), V::Add(doubled, one)));
  const typename V::Float signed_far =
      V::Select(V::Less(x, V::Zero()), V::Sub(V::Zero(), far), far);
  return V::Select(V::Less(size, V::Set(0.625f)), near, signed_far);
}

// cos(x) and sin(x) in float64 for |x| < 2^31. x = n * pi/2 + r with |r| <= pi/4; splitting pi/2
// into two parts and fusing products keeps the error of r near 1e-16. Taylor series up to r^12 and
// r^11 (the first omitted terms are below 1e-11).
template <class V>
inline void SinCos(typename V::Double x, typename V::Double* sine, typename V::Double* cosine) {
  using Double = typename V::Double;
  const Double n = V::DoubleRound(V::DoubleMul(x, V::DoubleSet(0.6366197723675814)));
  Double r = V::DoubleNegMulAdd(n, V::DoubleSet(1.5707963267948966), x);
  r = V::DoubleNegMulAdd(n, V::DoubleSet(6.123233995736766e-17), r);
  const Double square = V::DoubleMul(r, r);

  Double s = V::DoubleSet(-1.0 / 39916800);
  s = V::DoubleMulAdd(s, square, V::DoubleSet(1.0 / 362880));
  s = V::DoubleMulAdd(s, square, V::DoubleSet(-1.0 / 5040));
  s = V::DoubleMulAdd(s, square, V::DoubleSet(1.0 / 120));
  s = V::DoubleMulAdd(s, square, V::DoubleSet(-1.0 / 6));
  s = V::DoubleMulAdd(V::DoubleMul(s, square), r, r);

  Double c = V::DoubleSet(1.0 / 479001600);
  c = V::DoubleMulAdd(c, square, V::DoubleSet(-1.0 / 3628800));
  c = V::DoubleMulAdd(c, square, V::DoubleSet(1.0 / 40320));
  c = V::DoubleMulAdd(c, square, V::DoubleSet(-1.0 / 720));
  c = V::DoubleMulAdd(c, square, V::DoubleSet(1.0 / 24));
  c = V::DoubleMulAdd(c, square, V::DoubleSet(-0.5));
  c = V::DoubleMulAdd(c, square, V::DoubleSet(1.0));

  // The quarter turn: 0, 1, 2 or 3.
  const Double turns = V::DoubleFloor(V::DoubleMul(n, V::DoubleSet(0.25)));
  const Double quarter = V::DoubleNegMulAdd(turns, V::DoubleSet(4.0), n);
  const auto first = V::DoubleEqual(quarter, V::DoubleSet(1.0));
  const auto second = V::DoubleEqual(quarter, V::DoubleSet(2.0));
  const auto third = V::DoubleEqual(quarter, V::DoubleSet(3.0));
  const auto odd = V::Or(first, third);
  const Double plus = V::DoubleSet(1.0);
  const Double minus = V::DoubleSet(-1.0);
  *sine =
      V::DoubleMul(V::DoubleSelect(odd, c, s), V::DoubleSelect(V::Or(second, third), minus, plus));
  *cosine =
      V::DoubleMul(V::DoubleSelect(odd, s, c), V::DoubleSelect(V::Or(first, second), minus, plus));
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_MATH_H_
