#ifndef ANNULUS_KERNELS_CUDA_SM80_ATTENTION_DECODE_GROUP_H_
#define ANNULUS_KERNELS_CUDA_SM80_ATTENTION_DECODE_GROUP_H_

// What a warp computes for one group of keys: scores, weights, output. See attention_decode.h.
#include <type_traits>

#include "kernels/cuda/sm80/attention_decode_rows.h"

namespace annulus::cuda {

// scores[n] = the rows' products with keys 8 * n + {0 .. 7}.
template <class C, DType kDType, int kHalves>
ANNULUS_DEVICE void Products(const Bytes16 (&slot)[C::kGroupChunks],
                             const DecodeRows<C, kHalves>& rows, float (&scores)[2][4]) {
#pragma unroll
  for (int i = 0; i < C::kCopies / 2; ++i) {
    const Bytes16 words[2] = {slot[KeyPlace<C>(0, i)], slot[KeyPlace<C>(1, i)]};
#pragma unroll
    for (int s = 0; s < C::kChunkSteps; ++s) {
      const uint32_t(&query)[2 * kHalves] = rows.query[i * C::kChunkSteps + s];
      const uint32_t a[4] = {query[0], kHalves > 1 ? query[2 * kHalves - 2] : 0, query[1],
                             kHalves > 1 ? query[2 * kHalves - 1] : 0};
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        if constexpr (C::kNarrow) {
          const uint32_t codes = words[n].words[s];
          MultiplyAdd(Float16{}, scores[n], a, HalvesOfCodes<kDType>(codes, 0),
                      HalvesOfCodes<kDType>(codes, 1));
        } else {
          MultiplyAdd(typename C::Operand{}, scores[n], a, words[n].words[2 * s],
                      words[n].words[2 * s + 1]);
        }
      }
    }
  }
}

// How often each of a lane's rows counts each of its keys: one byte per key. Not unrolled, because
// few groups are masked and divisions take many instructions.
template <class C, int kHalves>
ANNULUS_DEVICE void FindSeenKeys(const AttentionArguments& a, const AttentionUnit& unit,
                                 const AttentionItemView& item, const KeyTile& tile,
                                 const DecodeRows<C, kHalves>& rows, uint32_t (&seen)[kHalves]) {
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const int row = unit.row_begin + 8 * h + Lane() / 4;
    const int head = unit.kv_head * a.group + row % a.group;
    seen[h] = 0;
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      const int times = TimesSeen(a, item, tile, rows.position[h], head, LaneKey(i));
      seen[h] |= static_cast<uint32_t>(times) << 8 * i;
    }
  }
}

// The scales of a lane's keys. Slots without a key may have any scale.
template <bool kPlain>
ANNULUS_DEVICE void LoadScales(const uint16_t* scales, int count, float (&of)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    of[i] = kPlain || LaneKey(i) < count ? WidenBFloat16(scales[LaneKey(i)]) : 0;
  }
}

// Bends and masks scores.
template <class C, int kHalves>
ANNULUS_DEVICE void MaskScores(const AttentionArguments& a, const AttentionUnit& unit,
                               const AttentionItemView& item, const KeyTile& tile,
                               const DecodeRows<C, kHalves>& rows, float (&scores)[2][4]) {
  constexpr float kLog2E = 1.4426950408889634f;
  if (a.soft_cap > 0) {
#pragma unroll
    for (int i = 0; i < 4 * kHalves; ++i) {
      float& score = scores[i % 4 / 2][i / 4 * 2 + i % 2];
      score = a.soft_cap * kLog2E * Tanh(score);
    }
  }
  uint32_t seen[kHalves];
  FindSeenKeys<C, kHalves>(a, unit, item, tile, rows, seen);
#pragma unroll
  for (int i = 0; i < 4 * kHalves; ++i) {
    const uint32_t times = seen[i / 4] >> i % 4 * 8 & 0xffu;
    float& score = scores[i % 4 / 2][i / 4 * 2 + i % 2];
    if (times == 0) score = -FloatOf(0x7f800000u);
    if (times > 1) score += Log2(static_cast<float>(times));
  }
}

// Turns scores into weights 2^(score - maximum + C::kHeadroom), in place. Rescales sums and output.
template <class C, int kHalves>
ANNULUS_DEVICE void Weigh(float (&scores)[2][4], DecodeRows<C, kHalves>& rows) {
  const float infinity = FloatOf(0x7f800000u);
  float rescale[kHalves];
  bool changed = false;
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    float maximum = rows.maximum[h];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      maximum = fmaxf(maximum, fmaxf(scores[n][2 * h], scores[n][2 * h + 1]));
    }
    maximum = fmaxf(maximum, ShuffleXor(maximum, 1));
    maximum = fmaxf(maximum, ShuffleXor(maximum, 2));
    // No score yet, or only -infinity: all weights are 0.
    const float base = maximum == -infinity ? 0 : maximum;
    rescale[h] = Exp2(rows.maximum[h] - base);
    changed |= rescale[h] != 1;
    rows.maximum[h] = maximum;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& score = scores[i / 2][2 * h + i % 2];
      score = Exp2(score - base + C::kHeadroom);
      sum += score;
    }
    rows.sum[h] = rows.sum[h] * rescale[h] + sum;
  }
  if (Ballot(changed) == 0) [[likely]]
    return;
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const float even = ShuffleFrom(rescale[h], Lane() % 4 * 8);
    const float odd = ShuffleFrom(rescale[h], Lane() % 4 * 8 + 4);
#pragma unroll
    for (int n = 0; n < C::kTiles; ++n) {
      float(&o)[4] = rows.o[n][h];
      o[0] *= even;
      o[1] *= odd;
      o[2] *= even;
      o[3] *= odd;
    }
  }
}

// output += values times weights.
template <class C, class T, DType kDType, int kHalves>
ANNULUS_DEVICE void AddProducts(Bytes16 (&slot)[C::kGroupChunks], const float (&weights)[2][4],
                                DecodeRows<C, kHalves>& rows) {
  constexpr int kWords = C::kPieceBytes / 4;
  uint32_t b[kHalves][2];
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    b[h][0] = Pack(T{}, weights[0][2 * h], weights[0][2 * h + 1]);
    b[h][1] = Pack(T{}, weights[1][2 * h], weights[1][2 * h + 1]);
  }
#pragma unroll
  for (int j = 0; j < C::kPieces; ++j) {
    uint32_t words[4][kWords];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::byte* const piece = PieceOf<C>(slot, j, i);
      if constexpr (kWords == 4) {
        const Bytes16 all = *reinterpret_cast<const Bytes16*>(piece);
#pragma unroll
        for (int w = 0; w < kWords; ++w) words[i][w] = all.words[w];
      } else {
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
          words[i][w] = reinterpret_cast<const uint32_t*>(piece)[w];
        }
      }
    }
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      constexpr int kTilesOfWord = C::kNarrow ? 2 : 1;
#pragma unroll
      for (int z = 0; z < kTilesOfWord; ++z) {
        uint32_t v[4];
        if constexpr (C::kNarrow) {
          v[0] = PairOfCodes<kDType>(words[0][w], words[1][w], 2 * z);
          v[1] = PairOfCodes<kDType>(words[0][w], words[1][w], 2 * z + 1);
          v[2] = PairOfCodes<kDType>(words[2][w], words[3][w], 2 * z);
          v[3] = PairOfCodes<kDType>(words[2][w], words[3][w], 2 * z + 1);
        } else {
          v[0] = CombineBytes(words[0][w], words[1][w], 0x5410);
          v[1] = CombineBytes(words[0][w], words[1][w], 0x7632);
          v[2] = CombineBytes(words[2][w], words[3][w], 0x5410);
          v[3] = CombineBytes(words[2][w], words[3][w], 0x7632);
        }
        const int n = (j * kWords + w) * kTilesOfWord + z;
#pragma unroll
        for (int h = 0; h < kHalves; ++h) MultiplyAdd(T{}, rows.o[n][h], v, b[h][0], b[h][1]);
      }
    }
  }
}

// The keys of the group (a bit each) whose values are not all finite; sets those values to 0.
template <class C>
ANNULUS_DEVICE uint32_t ClearBadKeys(const PageLayout& layout, int stage, DecodeShared<C>& shared) {
  auto& slot = shared.slots[WarpIndex()][stage][1];
  if (C::kNarrow && layout.dtype == DType::kI8) {
    uint16_t& scale = shared.Scales(stage, 1)[Lane() % C::kKeys];
    const bool bad = (scale & 0x7f80u) == 0x7f80u;
    const uint32_t keys = Ballot(bad && Lane() < C::kKeys);
    if (bad && Lane() < C::kKeys) scale = 0;
    SyncWarp();
    return keys;
  }
  const uint32_t low = layout.dtype == DType::kBF16     ? 0x7f80u
                       : layout.dtype == DType::kF16    ? 0x7c00u
                       : layout.dtype == DType::kF8E4M3 ? 0x7fu
                                                        : 0x7cu;
  uint32_t keys = 0;
#pragma unroll 1
  for (int i = 0; i < 4; ++i) {
    bool bad = false;
    for (int j = 0; j < C::kPieces; ++j) {
      const auto* const words = reinterpret_cast<const uint32_t*>(PieceOf<C>(slot, j, i));
      for (int w = 0; w < C::kPieceBytes / 4; ++w) {
        for (int shift = 0; shift < 32; shift += 8 * C::kElement) {
          bad |= (words[w] >> shift & (C::kNarrow ? 0x7fu : 0x7fffu)) >= low;
        }
      }
    }
    // Any of the lanes that share the key.
    uint32_t lanes = Ballot(bad);
    lanes |= lanes >> 16;
    lanes |= lanes >> 8;
    lanes |= lanes >> 4;
    if ((lanes >> Lane() % 4 & 1u) != 0) {
      for (int j = 0; j < C::kPieces; ++j) {
        auto* const words = reinterpret_cast<uint32_t*>(PieceOf<C>(slot, j, i));
        for (int w = 0; w < C::kPieceBytes / 4; ++w) words[w] = 0;
      }
    }
    for (int t = 0; t < 4; ++t) keys |= (lanes >> t & 1u) << (i / 2 * 8 + t * 2 + i % 2);
  }
  return keys;
}

// Adds the values that ClearBadKeys cleared to the rows that see them, one by one. In a matrix
// product, 0 times infinity would reach rows that do not see them. This is rare, so the code is
// small rather than fast.
template <class C, int kHalves>
ANNULUS_DEVICE void AddBadKeys(const AttentionArguments& a, const AttentionUnit& unit,
                               const AttentionItemView& item, const KeyTile& tile, uint32_t keys,
                               const float (&weights)[2][4], DecodeShared<C>& shared,
                               DecodeRows<C, kHalves>& rows) {
  float* const value = shared.bad_value[WarpIndex()];
#pragma unroll 1
  for (int key = 0; key < C::kKeys; ++key) {
    if ((keys >> key & 1u) == 0) continue;
    SyncWarp();  // the previous value has been added
    for (int d = Lane(); d < C::kDim; d += kWarp) {
      value[d] = d < a.layout.v_dim ? ValueAt(a.layout, tile, unit.kv_head, key, d) : 0;
    }
    SyncWarp();
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const int row = unit.row_begin + 8 * h + Lane() / 4;
      const int head = unit.kv_head * a.group + row % a.group;
      const float low = key % 2 == 0 ? weights[0][2 * h] : weights[0][2 * h + 1];
      const float high = key % 2 == 0 ? weights[1][2 * h] : weights[1][2 * h + 1];
      const bool seen = TimesSeen(a, item, tile, rows.position[h], head, key) != 0;
      const float own = !seen ? -1 : key < 8 ? low : high;
      const int column = key % 8 / 2;
      const float even = ShuffleFrom(own, Lane() % 4 * 8 + column);
      const float odd = ShuffleFrom(own, Lane() % 4 * 8 + 4 + column);
#pragma unroll
      for (int n = 0; n < C::kTiles; ++n) {
        float(&o)[4] = rows.o[n][h];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float element = value[ColumnOf<C>(n) + e];
          if (!(even < 0)) o[2 * e] += even * element;
          if (!(odd < 0)) o[2 * e + 1] += odd * element;
        }
      }
    }
  }
}

// The scores of a group of keys, in units of log 2.
template <class C, DType kDType, bool kPlain, int kHalves>
ANNULUS_DEVICE void ScoresOf(const DecodeGroup& group, int stage, DecodeShared<C>& shared,
                             const DecodeRows<C, kHalves>& rows, float (&scores)[2][4]) {
  Products<C, kDType, kHalves>(shared.slots[WarpIndex()][stage][0], rows, scores);
  float scales[4] = {1, 1, 1, 1};
  if constexpr (kDType == DType::kI8) {
    LoadScales<kPlain>(shared.Scales(stage, 0), group.count, scales);
  }
#pragma unroll
  for (int i = 0; i < 4 * kHalves; ++i) {
    const float factor = rows.factor[i / 4];
    scores[i % 4 / 2][i / 4 * 2 + i % 2] *= kDType == DType::kI8 ? factor * scales[i % 4] : factor;
  }
}

// output += the values of a group times weights.
template <class C, DType kDType, bool kPlain, int kHalves>
ANNULUS_DEVICE void AddValues(const DecodeGroup& group, int stage, DecodeShared<C>& shared,
                              const float (&weights)[2][4], DecodeRows<C, kHalves>& rows) {
  auto& slot = shared.slots[WarpIndex()][stage][1];
  if constexpr (kDType == DType::kI8) {
    float scales[4];
    float scaled[2][4];
    LoadScales<kPlain>(shared.Scales(stage, 1), group.count, scales);
#pragma unroll
    for (int i = 0; i < 4 * kHalves; ++i) {
      const int at = i / 4 * 2 + i % 2;
      scaled[i % 4 / 2][at] = weights[i % 4 / 2][at] * scales[i % 4];
    }
    AddProducts<C, BFloat16, kDType, kHalves>(slot, scaled, rows);
  } else {
    using T = std::conditional_t<C::kNarrow, Float16, typename C::Operand>;
    AddProducts<C, T, kDType, kHalves>(slot, weights, rows);
  }
}

// Calls `use` with the type of the pages as a constant; 16-bit types need none.
template <class C, class Use>
ANNULUS_DEVICE void WithDType(DType dtype, const Use& use) {
  if constexpr (!C::kNarrow) {
    use(std::integral_constant<DType, DType::kBF16>{});
  } else if (dtype == DType::kF8E4M3) {
    use(std::integral_constant<DType, DType::kF8E4M3>{});
  } else if (dtype == DType::kI8) {
    use(std::integral_constant<DType, DType::kI8>{});
  } else {
    use(std::integral_constant<DType, DType::kF8E5M2>{});
  }
}

// A group whose keys are all there and seen by every row. `between` gets the slot of the keys back
// and waits for the values.
template <class C, DType kDType, int kHalves, class Between>
ANNULUS_DEVICE void AttendPlain(const DecodeGroup& group, int stage, DecodeShared<C>& shared,
                                DecodeRows<C, kHalves>& rows, const Between& between) {
  float weights[2][4] = {};
  ScoresOf<C, kDType, true, kHalves>(group, stage, shared, rows, weights);
  between([&] { Weigh<C, kHalves>(weights, rows); });
  AddValues<C, kDType, true, kHalves>(group, stage, shared, weights, rows);
}

// Any group.
template <class C, int kHalves, class Between>
ANNULUS_DEVICE void AttendMasked(const AttentionArguments& a, const AttentionUnit& unit,
                                 const AttentionItemView& item, const DecodeGroup& group,
                                 bool hidden, int stage, DecodeShared<C>& shared,
                                 DecodeRows<C, kHalves>& rows, const Between& between) {
  const KeyTile tile{group.page, group.first % a.layout.page_tokens, group.first, group.count};
  float weights[2][4] = {};
  WithDType<C>(a.layout.dtype, [&](auto dtype) {
    ScoresOf<C, dtype(), false, kHalves>(group, stage, shared, rows, weights);
  });
  between([&] {
    MaskScores<C, kHalves>(a, unit, item, tile, rows, weights);
    Weigh<C, kHalves>(weights, rows);
  });
  const uint32_t bad = hidden ? ClearBadKeys<C>(a.layout, stage, shared) : 0;
  WithDType<C>(a.layout.dtype, [&](auto dtype) {
    AddValues<C, dtype(), false, kHalves>(group, stage, shared, weights, rows);
  });
  if (bad != 0) AddBadKeys<C, kHalves>(a, unit, item, tile, bad, weights, shared, rows);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ATTENTION_DECODE_GROUP_H_
