// Reference pages, attention and merge.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cpu/host/cpu_stream.h"
#include "kernels/cpu/reference/attention_rows.h"
#include "kernels/cpu/reference/reference.h"
#include "kernels/ops/checks.h"

namespace annulus::reference {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

void MergeRow(RowState into, const float* from_o, float from_lse, int v_dim) {
  if (from_lse == -kInfinity) return;
  if (*into.lse == -kInfinity) {
    std::copy(from_o, from_o + v_dim, into.o);
    *into.lse = from_lse;
    return;
  }
  const float maximum = std::max(*into.lse, from_lse);
  const float lse =
      maximum + std::log(std::exp(*into.lse - maximum) + std::exp(from_lse - maximum));
  const float into_weight = std::exp(*into.lse - lse);
  const float from_weight = std::exp(from_lse - lse);
  for (int d = 0; d < v_dim; ++d) into.o[d] = into_weight * into.o[d] + from_weight * from_o[d];
  *into.lse = lse;
}

std::vector<int32_t> ListedPages(const AttentionParams& params, const AttentionItem& item,
                                 int kv_head, int64_t row) {
  if (item.blocks.full) {
    std::vector<int32_t> all(item.pages.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  const BlockLists& blocks = item.blocks;
  const int64_t count = blocks.query_block_rows.size() - 1;
  int64_t block = 0;
  while (blocks.query_block_rows[block + 1] <= row) ++block;
  const int64_t list = kv_head / (params.shape.kv_heads / blocks.head_groups) * count + block;
  const auto pages =
      blocks.pages.subspan(blocks.offsets[list], blocks.offsets[list + 1] - blocks.offsets[list]);
  return {pages.begin(), pages.end()};
}

namespace {

// Where one (kv head, slot) keeps its key and its value inside a page.
int64_t KeyOffset(const KvPageShape& shape, int head, int64_t slot) {
  return (int64_t{head} * shape.page_tokens + slot) * shape.k_dim * DTypeSize(shape.dtype);
}
int64_t ValueOffset(const KvPageShape& shape, int head, int64_t slot) {
  return KeyOffset(shape, shape.kv_heads, 0) +
         (int64_t{head} * shape.page_tokens + slot) * shape.v_dim * DTypeSize(shape.dtype);
}

// Where int8 keeps the bf16 scale of one (kv head, slot): those of K follow V, those of V follow.
int64_t KeyScaleOffset(const KvPageShape& shape, int head, int64_t slot) {
  return ValueOffset(shape, shape.kv_heads, 0) +
         (int64_t{head} * shape.page_tokens + slot) * sizeof(BFloat16);
}
int64_t ValueScaleOffset(const KvPageShape& shape, int head, int64_t slot) {
  return KeyScaleOffset(shape, shape.kv_heads + head, slot);
}

// Stores `dim` values at `page + at`; int8 puts its scale at `page + scale_at`.
void WriteRow(DType dtype, const float* row, int dim, std::byte* page, int64_t at,
              int64_t scale_at) {
  if (dtype != DType::kI8) return ConvertFromFloat(dtype, row, page + at, dim);
  const BFloat16 scale = QuantizeInt8(row, reinterpret_cast<int8_t*>(page + at), dim);
  std::memcpy(page + scale_at, &scale, sizeof(scale));
}

void ReadRow(DType dtype, const std::byte* page, int64_t at, int64_t scale_at, float* row,
             int dim) {
  if (dtype != DType::kI8) return ConvertToFloat(dtype, page + at, row, dim);
  BFloat16 scale;
  std::memcpy(&scale, page + scale_at, sizeof(scale));
  DequantizeInt8(reinterpret_cast<const int8_t*>(page + at), scale, row, dim);
}

void ReadKey(const KvPageShape& shape, const std::byte* page, int head, int64_t slot, float* key) {
  ReadRow(shape.dtype, page, KeyOffset(shape, head, slot), KeyScaleOffset(shape, head, slot), key,
          shape.k_dim);
}
void ReadValue(const KvPageShape& shape, const std::byte* page, int head, int64_t slot,
               float* value) {
  ReadRow(shape.dtype, page, ValueOffset(shape, head, slot), ValueScaleOffset(shape, head, slot),
          value, shape.v_dim);
}

// One key that a row attends: its score, and where its value lies.
struct ScoredKey {
  float score;
  const std::byte* page;
  int64_t slot;
};

// Merges softmax(keys) * V into the row's state.
void MergeSpan(const KvPageShape& shape, int kv_head, const std::vector<ScoredKey>& keys,
               RowState state) {
  if (keys.empty()) return;
  float maximum = -kInfinity;
  for (const ScoredKey& key : keys) maximum = std::max(maximum, key.score);
  // All scores -inf: then every weight is 0 and the span is empty, where -inf - -inf would be NaN.
  if (maximum == -kInfinity) maximum = 0;
  float sum = 0;
  float o[kMaxHeadDim] = {};
  float value[kMaxHeadDim];
  for (const ScoredKey& key : keys) {
    const float weight = std::exp(key.score - maximum);
    sum += weight;
    ReadValue(shape, key.page, kv_head, key.slot, value);
    for (int d = 0; d < shape.v_dim; ++d) o[d] += weight * value[d];
  }
  if (sum == 0) return;
  for (int d = 0; d < shape.v_dim; ++d) o[d] /= sum;
  MergeRow(state, o, maximum + std::log(sum), shape.v_dim);
}

// How often a row counts a key that its mask allows.
int Multiplicity(std::span<const DilatedBranch> branches, int head, int64_t row, int64_t key) {
  if (branches.empty()) return 1;
  return static_cast<int>(
      std::count_if(branches.begin(), branches.end(),
                    [&](const DilatedBranch& branch) { return branch.Keeps(head, row, key); }));
}

// One row of one head over the pages of one shard, ascending.
void AttendShard(const AttentionParams& params, const AttentionItem& item, int64_t row, int head,
                 const std::vector<KvPageView>& pages, RowState state) {
  const KvPageShape& shape = params.shape;
  const int kv_head = head / (params.heads / shape.kv_heads);
  const float* query = item.query.row(row) + int64_t{head} * shape.k_dim;
  const int64_t position = item.positions[row];
  const int64_t span_tokens = int64_t{kAttentionSpan} * params.shards;
  std::vector<ScoredKey> keys;
  int64_t span = 0;
  for (const KvPageView& page : pages) {
    for (int64_t slot = 0; slot < page.tokens; ++slot) {
      const int64_t j = page.first_position + slot;
      if (j > position || (params.window > 0 && j <= position - params.window)) continue;
      const int times = Multiplicity(item.branches, head, position, j);
      if (times == 0) continue;
      if (j / span_tokens != span) {
        MergeSpan(shape, kv_head, keys, state);
        keys.clear();
        span = j / span_tokens;
      }
      float key[kMaxHeadDim];
      ReadKey(shape, page.data, kv_head, slot, key);
      float dot = 0;
      for (int d = 0; d < shape.k_dim; ++d) dot += query[d] * key[d];
      float score = dot * params.scale;
      if (params.soft_cap > 0) score = params.soft_cap * std::tanh(score / params.soft_cap);
      keys.push_back({score + std::log(static_cast<float>(times)), page.data, slot});
    }
  }
  MergeSpan(shape, kv_head, keys, state);
}

// The state of the subtree over leaves [first, first + count), by halves. `pages`: [leaf].
void AttendTree(const AttentionParams& params, const AttentionItem& item, int64_t row, int head,
                const std::vector<std::vector<KvPageView>>& pages, int first, int count,
                RowState state) {
  if (count == 1) return AttendShard(params, item, row, head, pages[first], state);
  AttendTree(params, item, row, head, pages, first, count / 2, state);
  float o[kMaxHeadDim] = {};
  float lse = -kInfinity;
  AttendTree(params, item, row, head, pages, first + count / 2, count / 2, {o, &lse});
  MergeRow(state, o, lse, params.shape.v_dim);
}

void AttendRow(const AttentionParams& params, const AttentionItem& item, int64_t row, int head) {
  const KvPageShape& shape = params.shape;
  const int kv_head = head / (params.heads / shape.kv_heads);
  const int64_t index = row * params.heads + head;
  float o[kMaxHeadDim] = {};
  float lse = -kInfinity;
  std::vector<std::vector<KvPageView>> pages(params.shards);
  for (const int32_t listed : ListedPages(params, item, kv_head, row)) {
    const KvPageView& page = item.pages[listed];
    const int leaf = LeafOfPage(page.first_position / shape.page_tokens, params.shards);
    if (!Attends(item, leaf)) continue;
    pages[leaf].push_back({page.data + item.page_offset, page.first_position, page.tokens});
  }
  AttendTree(params, item, row, head, pages, 0, params.shards, {o, &lse});
  const RowState result{item.state.o + index * shape.v_dim, item.state.lse + index};
  if (item.merges) return MergeRow(result, o, lse, shape.v_dim);
  std::copy_n(o, shape.v_dim, result.o);
  *result.lse = lse;
}

}  // namespace

size_t KvPageBytes(const KvPageShape& shape) {
  CheckPageShape(shape);
  const size_t bytes = shape.dtype == DType::kI8 ? ValueScaleOffset(shape, shape.kv_heads, 0)
                                                 : ValueOffset(shape, shape.kv_heads, 0);
  return (bytes + 63) / 64 * 64;
}

absl::Status KvAppend(Stream&, const KvAppendParams& params) {
  CheckKvAppend(params);
  const KvPageShape& shape = params.shape;
  for (size_t r = 0; r < params.pages.size(); ++r) {
    for (int h = 0; h < shape.kv_heads; ++h) {
      const int64_t slot = params.slots[r];
      WriteRow(shape.dtype, params.k.row(r) + int64_t{h} * shape.k_dim, shape.k_dim,
               params.pages[r], KeyOffset(shape, h, slot), KeyScaleOffset(shape, h, slot));
      WriteRow(shape.dtype, params.v.row(r) + int64_t{h} * shape.v_dim, shape.v_dim,
               params.pages[r], ValueOffset(shape, h, slot), ValueScaleOffset(shape, h, slot));
    }
  }
  return absl::OkStatus();
}

absl::Status KvRead(Stream&, const KvReadParams& params) {
  CheckKvRead(params);
  const KvPageShape& shape = params.shape;
  for (int t = 0; t < params.tokens; ++t) {
    for (int h = 0; h < shape.kv_heads; ++h) {
      ReadKey(shape, params.page, h, t, params.k.row(t) + int64_t{h} * shape.k_dim);
      ReadValue(shape, params.page, h, t, params.v.row(t) + int64_t{h} * shape.v_dim);
    }
  }
  return absl::OkStatus();
}

absl::Status Attention(Stream& stream, const AttentionParams& params) {
  CheckAttention(params);
  for (const AttentionItem& item : params.items) {
    const int64_t rows = item.positions.size();
    AsCpuStream(stream).ParallelFor(rows * params.heads, [&](int64_t task, int) {
      AttendRow(params, item, task / params.heads, static_cast<int>(task % params.heads));
    });
  }
  return absl::OkStatus();
}

absl::Status MergeState(Stream&, const MergeStateParams& params) {
  CheckMergeState(params);
  const int v_dim = params.into.v_dim;
  for (int64_t i = 0; i < params.into.rows * params.into.heads; ++i) {
    MergeRow({params.into.o + i * v_dim, params.into.lse + i}, params.from.o + i * v_dim,
             params.from.lse[i], v_dim);
  }
  return absl::OkStatus();
}

absl::Status MergeSink(Stream&, const MergeSinkParams& params) {
  CheckMergeSink(params);
  const AttentionState& state = params.state;
  const std::vector<float> nothing(state.v_dim);
  for (int64_t i = 0; i < state.rows * state.heads; ++i) {
    MergeRow({state.o + i * state.v_dim, state.lse + i}, nothing.data(),
             params.sink[i % state.heads], state.v_dim);
  }
  return absl::OkStatus();
}

}  // namespace annulus::reference
