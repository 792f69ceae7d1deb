#include "kernels/ops/block_scores.h"

namespace annulus {

std::vector<RowGroup> RowGroups(std::span<const int32_t> positions, int32_t stride) {
  std::vector<RowGroup> groups;
  for (size_t r = 0; r < positions.size(); ++r) {
    const int32_t tile = positions[r] / stride;
    const bool next = stride > 1 && !groups.empty() && groups.back().tile == tile;
    if (!next) groups.push_back({static_cast<int32_t>(r), 0, tile, 0});
    ++groups.back().count;
    groups.back().slots |= 1u << MeetingSlot(positions[r], stride);
  }
  return groups;
}

int64_t CountRowGroups(std::span<const int32_t> positions, int32_t stride) {
  int64_t groups = 0;
  for (size_t r = 0; r < positions.size(); ++r) {
    if (r == 0 || positions[r] / stride != positions[r - 1] / stride || stride == 1) ++groups;
  }
  return groups;
}

int64_t CountBlocks(std::span<const KvPageView> pages, int32_t block_tokens) {
  int64_t blocks = 0;
  for (size_t p = 0; p < pages.size(); ++p) {
    const int32_t block = pages[p].first_position / block_tokens;
    if (p == 0 || block != pages[p - 1].first_position / block_tokens) ++blocks;
  }
  return blocks;
}

}  // namespace annulus
