#include <immintrin.h>

#include "bench/peak/loops.h"

namespace annulus::bench::peak {
namespace {

// Tiles 0..3 are sums, 4..7 factors; each is 16 rows of 64 bytes (Intel SDM, LDTILECFG).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

void SetUpTiles() {
  alignas(64) static constexpr uint8_t kZeros[16 * 64] = {};
  const TileConfig config;
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, kZeros, 64);
  _tile_loadd(5, kZeros, 64);
  _tile_loadd(6, kZeros, 64);
  _tile_loadd(7, kZeros, 64);
}

float TakeDownTiles() {
  alignas(64) float sums[16 * 16];
  _tile_stored(0, sums, 64);
  _tile_release();
  return sums[0];
}

float RunBf16(int64_t iterations) {
  SetUpTiles();
  for (int64_t i = 0; i < iterations; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return TakeDownTiles();
}

float RunInt8(int64_t iterations) {
  SetUpTiles();
  for (int64_t i = 0; i < iterations; ++i) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  return TakeDownTiles();
}

// One product is 16 x 16 sums of 64 bytes of factors.
constexpr double kBytesMultiplied = 4.0 * 16 * 16 * 64;

}  // namespace

OperationLoop AmxBf16Loop() { return {&RunBf16, kBytesMultiplied, "tdpbf16ps"}; }
OperationLoop AmxInt8Loop() { return {&RunInt8, 2 * kBytesMultiplied, "tdpbusd"}; }

}  // namespace annulus::bench::peak
