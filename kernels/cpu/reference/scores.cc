// Reference block scores, their pooling, and page summaries.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/host/cpu_stream.h"
#include "kernels/cpu/reference/reference.h"
#include "kernels/ops/checks.h"

namespace annulus::reference {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The keys of one page as float32.
absl::StatusOr<std::vector<float>> ReadKeys(Stream& stream, const KvPageShape& shape,
                                            const KvPageView& page) {
  const int64_t k_cols = int64_t{shape.kv_heads} * shape.k_dim;
  const int64_t v_cols = int64_t{shape.kv_heads} * shape.v_dim;
  std::vector<float> keys(page.tokens * k_cols);
  std::vector<float> values(page.tokens * v_cols);
  ANNULUS_RETURN_IF_ERROR(KvRead(stream, {shape,
                                          page.data,
                                          page.tokens,
                                          {keys.data(), page.tokens, k_cols, k_cols},
                                          {values.data(), page.tokens, v_cols, v_cols}}));
  return keys;
}

// Whether a single row's head leaves out the key at `position`.
bool LeavesOut(const BlockScoresItem& item, const RowGroup& group, int head, int64_t position) {
  return !item.branches.empty() &&
         std::none_of(item.branches.begin(), item.branches.end(), [&](const DilatedBranch& branch) {
           return branch.Keeps(head, group.tile, position);
         });
}

// All of a row group's scores of one tile of keys, or the mean of its antidiagonal; -infinity where
// no pair is there. `tile` counts from the page's beginning.
float TileScore(const BlockScoresParams& params, const BlockScoresItem& item, const RowGroup& group,
                int head, const KvPageView& page, const std::vector<float>& keys, int64_t tile) {
  const int64_t d = params.shape.k_dim;
  const int kv_head = head / (params.heads / params.shape.kv_heads);
  float sum = 0;
  int pairs = 0;
  for (int64_t r = group.first; r < group.first + group.count; ++r) {
    const int64_t t = tile * params.stride + MeetingSlot(item.positions[r], params.stride);
    if (t >= page.tokens) continue;
    const float* const query = item.query.row(r) + head * d;
    const float* const key = keys.data() + (t * params.shape.kv_heads + kv_head) * d;
    for (int64_t i = 0; i < d; ++i) sum += query[i] * key[i];
    ++pairs;
  }
  if (pairs == 0) return -kInfinity;
  const float score = params.scale * sum / static_cast<float>(pairs);
  return params.soft_cap > 0 ? params.soft_cap * std::tanh(score / params.soft_cap) : score;
}

// log(exp(a) + exp(b)).
float LogAdd(float a, float b) {
  const float m = std::max(a, b);
  return m == -kInfinity ? m : m + std::log(std::exp(a - m) + std::exp(b - m));
}

absl::Status ScoreItem(Stream& stream, const BlockScoresParams& params,
                       const BlockScoresItem& item) {
  const std::vector<RowGroup> groups = RowGroups(item.positions, params.stride);
  const int64_t blocks = CountBlocks(item.pages, params.block_tokens);
  std::fill_n(item.scores, static_cast<int64_t>(groups.size()) * params.heads * blocks, -kInfinity);
  int64_t block = -1;
  for (size_t p = 0; p < item.pages.size(); ++p) {
    const KvPageView& page = item.pages[p];
    block = CountBlocks(item.pages.first(p + 1), params.block_tokens) - 1;
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<float> keys, ReadKeys(stream, params.shape, page));
    for (size_t g = 0; g < groups.size(); ++g) {
      for (int head = 0; head < params.heads; ++head) {
        float& score =
            item.scores[(static_cast<int64_t>(g) * params.heads + head) * blocks + block];
        for (int64_t tile = 0; tile * params.stride < page.tokens; ++tile) {
          if (page.first_position / params.stride + tile > groups[g].tile) break;
          if (LeavesOut(item, groups[g], head, page.first_position + tile)) continue;
          score = LogAdd(score, TileScore(params, item, groups[g], head, page, keys, tile));
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BlockScores(Stream& stream, const BlockScoresParams& params) {
  CheckBlockScores(params);
  for (const BlockScoresItem& item : params.items) {
    ANNULUS_RETURN_IF_ERROR(ScoreItem(stream, params, item));
  }
  return absl::OkStatus();
}

absl::Status ScoreSums(Stream&, const ScoreSumsParams& params) {
  CheckScoreSums(params);
  for (int64_t list = 0; list < params.scores.rows; ++list) {
    const float* const scores = params.scores.row(list);
    float largest = params.add ? params.sums[list] : -kInfinity;
    for (int64_t b = 0; b < params.scores.cols; ++b) largest = std::max(largest, scores[b]);
    if (largest == -kInfinity) {
      params.sums[list] = -kInfinity;
      continue;
    }
    float sum = params.add ? std::exp(params.sums[list] - largest) : 0;
    for (int64_t b = 0; b < params.scores.cols; ++b) sum += std::exp(scores[b] - largest);
    params.sums[list] = largest + std::log(sum);
  }
  return absl::OkStatus();
}

absl::Status BlockMasses(Stream&, const BlockMassesParams& params) {
  CheckBlockMasses(params);
  const int group = params.heads / params.kv_heads;
  for (int64_t row = 0; row < params.masses.rows; ++row) {
    const int64_t run = row / params.kv_heads;
    const int64_t begin = run == 0 ? 0 : params.ends[run - 1];
    const int64_t lists = (params.ends[run] - begin) * group;
    for (int64_t b = 0; b < params.masses.cols; ++b) {
      float mass = 0;
      for (int64_t i = 0; i < lists; ++i) {
        const int64_t list =
            (begin + i / group) * params.heads + row % params.kv_heads * group + i % group;
        if (params.sums[list] == -kInfinity) continue;
        mass += std::exp(params.scores.row(list)[b] - params.sums[list]);
      }
      params.masses.row(row)[b] = mass / static_cast<float>(lists);
    }
  }
  return absl::OkStatus();
}

absl::Status KeySummary(Stream& stream, const KeySummaryParams& params) {
  CheckKeySummary(params);
  const int64_t columns = int64_t{params.shape.kv_heads} * params.shape.k_dim;
  for (size_t p = 0; p < params.pages.size(); ++p) {
    const KvPageView& page = params.pages[p];
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<float> keys, ReadKeys(stream, params.shape, page));
    for (int64_t at = 0; at < params.parts * columns; ++at) {
      const int64_t begin = at / columns * params.part_tokens();
      const int64_t end = std::min<int64_t>(page.tokens, begin + params.part_tokens());
      float least = kInfinity;
      float greatest = -kInfinity;
      float sum = 0;
      for (int64_t t = begin; t < end; ++t) {
        const float key = keys[t * columns + at % columns];
        least = std::min(least, key);
        greatest = std::max(greatest, key);
        sum += key;
      }
      const auto store = [&](int64_t plane, float value) {
        const int64_t place = params.first + static_cast<int64_t>(p);
        if (plane >= 0) params.to.At(place, plane, params.parts * columns)[at] = value;
      };
      store(params.least, least);
      store(params.greatest, greatest);
      store(params.mean, sum / static_cast<float>(end - begin));
    }
  }
  return absl::OkStatus();
}

absl::Status SummaryScores(Stream&, const SummaryScoresParams& params) {
  CheckSummaryScores(params);
  const int group = params.heads / params.kv_heads;
  const int64_t columns = int64_t{params.kv_heads} * params.k_dim;
  float* score = params.scores;
  for (int64_t row = 0; row < params.query.rows; ++row) {
    for (int head = 0; head < params.heads; ++head) {
      const float* const query = params.query.row(row) + int64_t{head} * params.k_dim;
      for (int64_t page = 0; page < params.pages; ++page) {
        const float* least = params.from.At(page, params.least, params.parts * columns);
        const float* greatest = params.from.At(page, params.greatest, params.parts * columns);
        float most = -kInfinity;
        for (int part = 0; part < params.parts; ++part, least += columns, greatest += columns) {
          const int64_t at = int64_t{head / group} * params.k_dim;
          float sum = 0;
          for (int d = 0; d < params.k_dim; ++d) {
            sum += std::max(query[d] * least[at + d], query[d] * greatest[at + d]);
          }
          most = std::max(most, sum);
        }
        *score++ = most;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status RowMeans(Stream&, const RowMeansParams& params) {
  CheckRowMeans(params);
  int32_t begin = 0;
  for (size_t i = 0; i < params.ends.size(); ++i) {
    const int32_t end = params.ends[i];
    for (int64_t c = 0; c < params.input.cols; ++c) {
      float sum = 0;
      for (int32_t r = begin; r < end; ++r) sum += params.input.row(r)[c];
      params.output.row(static_cast<int64_t>(i))[c] = sum / static_cast<float>(end - begin);
    }
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace annulus::reference
