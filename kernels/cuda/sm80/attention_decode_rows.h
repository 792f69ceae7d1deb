#ifndef ANNULUS_KERNELS_CUDA_SM80_ATTENTION_DECODE_ROWS_H_
#define ANNULUS_KERNELS_CUDA_SM80_ATTENTION_DECODE_ROWS_H_

// The instances of attention of few rows, the shared memory of a block, and what a lane holds. See
// attention_decode.h.
#include <type_traits>

#include "kernels/cuda/common/matrix.h"
#include "kernels/cuda/common/widen.h"
#include "kernels/cuda/sm80/attention_rows.h"

namespace annulus::cuda {

// T: operand type of 16-bit pages.
template <class T, bool kIsNarrow, int kHeadDim>
struct DecodeConfig {
  using Operand = T;
  static constexpr bool kNarrow = kIsNarrow;
  static constexpr int kDim = kHeadDim;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarp * kWarps;
  static constexpr int kRows = 16;
  static constexpr int kKeys = 16;  // of a group
  static constexpr int kElement = kNarrow ? 1 : 2;
  static constexpr int kRowBytes = kDim * kElement;
  static constexpr int kChunks = kRowBytes / 16;  // of 16 bytes
  static constexpr int kGroupChunks = kKeys * kChunks;
  static constexpr int kCopies = kGroupChunks / kWarp;  // per lane, of a group's keys or values
  static constexpr int kStages = 8192 / (kGroupChunks * 16);  // 16 KiB per warp
  // Products of 16 of depth, of which a chunk of 16 bytes from each of 4 lanes has so many.
  static constexpr int kSteps = kDim / 16;
  static constexpr int kChunkSteps = kNarrow ? 4 : 2;
  // A lane's columns of one value, in pieces.
  static constexpr int kPieceBytes = kRowBytes < 128 ? kRowBytes / 8 : 16;
  static constexpr int kPieces = kRowBytes / 8 / kPieceBytes;
  static constexpr int kTiles = kDim / 16;  // of 16 columns
  // Weights are 2^(score - maximum + kHeadroom). f16 has no numbers below 2^-24 and many keys may
  // weigh less each than that, but enough together; it has numbers up to 2^16.
  static constexpr float kHeadroom = kNarrow || std::is_same_v<T, Float16> ? 15 : 0;
  static_assert(kStages >= 1 && kPieceBytes >= 8);
};

// Scales of int8; takes no room with 16-bit operands.
template <class C, bool kNarrow>
struct DecodeScales {
  alignas(16) uint16_t scales[C::kWarps][C::kStages][2][C::kKeys];
  ANNULUS_DEVICE uint16_t* Scales(int stage, int kind) { return scales[WarpIndex()][stage][kind]; }
};
template <class C>
struct DecodeScales<C, false> {
  ANNULUS_DEVICE uint16_t* Scales(int, int) { return nullptr; }
};

// A group in the ring.
struct alignas(16) DecodeGroup {
  const std::byte* page;
  int32_t first;  // position of the first key
  int32_t count;  // of keys; may be negative
};

template <class C>
struct DecodeShared : DecodeScales<C, C::kNarrow> {
  using Slot = Bytes16[C::kGroupChunks];
  union {
    Slot slots[C::kWarps][C::kStages][2];   // keys, values
    float o[C::kWarps][C::kRows][C::kDim];  // at the end
  };
  DecodeGroup groups[C::kWarps][C::kStages];
  float maximum[C::kWarps][C::kRows];
  float sum[C::kWarps][C::kRows];
  float bad_value[C::kWarps][C::kDim];  // one that is not finite
};

// A lane's part of 8 * kHalves rows. Scores and weights: row 8 * h + lane / 4. Output: rows 8 * h +
// 2 * (lane % 4) + {0, 1}.
template <class C, int kHalves>
struct DecodeRows {
  uint32_t query[C::kSteps][2 * kHalves];
  float factor[kHalves];  // of scores
  float o[C::kTiles][kHalves][4] = {};
  float maximum[kHalves];  // of the scores, in units of log 2
  float sum[kHalves] = {};
  int32_t position[kHalves];  // -1: no row
};

// The first of a lane's 4 neighbouring elements of depth in a step.
template <class C>
ANNULUS_DEVICE int DepthOf(int step) {
  return (Lane() % 4 + 4 * (step / C::kChunkSteps)) * 4 * C::kChunkSteps +
         4 * (step % C::kChunkSteps);
}

// The first of a lane's 2 neighbouring columns in tile n.
template <class C>
ANNULUS_DEVICE int ColumnOf(int n) {
  constexpr int kPieceTiles = C::kTiles / C::kPieces;
  return (Lane() / 4 + 8 * (n / kPieceTiles)) * 2 * kPieceTiles + 2 * (n % kPieceTiles);
}

// Key number i (0 to 3) of a lane's weights and values.
ANNULUS_DEVICE int LaneKey(int i) { return i / 2 * 8 + Lane() % 4 * 2 + i % 2; }

// Chunks of a group lie in their slot as in the page, one row after the other, but exchanged within
// each 8, so that 8 lanes that read together cover all banks: 4 chunks of 2 neighbouring keys, or a
// pair of chunks of every second of 8 values. Chunk c of a row is at c ^ turn.
template <class C>
ANNULUS_DEVICE int KeyTurn(int key) {
  return C::kChunks < 8 ? 0 : key % 2 * 4;
}
ANNULUS_DEVICE int ValueTurn(int key) { return key / 2 % 4 * 2; }

// Where to read chunk lane % 4 + 4 * i of key 8 * n + lane / 4.
template <class C>
ANNULUS_DEVICE int KeyPlace(int n, int i) {
  const int key = Lane() / 4;
  const int turned = Lane() % 4 + (C::kChunks < 8 ? 0 : (i ^ key) % 2 * 4);
  return key * C::kChunks + turned + 8 * n * C::kChunks + i / 2 * 8;
}

// Piece j of value i (LaneKey) of a lane.
template <class C>
ANNULUS_DEVICE std::byte* PieceOf(Bytes16 (&slot)[C::kGroupChunks], int j, int i) {
  const int turn = Lane() % 4 * 2;  // of any of the lane's values
  if constexpr (C::kPieceBytes == 16) {
    const int first = turn * C::kChunks + (Lane() / 4 ^ turn);
    return reinterpret_cast<std::byte*>(&slot[first + (i % 2 + i / 2 * 8) * C::kChunks + 8 * j]);
  } else {
    static_assert(C::kChunks == 4);
    const int first = Lane() % 4 * 8 + (Lane() / 8 ^ turn ^ i % 2 * 4);
    return reinterpret_cast<std::byte*>(&slot[first + i / 2 * 32]) + Lane() / 4 % 2 * 8;
  }
}

// The largest power of 2, inverted, by which a row of queries is divided: with it the largest
// element lies in [1, 2). 1 if that is 0 or not finite.
ANNULUS_DEVICE float Normalizer(uint32_t largest) {
  const uint32_t exponent = largest >> 23;
  if (largest == 0 || exponent == 255) return 1;
  return FloatOf(Smaller(Larger(254u - exponent, 1u), 253u) << 23);
}

template <class C, int kHalves>
ANNULUS_DEVICE void LoadRows(const AttentionArguments& a, const AttentionUnit& unit,
                             const AttentionItemView& item, DecodeRows<C, kHalves>& rows) {
  constexpr float kLog2E = 1.4426950408889634f;
  const float factor = a.soft_cap > 0 ? a.scale / a.soft_cap : a.scale * kLog2E;
  const int dim = a.layout.k_dim;
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const int r = 8 * h + Lane() / 4;
    const bool present = r < unit.row_count;
    const int row = unit.row_begin + (present ? r : 0);
    const int head = unit.kv_head * a.group + row % a.group;
    const float* const query = item.query + row / a.group * item.query_stride + int64_t{head} * dim;
    const auto element = [&](int d) { return present && d < dim ? query[d] : 0; };
    float normalizer = 1;
    if constexpr (C::kNarrow) {
      uint32_t largest = 0;
#pragma unroll
      for (int step = 0; step < C::kSteps; ++step) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          largest = Larger(largest, BitsOf(element(DepthOf<C>(step) + e)) & 0x7fffffffu);
        }
      }
      largest = Larger(largest, ShuffleXor(largest, 1));
      largest = Larger(largest, ShuffleXor(largest, 2));
      normalizer = Normalizer(largest);
    }
#pragma unroll
    for (int step = 0; step < C::kSteps; ++step) {
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const int d = DepthOf<C>(step) + 2 * p;
        const float low = element(d);
        const float high = element(d + 1);
        rows.query[step][2 * h + p] = C::kNarrow
                                          ? Pack(Float16{}, low * normalizer, high * normalizer)
                                          : Pack(typename C::Operand{}, low, high);
      }
    }
    rows.factor[h] = factor / normalizer;
    rows.maximum[h] = -FloatOf(0x7f800000u);
    rows.position[h] = present ? item.positions[row / a.group] : -1;
  }
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ATTENTION_DECODE_ROWS_H_
