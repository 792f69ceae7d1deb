#ifndef ANNULUS_KERNELS_CUDA_SM80_FEW_ROWS_TILE_H_
#define ANNULUS_KERNELS_CUDA_SM80_FEW_ROWS_TILE_H_

#include "kernels/cuda/sm80/few_rows/inputs.h"
#include "kernels/cuda/sm80/few_rows/weight_stream.h"

// What a warp computes of a product of few rows: its part of the depth of 8 * tiles outputs, a
// group, for all rows. Which warp takes which part and which groups is the kernel's affair
// (linear_few_rows.cu, sm90/few_rows_cluster.cu).

namespace annulus::cuda::few_rows {

// The scales of 4-bit codes, a stage ahead: lane i has those of outputs i, i + 32 .. of the group,
// for each unit those of both steps in one word. `kWide`: where a whole stage of them is there and
// aligned, they are loaded at once.
template <int kTiles, class Walk, bool kWide>
class StageScales {
 public:
  static constexpr int kUnits = 4;  // of a stage
  static constexpr int kOwn = (8 * kTiles + kWarp - 1) / kWarp;

  ANNULUS_DEVICE StageScales(const WeightView& w, const Part& part, int stages, const Walk& walk)
      : weight_(w),
        walk_(walk),
        begin_(static_cast<int>(part.begin)),
        stages_(stages),
        output_(walk.First() * 8 * kTiles + Lane()) {
    if constexpr (kWide) aligned_ = StagesAreAligned();
    Ask();
  }

  ANNULUS_DEVICE void Next() {
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u) now_[r][u] = next_[r][u];
    }
    if (++stage_ == stages_) {
      stage_ = 0;
      output_ += walk_.Step() * 8 * kTiles;
    }
    Ask();
  }

  // Those of both steps of a unit, of output g of a tile.
  ANNULUS_DEVICE uint32_t Of(int unit, int tile) const {
    return ShuffleFrom(now_[tile / 4][unit], tile % 4 * 8 + Lane() / 4);
  }

 private:
  // Whether those of a stage of every output begin at a multiple of their bytes.
  ANNULUS_DEVICE bool StagesAreAligned() const {
    const bool thirty_two = weight_.dtype == DType::kI4G32;
    const auto bytes = static_cast<uint64_t>(kUnits * (thirty_two ? 4 : 2));
    const auto before = static_cast<uint64_t>(begin_ / (thirty_two ? kStep : kUnit)) * 2;
    return ((reinterpret_cast<uintptr_t>(weight_.scales) |
             static_cast<uint64_t>(weight_.scale_bytes) | before) &
            (bytes - 1)) == 0;
  }

  // `scales`: of an output, which may not exist. Returns false if they must be loaded one by one.
  ANNULUS_DEVICE bool AskAtOnce(const uint16_t* scales, bool exists,
                                uint32_t (&next)[kUnits]) const {
    const int depth = begin_ + stage_ * kUnits * kUnit;
    if (!aligned_ || depth + kUnits * kUnit > weight_.in_features) return false;
    Bytes16 loaded{};
    if (weight_.dtype == DType::kI4G32) {
      if (exists) loaded = *reinterpret_cast<const Bytes16*>(scales + depth / kStep);
    } else {
      TwoWords pairs{};
      if (exists) pairs = *reinterpret_cast<const TwoWords*>(scales + depth / kUnit);
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        loaded.words[u] = SelectBytes(pairs.words[u / 2], u % 2 == 0 ? 0x1010 : 0x3232);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnits; ++u) next[u] = loaded.words[u];
    return true;
  }

  ANNULUS_DEVICE void Ask() {
    const bool thirty_two = weight_.dtype == DType::kI4G32;
    const int first = static_cast<int>(Unhoisted(static_cast<uint32_t>(output_)));
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      const int64_t output = first + r * kWarp;
      const bool exists = Lane() + r * kWarp < 8 * kTiles && output < walk_.End(weight_);
      const auto* const scales =
          reinterpret_cast<const uint16_t*>(weight_.scales + output * weight_.scale_bytes);
      if constexpr (kWide) {
        if (AskAtOnce(scales, exists, next_[r])) continue;
      }
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const int depth = begin_ + (stage_ * kUnits + u) * kUnit;
        uint32_t low = 0;
        uint32_t high = 0;
        if (exists && depth < weight_.in_features) {
          low = scales[depth / (thirty_two ? kStep : kUnit)];
          high = low;
          if (thirty_two) {
            high = depth + kStep < weight_.in_features ? scales[depth / kStep + 1] : 0;
          }
        }
        next_[r][u] = low | high << 16;
      }
    }
  }

  const WeightView& weight_;
  const Walk walk_;
  const int begin_;  // of the part
  const int stages_;
  int output_;  // of this lane, the first
  int stage_ = 0;
  bool aligned_ = false;
  uint32_t now_[kOwn][kUnits];
  uint32_t next_[kOwn][kUnits];
};

// Of weights without groups.
struct NoScales {
  template <class Walk>
  ANNULUS_DEVICE NoScales(const WeightView&, const Part&, int, const Walk&) {}
};

// The sums of a warp: of 8 rows (1: 16 rows) and two tiles of outputs. Element e belongs to row 2t
// + e % 2 and output g of tile e / 2.
template <int kHalves, int kTiles>
using Sums = float[kHalves][(kTiles + 1) / 2][4];

template <CodeForm kForm, int kTiles>
ANNULUS_DEVICE void LoadCodes(const std::byte* slot, int step, EightCodes<kForm> (&codes)[kTiles]) {
  const int g = Lane() / 4;
  const int at = step * (kStep * BitsOf(kForm) / 8) + Lane() % 4 * BitsOf(kForm);
  const std::byte* const own = slot + g * 128 + PlaceOfPiece(g, at / 16) * 16 + at % 16;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) codes[n] = LoadEight<kForm>(own + n * 8 * 128);
}

// One step of a warp: sums += its products. Weights are the first factor, so that one instruction
// multiplies two tiles of outputs by 8 rows. `scales`: of 4-bit codes, of output g of each tile.
template <CodeForm kForm, int kHalves, int kTiles>
ANNULUS_DEVICE void MultiplyStep(DType dtype, const EightCodes<kForm> (&codes)[kTiles],
                                 const Bytes16 (&rows)[kHalves], const float (&scales)[kTiles],
                                 Sums<kHalves, kTiles>& sums) {
  constexpr int kPairs = (kTiles + 1) / 2;
  uint32_t a[kPairs][2][4] = {};
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    uint32_t pairs[4];
    WidenEight<kForm>(dtype, codes[n], pairs);
#pragma unroll
    for (int p = 0; p < 4; ++p) a[n / 2][p / 2][p % 2 * 2 + n % 2] = pairs[p];
  }
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const uint32_t(&b)[4] = rows[h].words;
    if constexpr (kForm == CodeForm::kFourBits) {
      float products[kPairs][4];
#pragma unroll
      for (int m = 0; m < kPairs; ++m) Multiply(BFloat16{}, products[m], a[m][0], b[0], b[1]);
#pragma unroll
      for (int m = 0; m < kPairs; ++m) MultiplyAdd(BFloat16{}, products[m], a[m][1], b[2], b[3]);
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        AddScaled(products[i / 4][i % 4], scales[i / 2], sums[h][i / 4][i % 4]);
      }
    } else {
#pragma unroll
      for (int m = 0; m < kPairs; ++m) MultiplyAdd(BFloat16{}, sums[h][m], a[m][0], b[0], b[1]);
#pragma unroll
      for (int m = 0; m < kPairs; ++m) MultiplyAdd(BFloat16{}, sums[h][m], a[m][1], b[2], b[3]);
    }
  }
}

// A stage of a warp: sums += its products.
template <CodeForm kForm, int kHalves, int kTiles, class Inputs, class Scales>
ANNULUS_DEVICE void MultiplyStage(DType dtype, const std::byte* slot, int first_unit,
                                  Inputs& inputs, const Scales& scales,
                                  Sums<kHalves, kTiles>& sums) {
  constexpr int kSteps = 128 * 8 / BitsOf(kForm) / kStep;
  EightCodes<kForm> codes[2][kTiles];
  LoadCodes<kForm, kTiles>(slot, 0, codes[0]);
#pragma unroll
  for (int u = 0; u < kSteps / 2; ++u) {
    const int unit = first_unit + u;
    if (unit >= inputs.units()) break;
    inputs.Take(unit);
    uint32_t both[kTiles] = {};
    if constexpr (kForm == CodeForm::kFourBits) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) both[n] = scales.Of(u, n);
    }
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const int step = 2 * u + s;
      Bytes16 rows[kHalves];
      inputs.Load(unit, s, rows);
      if (step + 1 < kSteps) LoadCodes<kForm, kTiles>(slot, step + 1, codes[(step + 1) % 2]);
      float own_scales[kTiles];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        own_scales[n] = FloatOf(s == 0 ? both[n] << 16 : both[n] & 0xffff0000u);
      }
      MultiplyStep<kForm, kHalves, kTiles>(dtype, codes[step % 2], rows, own_scales, sums);
    }
  }
}

// Runs `body` for the form of the weights, up to 8 rows (kHalves = 1) or up to 16 (2), and the
// tiles of a group: body.Run<kForm, kHalves, kTiles>().
template <CodeForm kForm, int kHalves, class Body>
ANNULUS_DEVICE void RunTiles(int tiles, const Body& body) {
  switch (tiles) {
    case 1:
      return body.template Run<kForm, kHalves, 1>();
    case 2:
      return body.template Run<kForm, kHalves, 2>();
    default:
      return body.template Run<kForm, kHalves, 4>();
  }
}
template <CodeForm kForm, class Body>
ANNULUS_DEVICE void RunRows(int rows, int tiles, const Body& body) {
  if (rows > 8) {
    RunTiles<kForm, 2>(tiles, body);
  } else {
    RunTiles<kForm, 1>(tiles, body);
  }
}
template <class Body>
ANNULUS_DEVICE void RunShape(DType dtype, int rows, int tiles, const Body& body) {
  switch (FormOf(dtype)) {
    case CodeForm::kFourBits:
      return RunRows<CodeForm::kFourBits>(rows, tiles, body);
    case CodeForm::kInt8:
      return RunRows<CodeForm::kInt8>(rows, tiles, body);
    case CodeForm::kFloat8:
      return RunRows<CodeForm::kFloat8>(rows, tiles, body);
    case CodeForm::kBFloat16:
      return RunRows<CodeForm::kBFloat16>(rows, tiles, body);
  }
}
static_assert(kMostTilesTensor == 4);

}  // namespace annulus::cuda::few_rows

#endif  // ANNULUS_KERNELS_CUDA_SM80_FEW_ROWS_TILE_H_
