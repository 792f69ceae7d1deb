#ifndef ANNULUS_KERNELS_CPU_ISA_WIDEN_H_
#define ANNULUS_KERNELS_CPU_ISA_WIDEN_H_

#include <cstdint>

#include "kernels/cpu/simd/kernels.h"

// Widens the quantised weights of a panel to float32, code * scale (+ minimum), as [k][16] for the
// product of floats. Plain loops over the 16 columns, which the compiler vectorises with the unit's
// instruction set.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

// Inputs widened together: 64 columns of them are 32 KiB. A multiple of every group size.
inline constexpr int64_t kWidenDepth = 128;

// Tags for the 4-bit types with bf16 scales, and for the types of GGUF files.
struct Int4 {};
struct Q8_0 {};
struct Q4_0 {};
struct Q4_1 {};

// The value of the code in the highest byte of `word`. Moves a float's exponent to its place in
// float32; the factor corrects for the different biases, and for subnormal numbers too.
inline float CodeValue(int8_t, uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word) >> 24);
}
inline float CodeValue(E4M3, uint32_t word) {
  const uint32_t bits = (word & 0x80000000u) | ((word & 0x7f000000u) >> 4);
  return __builtin_bit_cast(float, bits) * 0x1p120f;
}
inline float CodeValue(E5M2, uint32_t word) {
  const uint32_t bits = (word & 0x80000000u) | ((word & 0x7f000000u) >> 3);
  return __builtin_bit_cast(float, bits) * 0x1p112f;
}

inline const char* Panel(const LinearTask& task, int panel) {
  return static_cast<const char*>(task.panels) + panel * task.panel_bytes;
}

// Widens inputs [k, k + depth) of one panel. k is a multiple of kWidenDepth. May widen up to 7
// inputs more.
template <class V, class Code>
void WidenPanel(Code, const LinearTask& task, int panel, int64_t k, int64_t depth, float* output) {
  const float* const scales = reinterpret_cast<const float*>(Panel(task, panel) + task.scales);
  const uint32_t* words = reinterpret_cast<const uint32_t*>(Panel(task, panel)) + k / 4 * kPanel;
  constexpr int kShift[4] = {24, 8, 16, 0};  // inputs lie in the order 0, 2, 1, 3
  for (int64_t i = 0; i < depth; i += 4, words += kPanel) {
    for (int j = 0; j < 4; ++j) {
      for (int c = 0; c < kPanel; ++c) {
        output[(i + j) * kPanel + c] = CodeValue(Code{}, words[c] << kShift[j]) * scales[c];
      }
    }
  }
}

template <class V>
void WidenPanel(Int4, const LinearTask& task, int panel, int64_t k, int64_t depth, float* output) {
  const uint16_t* const scales =
      reinterpret_cast<const uint16_t*>(Panel(task, panel) + task.scales);
  const uint32_t* words = reinterpret_cast<const uint32_t*>(Panel(task, panel)) + k / 8 * kPanel;
  for (int64_t i = 0; i < depth; i += 8, words += kPanel) {
    float scale[kPanel];
    for (int c = 0; c < kPanel; ++c) {
      const uint32_t bits = scales[(k + i) / task.group * kPanel + c];
      scale[c] = __builtin_bit_cast(float, bits << 16);
    }
    for (int j = 0; j < 8; ++j) {
      for (int c = 0; c < kPanel; ++c) {
        const uint32_t code = words[c] >> (j % 2 * 16 + j / 2 * 4) & 15;
        output[(i + j) * kPanel + c] =
            (static_cast<float>(static_cast<int32_t>(code)) - 8) * scale[c];
      }
    }
  }
}

// Widens 16 f16 numbers of a group: its columns' scales or minimums.
template <class V>
void WidenNumbers(const F16* numbers, float* to) {
  for (int c = 0; c < kPanel; c += V::kLanes) V::Store(to + c, V::Load(numbers + c));
}

template <class V>
void WidenPanel(Q8_0, const LinearTask& task, int panel, int64_t k, int64_t depth, float* output) {
  const F16* scales =
      reinterpret_cast<const F16*>(Panel(task, panel) + task.scales) + k / task.group * kPanel;
  const uint32_t* words = reinterpret_cast<const uint32_t*>(Panel(task, panel)) + k / 4 * kPanel;
  constexpr int kShift[4] = {24, 8, 16, 0};  // inputs lie in the order 0, 2, 1, 3
  for (int64_t begin = 0; begin < depth; begin += task.group, scales += kPanel) {
    float scale[kPanel];
    WidenNumbers<V>(scales, scale);
    const int64_t end = begin + task.group < depth ? begin + task.group : depth;
    for (int64_t i = begin; i < end; i += 4, words += kPanel) {
      for (int j = 0; j < 4; ++j) {
        for (int c = 0; c < kPanel; ++c) {
          output[(i + j) * kPanel + c] = CodeValue(int8_t{}, words[c] << kShift[j]) * scale[c];
        }
      }
    }
  }
}

// Groups of 4-bit codes. kMinimum: code * scale + minimum, else (code - 8) * scale.
template <class V, bool kMinimum>
void WidenHalfBytes(const LinearTask& task, int panel, int64_t k, int64_t depth, float* output) {
  constexpr int64_t kNumbers = kMinimum ? 2 * kPanel : kPanel;
  const F16* numbers =
      reinterpret_cast<const F16*>(Panel(task, panel) + task.scales) + k / task.group * kNumbers;
  const uint32_t* words = reinterpret_cast<const uint32_t*>(Panel(task, panel)) + k / 8 * kPanel;
  for (int64_t begin = 0; begin < depth; begin += task.group, numbers += kNumbers) {
    float scale[kPanel];
    float minimum[kPanel];
    WidenNumbers<V>(numbers, scale);
    if constexpr (kMinimum) WidenNumbers<V>(numbers + kPanel, minimum);
    const int64_t end = begin + task.group < depth ? begin + task.group : depth;
    for (int64_t i = begin; i < end; i += 8, words += kPanel) {
      for (int j = 0; j < 8; ++j) {
        for (int c = 0; c < kPanel; ++c) {
          const auto code = static_cast<int32_t>(words[c] >> (j % 2 * 16 + j / 2 * 4) & 15);
          float& weight = output[(i + j) * kPanel + c];
          if constexpr (kMinimum) {  // the product is exact
            weight = static_cast<float>(code) * scale[c] + minimum[c];
          } else {
            weight = static_cast<float>(code - 8) * scale[c];
          }
        }
      }
    }
  }
}

template <class V>
void WidenPanel(Q4_0, const LinearTask& task, int panel, int64_t k, int64_t depth, float* output) {
  WidenHalfBytes<V, false>(task, panel, k, depth, output);
}

template <class V>
void WidenPanel(Q4_1, const LinearTask& task, int panel, int64_t k, int64_t depth, float* output) {
  WidenHalfBytes<V, true>(task, panel, k, depth, output);
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_WIDEN_H_
