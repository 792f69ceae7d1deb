#include "kernels/cuda/tuning/unit_order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cuda/common/page_layout.h"
#include "kernels/cuda/ops.h"

namespace annulus::cuda {
namespace {

int32_t PagesOf(const AttentionUnit& unit) { return unit.page_end - unit.page_begin; }

// The keys and values that units of one item and kv head read.
struct Pair {
  int32_t first_page = std::numeric_limits<int32_t>::max();
  int32_t last_page = 0;  // one past it
  int32_t longest = 0;    // pages of its longest unit
};

size_t PairOf(const AttentionParams& params, const AttentionUnit& unit) {
  return static_cast<size_t>(unit.item) * params.shape.kv_heads + unit.kv_head;
}

std::vector<Pair> PairsOf(const AttentionParams& params, std::span<const AttentionUnit> units) {
  std::vector<Pair> pairs(params.items.size() * params.shape.kv_heads);
  for (const AttentionUnit& unit : units) {
    Pair& pair = pairs[PairOf(params, unit)];
    pair.first_page = std::min(pair.first_page, unit.page_begin);
    pair.last_page = std::max(pair.last_page, unit.page_end);
    pair.longest = std::max(pair.longest, PagesOf(unit));
  }
  return pairs;
}

// One kv head's part of a page, with its scales.
int64_t HeadBytes(const KvPageShape& shape) {
  const PageLayout layout = LayoutOf(shape);
  const int64_t scales = shape.dtype == DType::kI8 ? 2 * int64_t{sizeof(uint16_t)} : 0;
  const int64_t values = int64_t{layout.k_stride} + layout.v_stride;
  return (values * layout.element + scales) * layout.page_tokens;
}

// The section of each pair.
std::vector<int32_t> SectionsOf(const AttentionParams& params, int64_t section_bytes,
                                std::span<const Pair> pairs) {
  std::vector<size_t> order(pairs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return pairs[a].longest > pairs[b].longest; });
  const int64_t head_bytes = HeadBytes(params.shape);
  std::vector<int32_t> sections(pairs.size());
  int32_t section = 0;
  int64_t filled = 0;
  for (const size_t p : order) {
    // Lists of several query blocks may name a page more than once.
    const int64_t named = std::max(pairs[p].last_page - pairs[p].first_page, 0);
    const auto pages = std::ssize(params.items[p / params.shape.kv_heads].pages);
    const int64_t bytes = std::min<int64_t>(named, pages) * head_bytes;
    if (filled > 0 && filled + bytes > section_bytes) {
      ++section;
      filled = 0;
    }
    filled += bytes;
    sections[p] = section;
  }
  return sections;
}

}  // namespace

void SortUnits(const AttentionParams& params, int64_t section_bytes,
               std::span<AttentionUnit> units) {
  const auto longer = [](const AttentionUnit& a, const AttentionUnit& b) {
    return PagesOf(a) > PagesOf(b);
  };
  std::stable_sort(units.begin(), units.end(), longer);
  if (section_bytes == 0 || units.empty()) return;
  const std::vector<int32_t> sections = SectionsOf(params, section_bytes, PairsOf(params, units));
  std::stable_sort(units.begin(), units.end(), [&](const AttentionUnit& a, const AttentionUnit& b) {
    return sections[PairOf(params, a)] < sections[PairOf(params, b)];
  });
}

}  // namespace annulus::cuda
