#ifndef ANNULUS_KERNELS_CPU_ISA_AMX_TILES_H_
#define ANNULUS_KERNELS_CPU_ISA_AMX_TILES_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa/fetch.h"
#include "kernels/cpu/simd/kernels.h"

// Tile products for attention. TDPBF16PS multiplies up to 16 rows by 32 elements of depth by 16
// columns (a panel).

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

#define ANNULUS_ISA_INLINE inline __attribute__((always_inline))

inline constexpr int kAmxRows = 16;   // per tile
inline constexpr int kAmxDepth = 16;  // pairs per tile
inline constexpr int kAmxBlockRows = 2 * kAmxRows;
inline constexpr int64_t kAmxRowBytes = 64;

// Tiles 0 to 3 hold sums: [half of the rows][panel], or [panel] if there is only one half. Tiles 4
// and 5 hold rows, 6 and 7 columns.
struct alignas(64) AmxConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(AmxConfig) == 64);
// The configuration for few rows: smaller tiles of sums and of rows take less time.
constexpr AmxConfig FewRowsConfig(int rows) {
  AmxConfig config;
  for (int tile = 0; tile < 5; ++tile) config.rows[tile] = static_cast<uint8_t>(rows);
  return config;
}
// A constant, so that all of it is in memory: the intrinsic tells the compiler only that its first
// bytes are read.
inline constexpr AmxConfig kAmxConfig;
struct FewRowsConfigs {
  AmxConfig config[kAmxRows];
};
constexpr FewRowsConfigs MakeFewRowsConfigs() {
  FewRowsConfigs configs;
  for (int rows = 1; rows < kAmxRows; ++rows) configs.config[rows] = FewRowsConfig(rows);
  return configs;
}
inline constexpr FewRowsConfigs kFewRowsConfigs = MakeFewRowsConfigs();

// A compiler barrier. The tile intrinsics do not say which memory they read, so earlier stores must
// be finished first.
ANNULUS_ISA_INLINE void StoresBeforeTiles() { asm volatile("" ::: "memory"); }

// Cache lines that products of few rows prefetch: `tile` with each product of tiles, `row` with
// each row's softmax.
struct Ahead {
  FetchAhead* lines = nullptr;
  int tile = 0;
  int row = 0;
};

// Panels multiplied together: a whole chunk of keys if there is only one half of rows.
template <int kHalves>
inline constexpr int kPanelsAtOnce = kHalves == 2 ? 2 : 4;

// sums += rows * columns over 16 pairs. `a` points to the rows of the first half; the second half
// starts 16 rows later. `b` points to the first panel's 16 pairs; the next panel starts
// `next_panel` bytes later.
template <int kHalves, int kPanels>
ANNULUS_ISA_INLINE void MultiplyTiles(const uint32_t* a, int64_t a_stride, const uint32_t* b,
                                      int64_t b_stride, int64_t next_panel, const Ahead& ahead) {
  const char* const rows = reinterpret_cast<const char*>(a);
  const char* const columns = reinterpret_cast<const char*>(b);
  _tile_loadd(6, columns, b_stride);
  _tile_loadd(4, rows, a_stride);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kHalves == 2) {
    _tile_loadd(5, rows + kAmxRows * a_stride, a_stride);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kPanels == 2) {
      _tile_loadd(7, columns + next_panel, b_stride);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
    return;
  }
  Ask(ahead.lines, ahead.tile);
  if constexpr (kPanels > 1) {
    _tile_loadd(7, columns + next_panel, b_stride);
    _tile_dpbf16ps(1, 4, 7);
    Ask(ahead.lines, ahead.tile);
  }
  if constexpr (kPanels > 2) {
    _tile_loadd(5, columns + 2 * next_panel, b_stride);
    _tile_dpbf16ps(2, 4, 5);
    Ask(ahead.lines, ahead.tile);
  }
  if constexpr (kPanels > 3) {
    _tile_loadd(6, columns + 3 * next_panel, b_stride);
    _tile_dpbf16ps(3, 4, 6);
    Ask(ahead.lines, ahead.tile);
  }
}

template <int kHalves, int kPanels>
ANNULUS_ISA_INLINE void ZeroSums() {
  _tile_zero(0);
  if constexpr (kPanels > 1) _tile_zero(1);
  if constexpr (kHalves == 2 || kPanels > 2) _tile_zero(2);
  if constexpr (kHalves * kPanels > 3) _tile_zero(3);
}

template <int kHalves, int kPanels>
ANNULUS_ISA_INLINE void LoadSums(const float* sums, int64_t stride) {
  const float* const second = kHalves == 2 ? sums + kAmxRows * stride : sums + 2 * kPanel;
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
  _tile_loadd(0, sums, bytes);
  if constexpr (kPanels > 1) _tile_loadd(1, sums + kPanel, bytes);
  if constexpr (kHalves == 2 || kPanels > 2) _tile_loadd(2, second, bytes);
  if constexpr (kHalves * kPanels > 3) _tile_loadd(3, second + kPanel, bytes);
}

template <int kHalves, int kPanels>
ANNULUS_ISA_INLINE void StoreSums(float* sums, int64_t stride) {
  float* const second = kHalves == 2 ? sums + kAmxRows * stride : sums + 2 * kPanel;
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
  _tile_stored(0, sums, bytes);
  if constexpr (kPanels > 1) _tile_stored(1, sums + kPanel, bytes);
  if constexpr (kHalves == 2 || kPanels > 2) _tile_stored(2, second, bytes);
  if constexpr (kHalves * kPanels > 3) _tile_stored(3, second + kPanel, bytes);
}

#undef ANNULUS_ISA_INLINE

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_AMX_TILES_H_
