#ifndef ANNULUS_KERNELS_CUDA_SM90_FLOAT8_TRANSPOSER_H_
#define ANNULUS_KERNELS_CUDA_SM90_FLOAT8_TRANSPOSER_H_

// The transposers of float8_attention.cu: the three warps next to the producer. They turn values
// [key][column] into columns [column][key] (see Float8Shared).
//
// A lane takes one word (4 columns) of each of 4 keys and writes one word (4 keys) of each of 4
// columns. All 32 lanes that access shared memory together meet different banks on both sides: a
// lane's place in its 16 keys (t), its columns (w, in words) and its 16 keys' number (g, a chunk of
// columns) are chosen so that the chunks it reads, w / 4 ^ (2 t + ..) % 8, and the chunks it
// writes, g ^ (4 w + ..) % 8, differ between lanes.
#include "kernels/cuda/common/widen.h"
#include "kernels/cuda/sm90/float8_shared.h"

namespace annulus::cuda {

// A lane's word of 4 columns, from each of 4 keys.
struct KeyWords {
  uint32_t of[4];
};
// A lane's place: 4 keys of the 16 from 16 g on, and 4 columns from 4 w on.
struct TransposedPlace {
  int t;
  int w;
  int g;

  // The e-th of its keys.
  ANNULUS_DEVICE int Key(int e) const { return 16 * g + 2 * t + e % 2 + e / 2 * 8; }
};

ANNULUS_DEVICE KeyWords LoadWords(const std::byte* values, const TransposedPlace& place) {
  KeyWords words;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int at = PanelOffset(place.Key(e), place.w / 4) + place.w % 4 * 4;
    words.of[e] = *reinterpret_cast<const uint32_t*>(values + at);
  }
  return words;
}

ANNULUS_DEVICE void StoreWords(const KeyWords& words, const TransposedPlace& place,
                               std::byte* columns) {
  const uint32_t(&k)[4] = words.of;
  uint32_t pairs[2][2];  // of keys, then of columns
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    pairs[i][0] = CombineBytes(k[2 * i], k[2 * i + 1], 0x5140);
    pairs[i][1] = CombineBytes(k[2 * i], k[2 * i + 1], 0x7362);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int at = PanelOffset(4 * place.w + j, place.g) + place.t * 4;
    *reinterpret_cast<uint32_t*>(columns + at) =
        CombineBytes(pairs[0][j / 2], pairs[1][j / 2], j % 2 == 0 ? 0x5410 : 0x7632);
  }
}

// Sets words to 0 where there is no key, and codes to 0 that are NaN; returns whether any is. In a
// matrix product, 0 times NaN would reach rows that do not see the key.
template <class C>
ANNULUS_DEVICE bool ClearWords(const TileNotes<C>& notes, const TransposedPlace& place,
                               KeyWords& words) {
  bool found = false;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    uint32_t& word = words.of[e];
    if (notes.position[place.Key(e)] < 0) word = 0;
    const uint32_t beyond = BeyondFinite8(DType::kF8E4M3, word) & 0x80808080u;
    found |= beyond != 0;
    word &= ~((beyond >> 7) * 0xffu);
  }
  return found;
}

// This warp's part of a tile: every third batch of 32 columns by 64 keys. Returns whether a lane
// has found a NaN; only tiles that hide keys are searched.
template <class C, bool kSearched>
ANNULUS_DEVICE bool TransposeBatches(int first, const TileNotes<C>& notes, const std::byte* values,
                                     std::byte* columns) {
  constexpr int kBatches = C::kDim / 32 * 2;
  const int t = Lane() % 4;
  const int w = Lane() / 4;
  bool found = false;
#pragma unroll 1
  for (int batch = first; batch < kBatches; batch += C::kTransposers) {
    KeyWords words[4];
    TransposedPlace places[4];
#pragma unroll
    for (int x = 0; x < 4; ++x) {
      places[x] = {t, batch / 2 * 8 + w, batch % 2 * 4 + (w / 2 ^ x)};
      words[x] = LoadWords(values, places[x]);
    }
#pragma unroll
    for (int x = 0; x < 4; ++x) {
      if constexpr (kSearched) found |= ClearWords<C>(notes, places[x], words[x]);
      StoreWords(words[x], places[x], columns);
    }
  }
  return found;
}

template <class C>
ANNULUS_DEVICE void TransposeTile(uint32_t tile, Float8Shared<C>& shared) {
  const int stage = StageOf<C::kStages>(tile);
  const int parity = ParityOf<C::kStages>(tile);
  const TileNotes<C>& notes = shared.notes[StageOf<C::kNotes>(tile)];
  WaitForPhase(shared.values_full[stage], parity);
  WaitForPhase(shared.columns_free[stage], parity ^ 1);
  // The number of batches is no multiple of the number of warps: they take turns at the extra ones.
  const auto first = static_cast<int>((tile + WarpIndex()) % C::kTransposers);
  const std::byte* const values = shared.values[stage][0];
  std::byte* const columns = shared.columns[stage];
  if (Usual((notes.special & kHiddenKeys) == 0)) {
    TransposeBatches<C, false>(first, notes, values, columns);
  } else {
    const bool found = TransposeBatches<C, true>(first, notes, values, columns);
    const bool marked = Ballot(found) != 0;
    if (Lane() == 0) shared.marked[stage][WarpIndex() - 1] = static_cast<int32_t>(marked);
  }
  FenceSharedForEngines();
  SyncWarp();
  if (Lane() != 0) return;
  Arrive(shared.values_free[stage]);
  Arrive(shared.columns_full[stage]);
}

// Run by each of the three warps, for all units of the block, in the producer's order.
template <class C>
ANNULUS_DEVICE void TransposeTiles(const HopperAttentionArguments& h, Float8Shared<C>& shared) {
  const AttentionArguments& a = h.attention;
  uint32_t tile = 0;
  for (int round = 0; round * GridX() < h.units; ++round) {
    const int64_t index = UnitOfRound(round);
    if (index >= h.units) continue;
    const AttentionUnit unit = a.units[index];
    const int tiles = TilesOf<C>(h, unit, a.items[unit.item]);
#pragma unroll 1
    for (const uint32_t end = tile + static_cast<uint32_t>(tiles); tile != end; ++tile) {
      TransposeTile<C>(tile, shared);
    }
  }
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_FLOAT8_TRANSPOSER_H_
