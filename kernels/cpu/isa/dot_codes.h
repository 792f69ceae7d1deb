#ifndef ANNULUS_KERNELS_CPU_ISA_DOT_CODES_H_
#define ANNULUS_KERNELS_CPU_ISA_DOT_CODES_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/simd/kernels.h"

// Widens stored weights to pairs of bf16, in which every code is exact. 64 bytes of a panel hold 16
// columns of 2, 4 or 8 inputs and give kPairs vectors of 16 pairs. Needs AVX512BW and AVX512_VBMI.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

#define ANNULUS_DOT_INLINE inline __attribute__((always_inline))

// Weights stored as bf16.
struct PairCodes {
  static constexpr int kPairs = 1;
  ANNULUS_DOT_INLINE void Widen(const char* from, __m512i* pairs) const {
    pairs[0] = _mm512_loadu_si512(from);
  }
};

// The low and the high byte of the bf16 value of each code, by the code's 7 bits below the sign.
struct ByteTable {
  alignas(64) uint8_t low[128];
  alignas(64) uint8_t high[128];
};

constexpr float Magnitude(int8_t, int code) { return static_cast<float>(code); }
constexpr float FloatMagnitude(int exponent, int mantissa, int mantissa_bits, int bias) {
  float value = static_cast<float>(exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits));
  int power = (exponent == 0 ? 1 : exponent) - bias - mantissa_bits;
  for (; power > 0; --power) value *= 2;
  for (; power < 0; ++power) value /= 2;
  return value;
}
constexpr float Magnitude(E4M3, int code) {
  return code == 0x7f ? __builtin_nanf("") : FloatMagnitude(code >> 3, code & 7, 3, 7);
}
constexpr float Magnitude(E5M2, int code) {
  if (code == 0x7c) return __builtin_inff();
  return code > 0x7c ? __builtin_nanf("") : FloatMagnitude(code >> 2, code & 3, 2, 15);
}

template <class Code>
constexpr ByteTable MakeByteTable() {
  ByteTable table = {};
  for (int code = 0; code < 128; ++code) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, Magnitude(Code{}, code));
    table.low[code] = static_cast<uint8_t>(bits >> 16);
    table.high[code] = static_cast<uint8_t>(bits >> 24);
  }
  return table;
}
template <class Code>
constexpr ByteTable kByteTable = MakeByteTable<Code>();

// 8-bit codes. Looks up both bytes of each value. The even bytes of a word become its first pair,
// the odd ones its second.
template <class Code>
struct ByteCodes {
  static constexpr int kPairs = 2;
  ANNULUS_DOT_INLINE ByteCodes() {
    for (int i = 0; i < 2; ++i) {
      low[i] = _mm512_load_si512(kByteTable<Code>.low + i * 64);
      high[i] = _mm512_load_si512(kByteTable<Code>.high + i * 64);
    }
  }
  ANNULUS_DOT_INLINE void Widen(const char* from, __m512i* pairs) const {
    const __m512i codes = _mm512_loadu_si512(from);
    __m512i index = codes;  // only the lowest 7 bits of each byte matter
    if constexpr (kTwosComplement) index = _mm512_abs_epi8(codes);
    const __m512i lows = _mm512_permutex2var_epi8(low[0], index, low[1]);
    // a | (b & c)
    const __m512i highs =
        _mm512_ternarylogic_epi32(_mm512_permutex2var_epi8(high[0], index, high[1]), codes,
                                  _mm512_set1_epi8(static_cast<char>(0x80)), 0xf8);
    // a ? b : c
    const __m512i low_byte = _mm512_set1_epi16(0xff);
    pairs[0] = _mm512_ternarylogic_epi32(low_byte, lows, _mm512_slli_epi16(highs, 8), 0xca);
    pairs[1] = _mm512_ternarylogic_epi32(low_byte, _mm512_srli_epi16(lows, 8), highs, 0xca);
  }

 private:
  static constexpr bool kTwosComplement = Magnitude(Code{}, 2) == 2.0f;
  __m512i low[2];
  __m512i high[2];
};

// int8 codes that may include -128, whose lowest 7 bits are those of 0.
struct WholeByteCodes : ByteCodes<int8_t> {
  ANNULUS_DOT_INLINE void Widen(const char* from, __m512i* pairs) const {
    const __m512i codes = _mm512_loadu_si512(from);
    ByteCodes<int8_t>::Widen(from, pairs);
    const __mmask64 least =
        _mm512_cmpeq_epi8_mask(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
    if (least == 0) return;
    const __m512i bits = _mm512_set1_epi16(static_cast<int16_t>(0xc300));  // -128 in bf16
    // Pair 0 has the even bytes, pair 1 the odd ones.
    const __m512i bytes = _mm512_movm_epi8(least);
    const __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8);
    const __m512i odd = _mm512_srai_epi16(bytes, 8);
    pairs[0] = _mm512_ternarylogic_epi32(even, bits, pairs[0], 0xca);
    pairs[1] = _mm512_ternarylogic_epi32(odd, bits, pairs[1], 0xca);
  }
};

struct HalfByteTable {
  alignas(64) uint16_t bits[32];
};
constexpr HalfByteTable MakeHalfByteTable(int zero) {
  HalfByteTable table = {};
  for (int i = 0; i < 32; ++i) {
    const float value = static_cast<float>(i % 16 - zero);
    table.bits[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, value) >> 16);
  }
  return table;
}
template <int kZero>
constexpr HalfByteTable kHalfByteTable = MakeHalfByteTable(kZero);

// 4-bit codes, stored as code + kZero. Each look-up takes one 4-bit code out of every 16-bit word.
// The instruction uses 5 bits, of which the highest belongs to the next code, so the table is
// stored twice.
template <int kZero>
struct HalfByteCodes {
  static constexpr int kPairs = 4;
  ANNULUS_DOT_INLINE HalfByteCodes() : table(_mm512_load_si512(kHalfByteTable<kZero>.bits)) {}
  ANNULUS_DOT_INLINE void Widen(const char* from, __m512i* pairs) const {
    const __m512i codes = _mm512_loadu_si512(from);
    pairs[0] = _mm512_permutexvar_epi16(codes, table);
    pairs[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4), table);
    pairs[2] = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 8), table);
    pairs[3] = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 12), table);
  }

 private:
  __m512i table;
};

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_DOT_CODES_H_
