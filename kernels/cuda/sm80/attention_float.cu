// Attention over pages of float32 in plain float32 arithmetic: no tensor core multiplies it. For
// models whose keys must not be rounded; its speed is that of the vector units.
//
// A block of 4 warps has the 16 rows of one unit and takes 32 keys at a time; 8 lanes share a row.
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/sm80/attention_rows.h"

namespace annulus::cuda {
namespace {

constexpr int kRows = 16;
constexpr int kKeys = 32;
constexpr int kThreads = 128;
constexpr int kLanes = kThreads / kRows;  // of one row
constexpr int kMaxDim = 256;
static_assert(kRows == AttentionRows(AttentionShape::kDecode, kMaxDim));

// Shared memory: arrays one after the other; a row ends with an unused float.
struct FloatShared {
  float* query;    // [kRows][k_dim + 1]
  float* keys;     // [kKeys][k_dim + 1]
  float* values;   // [kKeys][v_dim + 1]
  float* weights;  // [kRows][kKeys + 1]; negative: the row does not see the key

  ANNULUS_DEVICE FloatShared(float* begin, const PageLayout& layout)
      : query(begin),
        keys(query + kRows * (layout.k_dim + 1)),
        values(keys + kKeys * (layout.k_dim + 1)),
        weights(values + kKeys * (layout.v_dim + 1)) {}

  static size_t Bytes(const PageLayout& layout) {
    const int floats =
        (kRows + kKeys) * (layout.k_dim + 1) + kKeys * (layout.v_dim + 1) + kRows * (kKeys + 1);
    return static_cast<size_t>(floats) * sizeof(float);
  }
};

ANNULUS_DEVICE void LoadFloatQuery(const AttentionArguments& a, const AttentionUnit& unit,
                                   const AttentionItemView& item, const FloatShared& shared) {
  const int dim = a.layout.k_dim;
  for (int i = ThreadIndex(); i < kRows * dim; i += kThreads) {
    const int r = i / dim;
    const int row = unit.row_begin + r;
    const int64_t head = int64_t{unit.kv_head} * a.group + row % a.group;
    shared.query[r * (dim + 1) + i % dim] =
        r < unit.row_count ? item.query[row / a.group * item.query_stride + head * dim + i % dim]
                           : 0;
  }
}

ANNULUS_DEVICE void LoadFloatTile(const PageLayout& layout, int kv_head, const KeyTile& tile,
                                  const FloatShared& shared) {
  const int keys = Smaller(tile.count, kKeys);
  for (int i = ThreadIndex(); i < keys * layout.k_dim; i += kThreads) {
    const int slot = i / layout.k_dim;
    const int d = i % layout.k_dim;
    shared.keys[slot * (layout.k_dim + 1) + d] =
        reinterpret_cast<const float*>(tile.page + layout.Key(kv_head, tile.slot + slot))[d];
  }
  for (int i = ThreadIndex(); i < keys * layout.v_dim; i += kThreads) {
    const int slot = i / layout.v_dim;
    const int d = i % layout.v_dim;
    shared.values[slot * (layout.v_dim + 1) + d] =
        reinterpret_cast<const float*>(tile.page + layout.Value(kv_head, tile.slot + slot))[d];
  }
}

// Over the lanes of a row.
ANNULUS_DEVICE float RowMax(float value) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value = fmaxf(value, ShuffleXor(value, mask));
  return value;
}
ANNULUS_DEVICE float RowSum(float value) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value += ShuffleXor(value, mask);
  return value;
}

// A lane's part of its row.
struct FloatRow {
  int row;           // of the unit
  int lane;          // of the row
  int head;          // query head
  int32_t position;  // -1: no row
  float maximum;     // of the scores
  float sum = 0;     // of the weights; the same in all lanes
  float o[kMaxDim / kLanes] = {};
};

// The tile's weights exp(score - maximum) into shared memory, for the lanes of one row; what the
// row's sums have to be multiplied by.
ANNULUS_DEVICE float FloatWeights(const AttentionArguments& a, const AttentionItemView& item,
                                  const KeyTile& tile, const FloatShared& shared, FloatRow& own) {
  const int dim = a.layout.k_dim;
  const float infinity = FloatOf(0x7f800000u);
  const float* const query = shared.query + own.row * (dim + 1);
  float* const weights = shared.weights + own.row * (kKeys + 1);
  float largest = own.maximum;
  for (int slot = own.lane; slot < kKeys; slot += kLanes) {
    const int times = TimesSeen(a, item, tile, own.position, own.head, slot);
    float score = -infinity;
    if (times > 0) {
      const float* const key = shared.keys + slot * (dim + 1);
      float product = 0;
      for (int d = 0; d < dim; ++d) product += query[d] * key[d];
      score = product * a.scale;
      if (a.soft_cap > 0) score = a.soft_cap * tanhf(score / a.soft_cap);
      if (times > 1) score += logf(static_cast<float>(times));
    }
    weights[slot] = score;
    largest = fmaxf(largest, score);
  }
  largest = RowMax(largest);
  const float base = largest == -infinity ? 0 : largest;  // no score yet: all weights are 0
  float sum = 0;
  for (int slot = own.lane; slot < kKeys; slot += kLanes) {
    const bool seen = TimesSeen(a, item, tile, own.position, own.head, slot) > 0;
    const float weight = expf(weights[slot] - base);
    if (seen) sum += weight;
    weights[slot] = seen ? weight : -1;
  }
  const float rescale = expf(own.maximum - base);
  own.maximum = largest;
  own.sum = own.sum * rescale + RowSum(sum);
  return rescale;
}

// Weights of keys that a row does not see are left out: 0 times infinity would be NaN.
ANNULUS_DEVICE void AddFloatValues(const PageLayout& layout, const FloatShared& shared,
                                   float rescale, FloatRow& own) {
  const float* const weights = shared.weights + own.row * (kKeys + 1);
#pragma unroll
  for (int n = 0; n < kMaxDim / kLanes; ++n) own.o[n] *= rescale;
  for (int slot = 0; slot < kKeys; ++slot) {
    const float weight = weights[slot];
    if (weight < 0) continue;
    const float* const value = shared.values + slot * (layout.v_dim + 1);
#pragma unroll
    for (int n = 0; n < kMaxDim / kLanes; ++n) {
      const int d = own.lane + kLanes * n;
      if (d < layout.v_dim) own.o[n] += weight * value[d];
    }
  }
}

ANNULUS_KERNEL(kThreads, 1) AttentionFloatKernel(ANNULUS_ARGUMENT AttentionArguments a) {
  const FloatShared shared(reinterpret_cast<float*>(SharedMemory()), a.layout);
  const AttentionUnit unit = a.units[BlockX()];
  const AttentionItemView item = a.items[unit.item];
  FloatRow own;
  own.row = ThreadIndex() / kLanes;
  own.lane = ThreadIndex() % kLanes;
  const int row = unit.row_begin + own.row;
  own.head = unit.kv_head * a.group + row % a.group;
  own.position = own.row < unit.row_count ? item.positions[row / a.group] : -1;
  own.maximum = -FloatOf(0x7f800000u);
  LoadFloatQuery(a, unit, item, shared);
  const int per_page = (a.layout.page_tokens + kKeys - 1) / kKeys;
  const int tiles = (unit.page_end - unit.page_begin) * per_page;
  for (int t = 0; t < tiles; ++t) {
    const KeyTile tile = TileAt<kKeys>(a, unit, item, t);
    SyncThreads();  // the tile before has been read
    LoadFloatTile(a.layout, unit.kv_head, tile, shared);
    SyncThreads();
    const float rescale = FloatWeights(a, item, tile, shared, own);
    SyncWarp();  // the lanes of a row are of one warp
    AddFloatValues(a.layout, shared, rescale, own);
  }
  const RowStore store = StoreOf(a, unit, item, own.row, own.maximum, own.sum);
  SyncWarp();
  if (own.row >= unit.row_count) return;
#pragma unroll
  for (int n = 0; n < kMaxDim / kLanes; ++n) {
    const int d = own.lane + kLanes * n;
    if (d < a.layout.v_dim) store.Put(d, own.o[n]);
  }
  if (own.lane == 0) *store.lse = store.new_lse;
}

}  // namespace

int LaunchAttentionFloat(StreamHandle stream, int64_t units, const AttentionArguments& arguments) {
  const Grid grid{
      .x = units, .threads = kThreads, .shared_bytes = FloatShared::Bytes(arguments.layout)};
  return Launch<AttentionFloatKernel>(stream, grid, arguments);
}

}  // namespace annulus::cuda
