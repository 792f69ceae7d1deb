#include "kernels/cuda/tuning/invariant_plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace annulus::cuda {
namespace {

class InvariantPlanner {
 public:
  InvariantPlanner(const AttentionParams& params, const InvariantShape& shape,
                   int64_t most_partial_rows)
      : params_(params),
        shape_(shape),
        group_(params.heads / params.shape.kv_heads),
        most_partial_rows_(most_partial_rows) {}

  InvariantPlan Plan() {
    for (size_t i = 0; i < params_.items.size(); ++i) {
      plan_.runs.push_back(RunsOf(params_, params_.items[i], shape_.tile_pages));
      AddItem(static_cast<int32_t>(i));
    }
    EndRound();
    return std::move(plan_);
  }

 private:
  // Pages of a run that some row of a unit sees.
  struct Piece {
    int leaf;
    VisiblePages pages;
  };

  void AddItem(int32_t index) {
    const AttentionItem& item = params_.items[index];
    const int kv_heads = params_.shape.kv_heads;
    if (item.blocks.full) {
      AddRows(index, 0, kv_heads, 0, std::ssize(item.positions), 0);
      return;
    }
    const auto blocks = static_cast<int64_t>(item.blocks.query_block_rows.size()) - 1;
    const int heads_per_group = kv_heads / item.blocks.head_groups;
    for (int head = 0; head < kv_heads; head += heads_per_group) {
      for (int64_t b = 0; b < blocks; ++b) {
        AddRows(index, head, head + heads_per_group, item.blocks.query_block_rows[b],
                item.blocks.query_block_rows[b + 1], head / heads_per_group * blocks + b);
      }
    }
  }

  // Positions [begin, end) of an item and kv heads [first_head, last_head), which share a list.
  void AddRows(int32_t index, int first_head, int last_head, int64_t begin, int64_t end,
               int64_t list) {
    const AttentionItem& item = params_.items[index];
    const int64_t last = end * group_;
    for (int64_t row = begin * group_; row < last; row += shape_.rows) {
      const int64_t count = std::min<int64_t>(shape_.rows, last - row);
      pieces_.clear();
      for (const PageRun& run : plan_.runs[index].OfList(list)) {
        const VisiblePages seen =
            VisibleOf(params_, plan_.runs[index], run, item.positions[row / group_],
                      item.positions[(row + count - 1) / group_], shape_.tile_pages);
        if (seen.begin < seen.end) pieces_.push_back({run.leaf, seen});
      }
      AttentionUnit unit{};
      unit.item = index;
      unit.row_begin = static_cast<int32_t>(row);
      unit.row_count = static_cast<int32_t>(count);
      for (int head = first_head; head < last_head; ++head) {
        unit.kv_head = head;
        AddUnits(unit, item.merges);
      }
    }
  }

  // The units of some rows and a head, for all pieces.
  void AddUnits(AttentionUnit unit, bool merges) {
    if (pieces_.empty() && merges) return;  // the state stays
    unit.partial = -1;
    if (pieces_.empty()) return Add(unit, {});
    if (pieces_.size() == 1 && !merges) return Add(unit, pieces_.front().pages);
    const auto parts = static_cast<int32_t>(pieces_.size());
    const int64_t rows = int64_t{parts} * unit.row_count;
    if (partial_rows_ > 0 && partial_rows_ + rows > most_partial_rows_) EndRound();
    AttentionPlan& plan = plan_.attention;
    plan_.shard_merges.push_back({{unit.item, unit.kv_head, unit.row_begin, unit.row_count,
                                   static_cast<int32_t>(partial_rows_), parts},
                                  static_cast<int32_t>(plan_.leaves.size())});
    plan.largest_merge = std::max(plan.largest_merge, unit.row_count);
    for (const Piece& piece : pieces_) {
      plan_.leaves.push_back(static_cast<uint8_t>(piece.leaf));
      unit.partial = static_cast<int32_t>(partial_rows_);
      partial_rows_ += unit.row_count;
      Add(unit, piece.pages);
    }
  }

  void Add(AttentionUnit unit, const VisiblePages& pages) {
    unit.page_begin = pages.begin;
    unit.page_end = pages.end;
    plan_.attention.prefill.push_back(unit);
  }

  void EndRound() {
    AttentionPlan& plan = plan_.attention;
    const int64_t units = std::ssize(plan.prefill) - units_before_;
    if (units == 0) return;
    const auto pages = [](const AttentionUnit& unit) { return unit.page_end - unit.page_begin; };
    std::stable_sort(
        plan.prefill.begin() + units_before_, plan.prefill.end(),
        [&](const AttentionUnit& a, const AttentionUnit& b) { return pages(a) > pages(b); });
    plan.rounds.push_back({units, 0, std::ssize(plan_.shard_merges) - merges_before_});
    plan.partial_rows = std::max(plan.partial_rows, partial_rows_);
    units_before_ = std::ssize(plan.prefill);
    merges_before_ = std::ssize(plan_.shard_merges);
    partial_rows_ = 0;
  }

  const AttentionParams& params_;
  const InvariantShape shape_;
  const int group_;
  const int64_t most_partial_rows_;
  InvariantPlan plan_;
  std::vector<Piece> pieces_;
  int64_t partial_rows_ = 0;   // of this round
  int64_t units_before_ = 0;   // this round
  int64_t merges_before_ = 0;  // this round
};

}  // namespace

InvariantPlan PlanInvariantAttention(const AttentionParams& params, const InvariantShape& shape,
                                     int64_t most_partial_rows) {
  return InvariantPlanner(params, shape, most_partial_rows).Plan();
}

int64_t MostRoundRows(int v_dim) {
  return static_cast<int64_t>(kPartialBytes / ((static_cast<size_t>(v_dim) + 1) * sizeof(float)));
}

}  // namespace annulus::cuda
