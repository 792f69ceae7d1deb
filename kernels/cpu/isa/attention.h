#ifndef ANNULUS_KERNELS_CPU_ISA_ATTENTION_H_
#define ANNULUS_KERNELS_CPU_ISA_ATTENTION_H_

#include <cstdint>

#include "kernels/cpu/isa/math.h"
#include "kernels/cpu/isa/product.h"
#include "kernels/cpu/simd/kernels.h"

// Attention of one query block over the pages of one span, by online softmax (Milakov and
// Gimelshein 2018) over chunks of kKeyChunk keys.
//
// Every row uses exactly the keys that it may see: the weights of other keys are 0 in the sum of
// weights, and their values are never read for this row. So a row's bits depend only on its own
// query and keys, not on the rows in its tile, and whatever lies in other slots (even NaN) cannot
// reach it.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

// The keys that the rows of one tile see, as slots [begin, end) of the current chunk.
struct TileKeys {
  int rows;
  int begin[kMostTileRows];
  int end[kMostTileRows];
  int any_begin;  // the smallest range that holds every key any row sees
  int any_end;
  int all_begin;  // the range that all rows see; empty if all_begin >= all_end
  int all_end;
};

inline int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t Larger(int64_t a, int64_t b) { return a > b ? a : b; }

// Finds what rows [row, row + rows) of the block see among slots [begin, end) of the chunk whose
// slot 0 has position `first`.
inline TileKeys FindTileKeys(const AttentionBlock& block, int row, int rows, int64_t first,
                             int begin, int end) {
  TileKeys keys;
  keys.rows = rows;
  keys.any_begin = end;
  keys.any_end = begin;
  keys.all_begin = begin;
  keys.all_end = end;
  for (int r = 0; r < rows; ++r) {
    const int64_t position = block.positions[(row + r) / block.group];
    const int64_t oldest = block.window > 0 ? position - block.window + 1 : 0;
    const int from = static_cast<int>(Smaller(end, Larger(begin, oldest - first)));
    const int to = static_cast<int>(Larger(from, Smaller(end, position + 1 - first)));
    keys.begin[r] = from;
    keys.end[r] = to;
    if (from < to) {
      keys.any_begin = static_cast<int>(Smaller(keys.any_begin, from));
      keys.any_end = static_cast<int>(Larger(keys.any_end, to));
    }
    keys.all_begin = static_cast<int>(Larger(keys.all_begin, from));
    keys.all_end = static_cast<int>(Smaller(keys.all_end, to));
  }
  return keys;
}

// soft_cap * tanh(score / soft_cap), by tanh(y) = 1 - 2 / (exp(2 y) + 1).
template <class V>
inline typename V::Float CapScore(typename V::Float score, float soft_cap) {
  const typename V::Float e = Exp<V>(V::Mul(score, V::Set(2 / soft_cap)));
  const typename V::Float one = V::Set(1.0f);
  const typename V::Float tanh = V::Sub(one, V::Div(V::Set(2.0f), V::Add(e, one)));
  return V::Mul(tanh, V::Set(soft_cap));
}

// Turns a row's dot products of slots [begin, end) into softmax weights relative to the row's
// maximum so far. Updates the maximum, the sums of weights and, if the maximum grew, the scale of
// o.
template <class V>
void WeighRow(const AttentionBlock& block, int row, float* scores, int begin, int end) {
  const int first = begin / V::kLanes * V::kLanes;
  const typename V::Float scale = V::Set(block.scale);
  typename V::Float largest = V::Set(-kInfinity);
  for (int s = first; s < end; s += V::kLanes) {
    const auto mask = V::Lanes(begin - s, end - s);
    typename V::Float score = V::Mul(V::Load(scores + s), scale);
    if (block.soft_cap > 0) score = CapScore<V>(score, block.soft_cap);
    V::Store(scores + s, score);
    largest = V::Max(largest, V::Select(mask, score, V::Set(-kInfinity)));
  }
  const float chunk_maximum = V::Largest(largest);
  float* const sums = block.sums + row * kPanel;
  float maximum = block.maximum[row];
  if (chunk_maximum > maximum) {
    if (maximum > -kInfinity) {
      const typename V::Float shrink = ExpWeight<V>(V::Set(maximum - chunk_maximum));
      float* const o = block.o + int64_t{row} * block.v_stride;
      for (int c = 0; c < block.v_stride; c += V::kLanes) {
        V::Store(o + c, V::Mul(V::Load(o + c), shrink));
      }
      for (int c = 0; c < kPanel; c += V::kLanes) {
        V::Store(sums + c, V::Mul(V::Load(sums + c), shrink));
      }
    }
    maximum = chunk_maximum;
    block.maximum[row] = maximum;
  }
  // As long as no score is above -inf, subtract 0: the weights are then exp(-inf) = 0, where -inf -
  // -inf would give NaN.
  const typename V::Float offset = V::Set(maximum > -kInfinity ? maximum : 0.0f);
  for (int s = first; s < end; s += V::kLanes) {
    const auto mask = V::Lanes(begin - s, end - s);
    const typename V::Float score = V::Load(scores + s);
    const typename V::Float weight =
        V::Select(mask, ExpWeight<V>(V::Sub(score, offset)), V::Zero());
    V::Store(scores + s, weight);
    float* const sum = sums + s % kPanel;
    V::Store(sum, V::Add(V::Load(sum), weight));
  }
}

// o += weights * values for `rows` rows over slots [begin, end) of the chunk.
template <class V, class T>
void AddValues(const AttentionBlock& block, int row, int rows, const float* weights,
               const T* values, int begin, int end, const Fetching& fetching) {
  if (begin >= end) return;
  Product<T> product;
  for (int r = 0; r < rows; ++r) product.a[r] = weights + r * kKeyChunk + begin;
  product.b = values + int64_t{begin} * block.v_stride;
  product.panel_stride = kPanel;
  product.k_stride = block.v_stride;
  product.depth = end - begin;
  product.sums = block.o + int64_t{row} * block.v_stride;
  product.sums_stride = block.v_stride;
  product.fresh = false;
  product.fetching = fetching;
  Multiply<V, T>(product, rows, block.v_stride / kPanel);
}

// Adds the slots that only some rows see, before and after the shared ones, row by row. Each row
// still adds its own keys in ascending order, and reads no other key's value.
template <class V, class T>
void AddTileValues(const AttentionBlock& block, int row, const TileKeys& keys, const float* weights,
                   const T* values, const Fetching& fetching) {
  const bool shared = keys.all_begin < keys.all_end;
  for (int r = 0; r < keys.rows; ++r) {
    AddValues<V, T>(block, row + r, 1, weights + r * kKeyChunk, values, keys.begin[r],
                    shared ? keys.all_begin : keys.end[r], fetching);
  }
  if (!shared) return;
  AddValues<V, T>(block, row, keys.rows, weights, values, keys.all_begin, keys.all_end, fetching);
  for (int r = 0; r < keys.rows; ++r) {
    AddValues<V, T>(block, row + r, 1, weights + r * kKeyChunk, values, keys.all_end, keys.end[r],
                    fetching);
  }
}

template <class V, class T>
void AttendTile(const AttentionBlock& block, int row, const TileKeys& keys, const T* k, const T* v,
                const Fetching& fetching) {
  alignas(64) float scores[kMostTileRows * kKeyChunk];
  const int first_panel = keys.any_begin / kPanel;
  const int panels = (keys.any_end + kPanel - 1) / kPanel - first_panel;
  Product<T> product;
  for (int r = 0; r < keys.rows; ++r) {
    const int position = (row + r) / block.group;
    const int head = (row + r) % block.group;
    product.a[r] = block.query + position * block.query_stride + int64_t{head} * block.k_dim;
  }
  product.panel_stride = int64_t{block.k_dim} * kPanel;
  product.b = k + first_panel * product.panel_stride;
  product.k_stride = kPanel;
  product.depth = block.k_dim;
  product.sums = scores + first_panel * kPanel;
  product.sums_stride = kKeyChunk;
  product.fresh = true;
  product.fetching = fetching;
  Multiply<V, T>(product, keys.rows, panels);
  for (int r = 0; r < keys.rows; ++r) {
    if (keys.begin[r] < keys.end[r]) {
      WeighRow<V>(block, row + r, scores + r * kKeyChunk, keys.begin[r], keys.end[r]);
    }
  }
  AddTileValues<V, T>(block, row, keys, scores, v, fetching);
}

template <class V, class T>
void AttendKeys(const AttentionBlock& block, const AttentionKeys& keys) {
  const int rows = block.position_count * block.group;
  int asked = 0;
  if (keys.ahead != nullptr) {
    // Spread the prefetches over the products.
    const int lines = keys.ahead->lines[0] + keys.ahead->lines[1];
    const int asks = ProductAsks<V>(rows, block.k_dim, kKeyChunk / kPanel) +
                     ProductAsks<V>(rows, keys.end - keys.begin, block.v_stride / kPanel);
    asked = (lines + asks - 1) / asks;
  }
  const Fetching fetching = {keys.ahead, asked};
  for (int row = 0; row < rows;) {
    const int tile_rows = TileHeight<V>(rows - row);
    const TileKeys tile =
        FindTileKeys(block, row, tile_rows, keys.first_position, keys.begin, keys.end);
    if (tile.any_begin < tile.any_end) {
      AttendTile<V, T>(block, row, tile, static_cast<const T*>(keys.k),
                       static_cast<const T*>(keys.v), fetching);
    }
    row += tile_rows;
  }
}

template <class V>
void BeginSpan(const AttentionBlock& block) {
  const int rows = block.position_count * block.group;
  for (int row = 0; row < rows; ++row) block.maximum[row] = -kInfinity;
  for (int64_t i = 0; i < int64_t{rows} * kPanel; i += V::kLanes) {
    V::Store(block.sums + i, V::Zero());
  }
  for (int64_t i = 0; i < int64_t{rows} * block.v_stride; i += V::kLanes) {
    V::Store(block.o + i, V::Zero());
  }
}

template <class V>
void FinishSpan(const AttentionBlock& block) {
  const int rows = block.position_count * block.group;
  for (int row = 0; row < rows; ++row) {
    typename V::Float lanes = V::Zero();
    for (int c = 0; c < kPanel; c += V::kLanes) {
      lanes = V::Add(lanes, V::Load(block.sums + row * kPanel + c));
    }
    const float sum = V::Sum(lanes);
    if (sum == 0) {
      block.lse[row] = -kInfinity;
      continue;
    }
    const typename V::Float inverse = V::Set(1 / sum);
    float* const o = block.o + int64_t{row} * block.v_stride;
    for (int c = 0; c < block.v_stride; c += V::kLanes) {
      V::Store(o + c, V::Mul(V::Load(o + c), inverse));
    }
    block.lse[row] =
        (block.maximum[row] > -kInfinity ? block.maximum[row] : 0) + __builtin_logf(sum);
  }
}

// The first `count` lanes from p on; the others are 0.
template <class V>
inline typename V::Float LoadUpTo(const float* p, int64_t count) {
  return count >= V::kLanes ? V::Load(p) : V::LoadPartial(p, count);
}

// o = into_weight * o + from_weight * from_o.
template <class V>
inline void MixRow(float* o, float into_weight, const float* from_o, float from_weight,
                   int64_t v_dim) {
  for (int64_t c = 0; c < v_dim; c += V::kLanes) {
    const int64_t count = v_dim - c;
    const typename V::Float result =
        V::Add(V::Mul(V::Set(into_weight), LoadUpTo<V>(o + c, count)),
               V::Mul(V::Set(from_weight), LoadUpTo<V>(from_o + c, count)));
    if (count >= V::kLanes) {
      V::Store(o + c, result);
    } else {
      V::StorePartial(o + c, result, count);
    }
  }
}

// The merge of kernels/ops/attention.h. The weights are computed from the two exponentials
// themselves, so their sum is 1 to rounding however large the lse are. Both products are rounded
// before the addition, so swapping the two states changes no bit. An lse of NaN or +infinity makes
// the result NaN.
template <class V>
void MergeRows(const MergedRows& rows) {
  for (int64_t first = 0; first < rows.rows; first += V::kLanes) {
    const int64_t count = Smaller(V::kLanes, rows.rows - first);
    const typename V::Float into = LoadUpTo<V>(rows.lse + first, count);
    const typename V::Float from = LoadUpTo<V>(rows.from_lse + first, count);
    const typename V::Float maximum = V::Max(into, from);
    // The exponential of the larger lse is exp(0) = 1; if both are equal, both are 1.
    const typename V::Float into_exp = Exp<V>(V::Sub(into, maximum));
    const typename V::Float from_exp = Exp<V>(V::Sub(from, maximum));
    const typename V::Float sum = V::Add(into_exp, from_exp);
    alignas(64) float into_weights[V::kLanes];
    alignas(64) float from_weights[V::kLanes];
    alignas(64) float merged[V::kLanes];
    V::Store(into_weights, V::Div(into_exp, sum));
    V::Store(from_weights, V::Div(from_exp, sum));
    V::Store(merged, V::Add(maximum, LogFrom1To2<V>(sum)));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = first + i;
      const float from_lse = rows.from_lse[row];
      if (from_lse == -kInfinity) continue;
      float* const o = rows.o + row * rows.o_stride;
      const float* const from_o = rows.from_o + row * rows.from_stride;
      if (rows.lse[row] == -kInfinity) {
        rows.lse[row] = from_lse;
        __builtin_memcpy(o, from_o, rows.v_dim * sizeof(float));
        continue;
      }
      rows.lse[row] = merged[i];
      MixRow<V>(o, into_weights[i], from_o, from_weights[i], rows.v_dim);
    }
  }
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_ATTENTION_H_
