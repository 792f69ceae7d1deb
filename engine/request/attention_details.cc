#include "engine/request/attention_details.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace annulus {

constexpr size_t kCells = size_t{AttentionDetail::kSide} * AttentionDetail::kSide;

AttentionDetails::Cells AttentionDetails::CellsOf(int32_t block) const {
  const auto cell = [&](int64_t token) {
    return static_cast<int>(std::min(token, prompt_tokens_) * AttentionDetail::kSide /
                            prompt_tokens_);
  };
  const int begin = cell(int64_t{block} * block_tokens_);
  return {begin, std::max(begin + 1, cell((int64_t{block} + 1) * block_tokens_))};
}

int32_t AttentionDetails::EndOfRun(int32_t first, int32_t end) const {
  const int64_t step = int64_t{block_tokens_} * AttentionDetail::kSide;
  const int64_t edge = (int64_t{CellsOf(first).begin} + 1) * prompt_tokens_;
  const auto next = static_cast<int32_t>(std::min<int64_t>(end, (edge + step - 1) / step));
  return std::max(first + 1, next);
}

void AttentionDetails::AddRange(int32_t query_block, int32_t first, int32_t end, double value,
                                std::vector<float>& cells) const {
  const Cells rows = CellsOf(query_block);
  while (first < end) {
    const Cells columns = CellsOf(first);
    const int32_t stop = EndOfRun(first, end);
    const auto amount = static_cast<float>(value * (stop - first));
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int column = columns.begin; column < std::min(columns.end, row + 1); ++column) {
        cells[static_cast<size_t>(row) * AttentionDetail::kSide + column] += amount;
      }
    }
    first = stop;
  }
}

std::vector<float> AttentionDetails::RowTokens() const {
  std::vector<float> tokens(AttentionDetail::kSide);
  const auto blocks = static_cast<int32_t>((prompt_tokens_ + block_tokens_ - 1) / block_tokens_);
  for (int32_t first = 0; first < blocks;) {
    const Cells cells = CellsOf(first);
    const int32_t stop = EndOfRun(first, blocks);
    const int64_t end = std::min(int64_t{stop} * block_tokens_, prompt_tokens_);
    for (int row = cells.begin; row < cells.end; ++row) {
      tokens[row] += static_cast<float>(end - int64_t{first} * block_tokens_);
    }
    first = stop;
  }
  return tokens;
}

void AttentionDetails::Add(const LayerAttention& part) {
  // A rank chooses blocks of the policy's size; a report of blocks of another size is ignored.
  if (part.lists.has_value() && part.lists->block_tokens != block_tokens_) return;
  if (!layers_.contains(part.layer)) {
    Layer whole;  // there in full or, where memory runs out, not at all
    whole.heads.resize(static_cast<size_t>(kv_heads_));
    whole.cells.resize(kCells);
    whole.rows.resize(AttentionDetail::kSide);
    for (Head& head : whole.heads) head.cells.resize(kCells);
    layers_.emplace(part.layer, std::move(whole));
  }
  Layer& layer = layers_.at(part.layer);
  layer.estimated += part.estimated;
  layer.estimates += static_cast<double>(part.estimates);
  for (size_t head = 0; head < part.covered.size() && part.probes > 0; ++head) {
    Head& own = layer.heads[head * layer.heads.size() / part.covered.size()];
    own.covered += part.covered[head];
    own.samples += part.probes;
  }
  for (size_t begin = 0; begin < part.rows.size();) {
    const int32_t block = part.rows[begin] / block_tokens_;
    size_t end = begin;
    while (end < part.rows.size() && part.rows[end] / block_tokens_ == block) ++end;
    const auto rows = std::span(part.rows).subspan(begin, end - begin);
    AddCausal(block, rows, layer);
    if (part.branches.empty()) {
      AddRows(block, rows, part.lists.has_value() ? &*part.lists : nullptr, layer);
    } else {
      AddDilated(block, rows, part.branches, layer);
    }
    begin = end;
  }
}

void AttentionDetails::AddCausal(int32_t query_block, std::span<const int32_t> rows,
                                 Layer& layer) const {
  double causal = 0;
  for (const int32_t row : rows) causal += row + 1.0;
  for (Head& head : layer.heads) head.pairs.causal += causal;
  if (!Draws(query_block)) return;
  AddRange(query_block, 0, query_block + 1, static_cast<double>(rows.size()), layer.cells);
  const auto of_prompt = std::lower_bound(rows.begin(), rows.end(), prompt_tokens_);
  const Cells cells = CellsOf(query_block);
  for (int row = cells.begin; row < cells.end; ++row) {
    layer.rows[row] += static_cast<float>(of_prompt - rows.begin());
  }
}

void AttentionDetails::AddRows(int32_t query_block, std::span<const int32_t> rows,
                               const BlockPattern* lists, Layer& layer) const {
  const auto count = static_cast<double>(rows.size());
  const bool drawn = Draws(query_block);
  double diagonal = 0;
  double causal = 0;
  for (const int32_t row : rows) {
    diagonal += row % block_tokens_ + 1;
    causal += row + 1.0;
  }
  for (int kv_head = 0; kv_head < kv_heads_; ++kv_head) {
    Head& head = layer.heads[kv_head];
    if (lists == nullptr) {
      head.pairs.chosen += causal;
      if (drawn) AddRange(query_block, 0, query_block + 1, count, head.cells);
      continue;
    }
    const auto keys = lists->keys(lists->shape.head_groups == 1 ? 0 : kv_head, query_block);
    head.pairs.chosen += diagonal + count * static_cast<double>(keys.size() - 1) * block_tokens_;
    for (const int32_t key : keys) {
      if (drawn) AddRange(query_block, key, key + 1, count, head.cells);
    }
  }
}

// A branch keeps one of `rate` keys for one of `rate` rows. A block is drawn by its share of pairs,
// at most as full where branches overlap. All pairs count, as in CountDilatedPairs.
void AttentionDetails::AddDilated(int32_t query_block, std::span<const int32_t> rows,
                                  std::span<const DilatedBranch> branches, Layer& layer) const {
  const double part = static_cast<double>(kv_heads_) / heads_;
  const auto all = static_cast<double>(rows.size());
  for (int query_head = 0; query_head < heads_; ++query_head) {
    Head& head = layer.heads[query_head * kv_heads_ / heads_];
    std::vector<std::pair<int32_t, double>> kept;  // from this key block on, so many more rows'
    for (const DilatedBranch& branch : branches) {
      double keeping = 0;
      for (const int32_t row : rows) {
        if (row % branch.rate != query_head % branch.rate) continue;
        head.pairs.chosen += part * (row % branch.segment / branch.rate + 1);
        keeping += 1;
      }
      // Segments are whole blocks.
      const int32_t first = rows.front() / branch.segment * (branch.segment / block_tokens_);
      kept.emplace_back(first, keeping / branch.rate);
    }
    if (!Draws(query_block)) continue;
    std::sort(kept.begin(), kept.end());
    double sum = 0;
    for (size_t i = 0; i < kept.size(); ++i) {
      sum += kept[i].second;
      const int32_t end = i + 1 < kept.size() ? kept[i + 1].first : query_block + 1;
      AddRange(query_block, kept[i].first, end, part * std::min(sum, all), head.cells);
    }
  }
}

std::vector<AttentionDetail> AttentionDetails::Make() const {
  const std::vector<float> all = RowTokens();
  std::vector<AttentionDetail> details;
  for (const auto& [index, layer] : layers_) {
    std::vector<uint8_t> computed(AttentionDetail::kSide);
    for (size_t row = 0; row < computed.size(); ++row) {
      // A row that was computed twice counts once, and no share above 0 is rounded to 0.
      if (layer.rows[row] == 0) continue;
      const float share = std::min(1.0F, layer.rows[row] / all[row]);
      computed[row] = static_cast<uint8_t>(std::max(1L, std::lround(255 * share)));
    }
    for (int kv_head = 0; kv_head < kv_heads_; ++kv_head) {
      const Head& head = layer.heads[kv_head];
      AttentionDetail detail;
      detail.layer = index;
      detail.kv_head = kv_head;
      detail.density = head.pairs.density();
      if (layer.estimates > 0) detail.estimated_coverage = layer.estimated / layer.estimates;
      if (head.samples > 0) detail.sampled_coverage = head.covered / head.samples;
      detail.map.resize(kCells);
      for (size_t cell = 0; cell < kCells; ++cell) {
        if (layer.cells[cell] == 0) continue;
        const float share = head.cells[cell] / layer.cells[cell];
        detail.map[cell] = static_cast<uint8_t>(std::lround(255 * share));
      }
      detail.computed = computed;
      details.push_back(std::move(detail));
    }
  }
  return details;
}

}  // namespace annulus
