#include "kernels/cpu/reference/float8_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/base/activations.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/host/cpu_stream.h"
#include "kernels/cpu/reference/attention_rows.h"
#include "kernels/cpu/reference/reference.h"
#include "kernels/ops/checks.h"

namespace annulus::reference {
namespace {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// A page's keys [tokens, kv_heads * k_dim] and values [tokens, kv_heads * v_dim].
struct WidePage {
  std::vector<float> k;
  std::vector<float> v;
};

absl::StatusOr<std::vector<WidePage>> ReadPages(Stream& stream, const KvPageShape& shape,
                                                const AttentionItem& item) {
  const int64_t k_cols = int64_t{shape.kv_heads} * shape.k_dim;
  const int64_t v_cols = int64_t{shape.kv_heads} * shape.v_dim;
  std::vector<WidePage> pages;
  for (const KvPageView& view : item.pages) {
    WidePage& page = pages.emplace_back();
    page.k.resize(view.tokens * k_cols);
    page.v.resize(view.tokens * v_cols);
    KvReadParams read;
    read.shape = shape;
    read.page = view.data + item.page_offset;
    read.tokens = view.tokens;
    read.k = {page.k.data(), view.tokens, k_cols, k_cols};
    read.v = {page.v.data(), view.tokens, v_cols, v_cols};
    ANNULUS_RETURN_IF_ERROR(KvRead(stream, read));
  }
  return pages;
}

// A row's keys in one tile, with what ScoreRule makes of their scores.
struct ScoredTile {
  std::vector<float> scores;
  std::vector<const float*> values;
};

// The query of a row and head in codes, and how its scores become logarithms of weights: after
// Score, times `factor`, in units of log 2.
class CodedQuery {
 public:
  CodedQuery(const AttentionParams& params, const float* query) : params_(params) {
    const auto dim = static_cast<size_t>(params.shape.k_dim);
    std::vector<Float8E4M3> codes(dim);
    scale_ = RoundToFloat8({query, dim}, codes);
    if (scale_ == 0) scale_ = 1;  // all codes are 0
    for (const Float8E4M3 code : codes) codes_.push_back(ToFloat(code));
  }

  float Score(const float* key) const {
    float score = Dot(key);
    if (params_.soft_cap > 0) {
      const float inside = params_.scale / params_.soft_cap;
      return params_.soft_cap * kLog2E * std::tanh(score * scale_ * inside);
    }
    return params_.scale <= 0 ? score * scale_ * (params_.scale * kLog2E) : score;
  }
  float factor() const {
    return params_.soft_cap > 0 || params_.scale <= 0 ? 1 : params_.scale * kLog2E * scale_;
  }

 private:
  float Dot(const float* key) const {
    float dot = 0;
    for (size_t begin = 0; begin < codes_.size(); begin += kFloat8Depth) {
      float sum = 0;
      const size_t end = std::min(codes_.size(), begin + kFloat8Depth);
      for (size_t d = begin; d < end; ++d) sum += codes_[d] * key[d];
      dot += sum;
    }
    return dot;
  }

  const AttentionParams& params_;
  std::vector<float> codes_;
  float scale_;
};

// Output and sum of a row, as weights 2^(score - base + kFloat8Headroom).
struct RowSums {
  float base = kNothing;
  float sum = 0;
  float o[kMaxHeadDim] = {};

  void Add(const ScoredTile& tile, float factor, int v_dim) {
    if (tile.scores.empty()) return;
    float top = kNothing;
    for (const float score : tile.scores) top = std::fmax(top, score);
    const float most = top * factor;
    const float from = most - kFloat8Headroom;
    float tile_sum = 0;
    float part[kMaxHeadDim] = {};
    for (size_t i = 0; i < tile.scores.size(); ++i) {
      const float weight = std::exp2(tile.scores[i] * factor - from);
      tile_sum += weight;
      const float code = ToFloat(ToFloat8E4M3(weight));
      for (int d = 0; d < v_dim; ++d) part[d] += code * tile.values[i][d];
    }
    if (most > base) {
      const float rescale = std::exp2(base - most);
      sum *= rescale;
      for (int d = 0; d < v_dim; ++d) o[d] *= rescale;
      base = most;
    }
    const float carry = std::exp2(most - base);
    sum += tile_sum * carry;
    for (int d = 0; d < v_dim; ++d) o[d] += part[d] * carry;
  }
};

void AttendCodedRow(const AttentionParams& params, const AttentionItem& item,
                    std::span<const WidePage> pages, int64_t row, int head) {
  const KvPageShape& shape = params.shape;
  const int kv_head = head / (params.heads / shape.kv_heads);
  const int64_t position = item.positions[row];
  const CodedQuery query(params, item.query.row(row) + int64_t{head} * shape.k_dim);
  RowSums sums;
  ScoredTile tile;
  int64_t slots = 0;  // of the pages so far
  for (const int32_t listed : ListedPages(params, item, kv_head, row)) {
    const KvPageView& view = item.pages[listed];
    if (!Attends(item, LeafOfPage(view.first_position / shape.page_tokens, params.shards))) {
      continue;
    }
    for (int64_t slot = 0; slot < shape.page_tokens; ++slot, ++slots) {
      if (slots % kFloat8Tile == 0) {
        sums.Add(tile, query.factor(), shape.v_dim);
        tile = {};
      }
      const int64_t j = view.first_position + slot;
      const bool hidden = j > position || (params.window > 0 && j <= position - params.window);
      if (slot >= view.tokens || hidden) continue;
      const int64_t at = slot * shape.kv_heads + kv_head;
      tile.scores.push_back(query.Score(&pages[listed].k[at * shape.k_dim]));
      tile.values.push_back(&pages[listed].v[at * shape.v_dim]);
    }
  }
  sums.Add(tile, query.factor(), shape.v_dim);
  float lse = kNothing;
  if (sums.sum != 0) {
    for (int d = 0; d < shape.v_dim; ++d) sums.o[d] /= sums.sum;
    lse = (sums.base - kFloat8Headroom) * kLn2 + std::log(sums.sum);
  }
  const int64_t index = row * params.heads + head;
  const RowState result{item.state.o + index * shape.v_dim, item.state.lse + index};
  if (item.merges) return MergeRow(result, sums.o, lse, shape.v_dim);
  std::copy_n(sums.o, shape.v_dim, result.o);
  *result.lse = lse;
}

}  // namespace

absl::Status Float8Attention(Stream& stream, const AttentionParams& params) {
  CheckAttention(params);
  const bool dilated =
      std::any_of(params.items.begin(), params.items.end(),
                  [](const AttentionItem& item) { return !item.branches.empty(); });
  if (params.shape.dtype != DType::kF8E4M3 || dilated) return Attention(stream, params);
  for (const AttentionItem& item : params.items) {
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<WidePage> pages,
                             ReadPages(stream, params.shape, item));
    const int64_t rows = item.positions.size();
    AsCpuStream(stream).ParallelFor(rows * params.heads, [&](int64_t task, int) {
      AttendCodedRow(params, item, pages, task / params.heads,
                     static_cast<int>(task % params.heads));
    });
  }
  return absl::OkStatus();
}

OpTable WithFloat8Attention(const OpTable& table) {
  OpTable ops = table;
  ops.name += "-fp8";
  ops.row_invariant = false;
  ops.kv_page_bytes = KvPageBytes;
  ops.kv_append = KvAppend;
  ops.kv_read = KvRead;
  ops.attention = Float8Attention;
  ops.block_scores = BlockScores;
  ops.score_sums = ScoreSums;
  ops.key_summary = KeySummary;
  return ops;
}

}  // namespace annulus::reference
