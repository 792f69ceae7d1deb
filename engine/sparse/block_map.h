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

// What to draw: a content-free policy applied to a whole sequence.
struct BlockMapSpec {
  AttentionPolicy policy;
  int64_t tokens = 1;
  int heads = 1;                     // key/value heads
  int cells = 64;                    // most cells on each side
  size_t most_map_bytes = SIZE_MAX;  // limit for all maps together

  static constexpr int64_t kMostTokens = 1 << 30;
  static constexpr int kMostHeads = 1024;
  static constexpr int kMostCells = 1024;
};

// The blocks that each key/value head attends, drawn on squares of side x side cells. Cell r of a
// side contains the blocks b with r = floor(b * side / blocks).
struct BlockMap {
  int32_t blocks = 0;  // in the sequence; the last one may be partial
  int side = 0;        // BlockMapSpec::cells, or the number of blocks if smaller
  struct Head {
    int first_head = 0;
    int head_count = 1;          // how many consecutive heads choose alike
    double density = 1;          // chosen / causal (row, key) pairs; see PairCount
    std::vector<uint8_t> cells;  // [side queries][side keys], chosen / causal blocks, 0..255
  };
  std::vector<Head> heads;
};

// Draws the map in time linear in the chosen blocks and memory linear in the map. Errors:
// - INVALID_ARGUMENT: the policy looks at content, or a number is below 1 or above its limit.
// - OUT_OF_RANGE: more than 2^30 blocks could be chosen; the message has the most tokens that are
//   allowed.
// - RESOURCE_EXHAUSTED: the maps would exceed most_map_bytes; checked before drawing.
// - CANCELLED: `cancel` was set.
absl::StatusOr<BlockMap> DrawBlockMap(const BlockMapSpec& spec,
                                      const CancelFlag& cancel = CancelFlag::Never());

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_BLOCK_MAP_H_
