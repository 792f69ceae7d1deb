#include "bench/gates/gate_collector.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/status_macros.h"
#include "kernels/ops/block_scores.h"

namespace annulus::bench {
namespace {

// Adds weight * softmax of log masses.
void AddShares(std::span<const float> log_mass, float weight, std::vector<float>& shares) {
  float most = -std::numeric_limits<float>::infinity();
  for (const float mass : log_mass) most = std::max(most, mass);
  double total = 0;
  for (const float mass : log_mass) total += std::exp(mass - most);
  for (size_t b = 0; b < log_mass.size(); ++b) {
    shares[b] += weight * static_cast<float>(std::exp(log_mass[b] - most) / total);
  }
}

}  // namespace

void GateCollector::Begin(int64_t tokens) {
  ++documents_;
  tokens_ = tokens;
}

absl::Status GateCollector::Observe(const Observation& seen) {
  const KvPageShape& shape = seen.config.shape;
  std::vector<std::vector<GateExamples>>& heads = layers_[seen.layer];
  heads.resize(static_cast<size_t>(shape.kv_heads));
  for (std::vector<GateExamples>& documents : heads) {
    documents.resize(documents_);
    documents.back().k_dim = shape.k_dim;
    documents.back().heads = seen.config.heads / shape.kv_heads;
  }
  ANNULUS_RETURN_IF_ERROR(AddFeatures(seen, heads));
  const int64_t blocks = tokens_ / shape.page_tokens;
  const auto every = static_cast<int32_t>(std::max<int64_t>(1, blocks / options_.query_blocks));
  // Chunks end at pages, but for the last; a block that is not whole is left out.
  for (size_t row = 0; row + shape.page_tokens <= seen.positions.size();
       row += static_cast<size_t>(shape.page_tokens)) {
    const int32_t block = seen.positions[row] / shape.page_tokens;
    if (block == 0 || block % every != 0) continue;
    ANNULUS_RETURN_IF_ERROR(AddBlock(seen, block, static_cast<int64_t>(row), heads));
  }
  return absl::OkStatus();
}

absl::Status GateCollector::AddFeatures(const Observation& seen,
                                        std::vector<std::vector<GateExamples>>& heads) const {
  const KvPageShape& shape = seen.config.shape;
  const auto k_dim = static_cast<size_t>(shape.k_dim);
  const size_t known = heads.front().back().features.size() / (3 * k_dim);
  size_t whole = known;
  while (whole < seen.pages.size() && seen.pages[whole].tokens == shape.page_tokens) ++whole;
  if (whole == known) return absl::OkStatus();
  const size_t columns = static_cast<size_t>(shape.kv_heads) * k_dim;
  const size_t plane = (whole - known) * columns;
  std::vector<float> planes(3 * plane);  // mean, least, greatest
  float* const run = planes.data();
  KeySummaryParams params;
  params.shape = shape;
  params.pages = seen.pages.subspan(known, whole - known);
  params.to = {{&run, 1}, static_cast<int64_t>(whole - known)};
  params.mean = 0;
  params.least = static_cast<int64_t>(plane);
  params.greatest = static_cast<int64_t>(2 * plane);
  ANNULUS_RETURN_IF_ERROR(seen.ops.key_summary(seen.stream, params));
  ANNULUS_RETURN_IF_ERROR(seen.stream.Synchronize());
  for (size_t page = 0; page < whole - known; ++page) {
    for (size_t head = 0; head < heads.size(); ++head) {
      std::vector<float>& features = heads[head].back().features;
      for (size_t kind = 0; kind < 3; ++kind) {
        const float* const from = run + kind * plane + page * columns + head * k_dim;
        features.insert(features.end(), from, from + shape.k_dim);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status GateCollector::AddBlock(const Observation& seen, int32_t block, int64_t first_row,
                                     std::vector<std::vector<GateExamples>>& heads) const {
  const KvPageShape& shape = seen.config.shape;
  const int count = std::min(options_.rows, shape.page_tokens);
  const auto blocks = static_cast<size_t>(block) + 1;
  const int64_t columns = seen.query.cols;
  std::vector<int32_t> positions;
  std::vector<float> rows;
  for (int n = 0; n < count; ++n) {
    const int64_t row = first_row + (2 * n + 1) * shape.page_tokens / (2 * count);
    positions.push_back(seen.positions[row]);
    rows.insert(rows.end(), seen.query.row(row), seen.query.row(row) + columns);
  }
  std::vector<float> scores(static_cast<size_t>(count) * seen.config.heads * blocks);
  BlockScoresItem item;
  item.query = {rows.data(), count, columns, columns};
  item.positions = positions;
  item.pages = seen.pages.first(blocks);
  item.scores = scores.data();
  BlockScoresParams params;
  params.shape = shape;
  params.heads = seen.config.heads;
  params.scale = seen.config.scale;
  params.soft_cap = seen.config.soft_cap;
  params.block_tokens = shape.page_tokens;
  params.items = {&item, 1};
  ANNULUS_RETURN_IF_ERROR(seen.ops.block_scores(seen.stream, params));
  ANNULUS_RETURN_IF_ERROR(seen.stream.Synchronize());
  const int group = seen.config.heads / shape.kv_heads;
  for (int head = 0; head < seen.config.heads; ++head) {
    GateExamples::Example example;
    example.pages = block + 1;
    example.head = head % group;
    example.target.assign(blocks, 0.0f);
    for (int n = 0; n < count; ++n) {
      const size_t at = (static_cast<size_t>(n) * seen.config.heads + head) * blocks;
      AddShares(std::span(scores).subspan(at, blocks), 1 / static_cast<float>(count),
                example.target);
    }
    example.query.assign(static_cast<size_t>(shape.k_dim), 0.0f);
    for (int64_t row = first_row; row < first_row + shape.page_tokens; ++row) {
      const float* const from = seen.query.row(row) + int64_t{head} * shape.k_dim;
      for (int d = 0; d < shape.k_dim; ++d) {
        example.query[d] += from[d] / static_cast<float>(shape.page_tokens);
      }
    }
    heads[head / group].back().examples.push_back(std::move(example));
  }
  return absl::OkStatus();
}

}  // namespace annulus::bench
