#ifndef ANNULUS_ENGINE_SPARSE_BLOCK_MAP_H_
#define ANNULUS_ENGINE_SPARSE_BLOCK_MAP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/work_meter.h"
#include "engine/sparse/policy.h"

namespace annulus {

// What to draw: a policy that does not look at content, over a whole sequence.
struct BlockMapSpec {
  AttentionPolicy policy;
  int64_t tokens = 1;
  int heads = 1;                     // of keys and values
  int cells = 64;                    // most on each side
  size_t most_map_bytes = SIZE_MAX;  // of all maps together

  static constexpr int64_t kMostTokens = 1 << 30;
  static constexpr int kMostHeads = 1024;
  static constexpr int kMostCells = 1024;
};

// The blocks that heads of keys and values attend, drawn on squares of side x side cells. Cell r of
// a side holds the blocks b with r = b * side / blocks, rounded down.
struct BlockMap {
  int32_t blocks = 0;  // of the sequence; the last may be cut
  int side = 0;        // BlockMapSpec::cells, or one for each block if those are fewer
  struct Head {
    int first_head = 0;
    int head_count = 1;          // that choose alike
    double density = 1;          // chosen over causal (row, key) pairs; see PairCount
    std::vector<uint8_t> cells;  // [side queries][side keys], chosen over causal blocks, 0..255
  };
  std::vector<Head> heads;
};

// Draws in time linear in the chosen blocks and memory linear in the map. INVALID_ARGUMENT where
// the policy looks at content or a number is below 1 or beyond its bound; OUT_OF_RANGE where more
// than 2^30 blocks could be chosen, with the length that would do; RESOURCE_EXHAUSTED, before
// anything is drawn, for maps of more than most_map_bytes; CANCELLED soon after `cancel` is set.
absl::StatusOr<BlockMap> DrawBlockMap(const BlockMapSpec& spec,
                                      const CancelFlag& cancel = CancelFlag::Never());

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_BLOCK_MAP_H_
