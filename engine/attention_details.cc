#include "engine/attention_details.h"

#include <algorithm>
#include <cmath>

namespace annulus {

constexpr size_t kCells = size_t{AttentionDetail::kSide} * AttentionDetail::kSide;

size_t AttentionDetails::Cell(int32_t query_block, int32_t key_block) const {
  const auto side = [&](int32_t block) {
    const int64_t cell = int64_t{block} * block_tokens_ * AttentionDetail::kSide / prompt_tokens_;
    return static_cast<size_t>(std::min<int64_t>(cell, AttentionDetail::kSide - 1));
  };
  return side(query_block) * AttentionDetail::kSide + side(key_block);
}

void AttentionDetails::Add(const LayerAttention& part) {
  // A rank chooses blocks of the policy's size; what speaks of others is not understood.
  if (part.lists.has_value() && part.lists->block_tokens != block_tokens_) return;
  if (!layers_.contains(part.layer)) {
    Layer whole;  // there in full or, where memory runs out, not at all
    whole.heads.resize(static_cast<size_t>(kv_heads_));
    whole.cells.resize(kCells);
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
  for (int32_t key = 0; Draws(query_block) && key <= query_block; ++key) {
    layer.cells[Cell(query_block, key)] += static_cast<float>(rows.size());
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
      for (int32_t key = 0; drawn && key <= query_block; ++key) {
        head.cells[Cell(query_block, key)] += static_cast<float>(count);
      }
      continue;
    }
    const auto keys = lists->keys(lists->shape.head_groups == 1 ? 0 : kv_head, query_block);
    head.pairs.chosen += diagonal + count * static_cast<double>(keys.size() - 1) * block_tokens_;
    for (const int32_t key : keys) {
      if (drawn) head.cells[Cell(query_block, key)] += static_cast<float>(count);
    }
  }
}

// A branch keeps one of `rate` keys for one of `rate` rows: blocks are drawn by the share of their
// pairs, and no darker than full where branches meet. All pairs count, as CountDilatedPairs does.
void AttentionDetails::AddDilated(int32_t query_block, std::span<const int32_t> rows,
                                  std::span<const DilatedBranch> branches, Layer& layer) const {
  const double part = static_cast<double>(kv_heads_) / heads_;
  const auto all = static_cast<double>(rows.size());
  for (int query_head = 0; query_head < heads_; ++query_head) {
    Head& head = layer.heads[query_head * kv_heads_ / heads_];
    std::vector<double> kept(static_cast<size_t>(query_block) + 1);  // [key block] rows' worth
    for (const DilatedBranch& branch : branches) {
      double keeping = 0;
      for (const int32_t row : rows) {
        if (row % branch.rate != query_head % branch.rate) continue;
        head.pairs.chosen += part * (row % branch.segment / branch.rate + 1);
        keeping += 1;
      }
      // Segments are whole blocks.
      const int32_t first = rows.front() / branch.segment * (branch.segment / block_tokens_);
      for (int32_t key = first; key <= query_block; ++key) kept[key] += keeping / branch.rate;
    }
    for (int32_t key = 0; Draws(query_block) && key <= query_block; ++key) {
      head.cells[Cell(query_block, key)] += static_cast<float>(part * std::min(kept[key], all));
    }
  }
}

std::vector<AttentionDetail> AttentionDetails::Make() const {
  std::vector<AttentionDetail> details;
  for (const auto& [index, layer] : layers_) {
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
      details.push_back(std::move(detail));
    }
  }
  return details;
}

}  // namespace annulus
