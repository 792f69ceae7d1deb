#include "kernels/cuda/tuning/attention_plan.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "kernels/cuda/tuning/unit_order.h"

namespace annulus::cuda {
namespace {

// The pages that a list of a query block names: [begin, end) of the item's pages, or of its lists.
struct PageRange {
  int32_t begin = 0;
  int32_t end = 0;
};

class Planner {
 public:
  Planner(const AttentionParams& params, int multiprocessors, int prefill_rows, int decode_blocks,
          int64_t section_bytes)
      : params_(params),
        group_(params.heads / params.shape.kv_heads),
        dim_(std::max(params.shape.k_dim, params.shape.v_dim)),
        prefill_rows_(prefill_rows),
        multiprocessors_(multiprocessors),
        decode_blocks_(decode_blocks),
        section_bytes_(section_bytes) {}

  AttentionPlan Plan() {
    for (size_t i = 0; i < params_.items.size(); ++i) AddItem(static_cast<int32_t>(i));
    SortUnits(params_, section_bytes_, plan_.prefill);
    SortUnits(params_, /*section_bytes=*/0, plan_.decode);
    ShareOut();
    plan_.rounds.push_back({std::ssize(plan_.prefill), std::ssize(plan_.decode), launched_merges_});
    return std::move(plan_);
  }

 private:
  void AddItem(int32_t index) {
    const AttentionItem& item = params_.items[index];
    const auto rows = static_cast<int64_t>(item.positions.size());
    if (item.blocks.full) {
      const PageRange all{0, static_cast<int32_t>(item.pages.size())};
      for (int head = 0; head < params_.shape.kv_heads; ++head) {
        AddRows(index, head, 0, rows, all);
      }
      return;
    }
    const auto blocks = static_cast<int64_t>(item.blocks.query_block_rows.size()) - 1;
    const int heads_per_group = params_.shape.kv_heads / item.blocks.head_groups;
    for (int head = 0; head < params_.shape.kv_heads; ++head) {
      for (int64_t b = 0; b < blocks; ++b) {
        const int64_t list = head / heads_per_group * blocks + b;
        AddRows(index, head, item.blocks.query_block_rows[b], item.blocks.query_block_rows[b + 1],
                {item.blocks.offsets[list], item.blocks.offsets[list + 1]});
      }
    }
  }

  // Positions [begin, end) of one item and kv head, which share a list of pages.
  void AddRows(int32_t index, int head, int64_t begin, int64_t end, PageRange pages) {
    const int64_t last = end * group_;
    const int64_t few_rows = AttentionRows(AttentionShape::kDecode, dim_);
    const bool few = last - begin * group_ <= few_rows;
    // float32 has one kernel, whose rows are those of the decode shape.
    const AttentionShape shape = few || params_.shape.dtype == DType::kF32
                                     ? AttentionShape::kDecode
                                     : AttentionShape::kPrefill;
    const int64_t tile = shape == AttentionShape::kDecode ? few_rows : prefill_rows_;
    for (int64_t row = begin * group_; row < last; row += tile) {
      const int64_t count = std::min(tile, last - row);
      const PageRange seen =
          Seen(params_.items[index], pages, row / group_, (row + count - 1) / group_);
      AttentionUnit unit{};
      unit.item = index;
      unit.kv_head = head;
      unit.row_begin = static_cast<int32_t>(row);
      unit.row_count = static_cast<int32_t>(count);
      unit.page_begin = seen.begin;
      unit.page_end = seen.end;
      unit.partial = -1;
      (shape == AttentionShape::kDecode ? plan_.decode : plan_.prefill).push_back(unit);
    }
  }

  // The first index in [pages.begin, pages.end) that `reached` holds for, as for all behind it.
  template <class Reached>
  static int32_t FirstThat(PageRange pages, const Reached& reached) {
    while (pages.begin < pages.end) {
      const int32_t middle = pages.begin + (pages.end - pages.begin) / 2;
      if (reached(middle)) {
        pages.end = middle;
      } else {
        pages.begin = middle + 1;
      }
    }
    return pages.begin;
  }

  // The part of `pages`, in ascending order of position, that rows [first, last] may see. Searched,
  // not walked: a million tokens have 16,384 pages, and a step some thousands of units in each
  // layer.
  PageRange Seen(const AttentionItem& item, PageRange pages, int64_t first, int64_t last) const {
    const int64_t lowest = item.positions[first];
    const int64_t highest = item.positions[last];
    const auto page = [&](int32_t i) -> const KvPageView& {
      return item.pages[item.blocks.full ? i : item.blocks.pages[i]];
    };
    if (params_.window > 0) {
      pages.begin = FirstThat(pages, [&](int32_t i) {
        return int64_t{page(i).first_position} + page(i).tokens - 1 > lowest - params_.window;
      });
    }
    pages.end = FirstThat(pages, [&](int32_t i) { return page(i).first_position > highest; });
    return pages;
  }

  // Splits units of one shape where all units together leave multiprocessors idle.
  void ShareOut() {
    const auto units = static_cast<int64_t>(plan_.prefill.size() + plan_.decode.size());
    if (units == 0) return;
    const auto parts = [&](int blocks) {
      return (int64_t{blocks} * multiprocessors_ + units - 1) / units;
    };
    Split(parts(kPrefillBlocks), plan_.prefill);
    launched_merges_ = std::ssize(plan_.merges);
    Split(parts(decode_blocks_), plan_.decode);
    if (params_.shape.dtype == DType::kF32) launched_merges_ = std::ssize(plan_.merges);
  }

  void Split(int64_t most_parts, std::vector<AttentionUnit>& units) {
    const int64_t smallest =
        std::max(1, (kPartTokens + params_.shape.page_tokens - 1) / params_.shape.page_tokens);
    std::vector<AttentionUnit> split;
    for (const AttentionUnit& unit : units) {
      const int64_t pages = unit.page_end - unit.page_begin;
      const int64_t parts = std::min(most_parts, pages / smallest);
      if (parts < 2) {
        split.push_back(unit);
        continue;
      }
      plan_.merges.push_back({unit.item, unit.kv_head, unit.row_begin, unit.row_count,
                              static_cast<int32_t>(plan_.partial_rows),
                              static_cast<int32_t>(parts)});
      plan_.largest_merge = std::max(plan_.largest_merge, unit.row_count);
      for (int64_t p = 0; p < parts; ++p) {
        AttentionUnit part = unit;
        part.page_begin = unit.page_begin + static_cast<int32_t>(pages * p / parts);
        part.page_end = unit.page_begin + static_cast<int32_t>(pages * (p + 1) / parts);
        part.partial = static_cast<int32_t>(plan_.partial_rows);
        part.merge = static_cast<int32_t>(plan_.merges.size()) - 1;
        plan_.partial_rows += unit.row_count;
        split.push_back(part);
      }
    }
    units = std::move(split);
  }

  const AttentionParams& params_;
  const int group_;
  const int dim_;
  const int prefill_rows_;
  const int multiprocessors_;
  const int decode_blocks_;
  const int64_t section_bytes_;
  int64_t launched_merges_ = 0;
  AttentionPlan plan_;
};

}  // namespace

AttentionPlan PlanAttention(const AttentionParams& params, int multiprocessors, int prefill_rows,
                            int decode_blocks, int64_t section_bytes) {
  return Planner(params, multiprocessors, prefill_rows, decode_blocks, section_bytes).Plan();
}

// So many units are shared out among as many parts each, and have so many rows together.
int64_t MostPartialRows(int64_t rows, int unit_rows, int multiprocessors) {
  const int64_t target = int64_t{kMostBlocks} * multiprocessors;
  int64_t most = 0;
  for (int64_t units = 1; units < target; ++units) {
    const int64_t parts = (target + units - 1) / units;
    most = std::max(most, parts * std::min(rows, units * unit_rows));
  }
  return most;
}

}  // namespace annulus::cuda
