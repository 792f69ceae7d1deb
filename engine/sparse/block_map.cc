#include "engine/sparse/block_map.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/sparse/block_pattern.h"
#include "engine/sparse/dilated.h"
#include "engine/sparse/policy_type.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr double kMostPairs = 1 << 30;     // of blocks, in one map
constexpr int64_t kPairsAtOnce = 1 << 20;  // that a list in the making holds
constexpr double kFull = 255;              // a cell whose causal blocks are all chosen

absl::Status CheckNumber(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " ", value, " is not allowed: ", low, " to ", high));
}

absl::Status Check(const BlockMapSpec& spec) {
  if (TypeOf(spec.policy.kind).append_blocks == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention policy ", PolicyName(spec.policy.kind),
                     " depends on the content, so it has no map without a request; request the "
                     "attention details of one (annulus attention explain)"));
  }
  ANNULUS_RETURN_IF_ERROR(CheckNumber("tokens", spec.tokens, 1, spec.kMostTokens));
  ANNULUS_RETURN_IF_ERROR(CheckNumber("heads", spec.heads, 1, spec.kMostHeads));
  return CheckNumber("cells", spec.cells, 1, spec.kMostCells);
}

// Block lists of one head group, gathered into cells.
class Drawing {
 public:
  Drawing(int32_t blocks, int side)
      : blocks_(blocks), side_(side), chosen_(static_cast<size_t>(side) * side) {}

  int CellOf(int32_t block) const { return static_cast<int>(int64_t{block} * side_ / blocks_); }

  void Add(std::span<const int32_t> keys, int32_t query_block) {
    double* const row = &chosen_[static_cast<size_t>(CellOf(query_block)) * side_];
    for (const int32_t key : keys) ++row[CellOf(key)];
  }

  // A block of which only a share of the pairs is chosen.
  void AddShare(int32_t key, int32_t query_block, double share) {
    chosen_[static_cast<size_t>(CellOf(query_block)) * side_ + CellOf(key)] += share;
  }

  std::vector<uint8_t> Cells() const {
    std::vector<uint8_t> cells(chosen_.size());
    for (int row = 0; row < side_; ++row) {
      for (int column = 0; column <= row; ++column) {
        const size_t cell = static_cast<size_t>(row) * side_ + column;
        const double share = chosen_[cell] / CausalBlocks(row, column);
        // A cell with any attended pair differs from an empty one.
        cells[cell] = static_cast<uint8_t>(std::ceil(share * kFull));
      }
    }
    return cells;
  }

 private:
  int64_t FirstBlock(int cell) const { return (int64_t{cell} * blocks_ + side_ - 1) / side_; }
  double CausalBlocks(int row, int column) const {
    const double rows = static_cast<double>(FirstBlock(row + 1) - FirstBlock(row));
    const double columns = static_cast<double>(FirstBlock(column + 1) - FirstBlock(column));
    return row == column ? rows * (rows + 1) / 2 : rows * columns;
  }

  const int32_t blocks_;
  const int side_;
  std::vector<double> chosen_;
};

// Density of each head group.
absl::StatusOr<std::vector<double>> DrawLists(const BlockMapSpec& spec, const PatternShape& whole,
                                              WorkMeter& work, std::vector<Drawing>& drawings) {
  const AttentionPolicy& policy = spec.policy;
  std::vector<double> pairs(drawings.size());
  const auto slice = static_cast<int32_t>(
      std::clamp<int64_t>(kPairsAtOnce / whole.blocks / whole.head_groups, 1, whole.blocks));
  for (int32_t first = 0; first < whole.blocks; first += slice) {
    const BlockPattern pattern = BuildBlockPattern(
        policy, {whole.head_groups, first, std::min(slice, whole.blocks - first)});
    for (int group = 0; group < whole.head_groups; ++group) {
      for (int32_t block = first; block < first + pattern.shape.blocks; ++block) {
        const std::span<const int32_t> keys = pattern.keys(group, block);
        ANNULUS_RETURN_IF_ERROR(work.Step(static_cast<int64_t>(keys.size()) + 1));
        drawings[group].Add(keys, block);
        const int64_t begin = int64_t{block} * policy.block;
        const auto rows = static_cast<double>(std::min<int64_t>(spec.tokens - begin, policy.block));
        pairs[group] +=
            rows * (rows + 1) / 2 + rows * policy.block * static_cast<double>(keys.size() - 1);
      }
    }
  }
  for (double& count : pairs) count /= DensePairs(0, spec.tokens).causal;
  return pairs;
}

// A branch of rate r keeps one of r rows and one of r keys; of branches that overlap, the densest
// is drawn. All heads look alike, since they differ by single tokens.
absl::StatusOr<std::vector<double>> DrawBranches(const BlockMapSpec& spec, int32_t blocks,
                                                 const std::vector<DilatedBranch>& branches,
                                                 WorkMeter& work, Drawing& drawing) {
  for (int32_t i = 0; i < blocks; ++i) {
    ANNULUS_RETURN_IF_ERROR(work.Step(i + 1));
    for (int32_t j = 0; j <= i; ++j) {
      double share = 0;
      for (const DilatedBranch& branch : branches) {
        const int32_t segment = branch.segment / spec.policy.block;
        if (i / segment != j / segment) continue;
        share = std::max(share, 1.0 / branch.rate / branch.rate);
      }
      drawing.AddShare(j, i, share);
    }
  }
  return std::vector<double>{CountDilatedPairs(branches, spec.heads, 0, spec.tokens).density()};
}

}  // namespace

absl::StatusOr<BlockMap> DrawBlockMap(const BlockMapSpec& asked, const CancelFlag& cancel) {
  ANNULUS_RETURN_IF_ERROR(Check(asked));
  BlockMapSpec spec = asked;
  spec.policy = ResolvePolicy(asked.policy, asked.tokens);
  const PatternShape whole =
      ShapeFor(spec.policy, 0, static_cast<int32_t>(spec.tokens), spec.heads);
  const double most = std::floor(std::sqrt(2 * kMostPairs / whole.head_groups));
  if (whole.blocks > most) {
    return absl::OutOfRangeError(
        absl::StrCat("a sequence of ", spec.tokens, " tokens is not allowed for ",
                     whole.head_groups, " maps in blocks of ", spec.policy.block, ": at most ",
                     static_cast<int64_t>(most) * spec.policy.block,
                     "; draw fewer heads, or use larger blocks"));
  }
  BlockMap map;
  map.blocks = whole.blocks;
  map.side = std::min(spec.cells, whole.blocks);
  const size_t bytes = static_cast<size_t>(whole.head_groups) * static_cast<size_t>(map.side) *
                       static_cast<size_t>(map.side);
  if (bytes > spec.most_map_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        whole.head_groups, " maps of ", map.side, " x ", map.side, " cells take ", bytes,
        " bytes; an answer may have ", spec.most_map_bytes, "; draw fewer heads or cells"));
  }
  std::vector<Drawing> drawings(static_cast<size_t>(whole.head_groups),
                                Drawing(map.blocks, map.side));
  // Every head group chooses kMostPairs blocks together, at most.
  WorkMeter work("the map", 4 * static_cast<int64_t>(kMostPairs), cancel);
  const std::vector<DilatedBranch> branches = DilatedBranches(spec.policy);
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<double> densities,
                           branches.empty()
                               ? DrawLists(spec, whole, work, drawings)
                               : DrawBranches(spec, map.blocks, branches, work, drawings.front()));
  for (int group = 0; group < whole.head_groups; ++group) {
    BlockMap::Head& head = map.heads.emplace_back();
    head.first_head = group;
    head.head_count = whole.head_groups == 1 ? spec.heads : 1;
    head.density = densities[group];
    head.cells = drawings[group].Cells();
  }
  return map;
}

}  // namespace annulus
