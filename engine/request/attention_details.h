#ifndef ANNULUS_ENGINE_REQUEST_ATTENTION_DETAILS_H_
#define ANNULUS_ENGINE_REQUEST_ATTENTION_DETAILS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "engine/api/result.h"
#include "engine/state/step_plan.h"

namespace annulus {

// Collects what each layer and key/value head of one request chose, from the lists that ranks
// report, for AttentionReport::details. "The map" is AttentionDetail::map, "the prompt" the prompt
// as submitted; answer rows count in densities but are not drawn.
//
// Adding a part takes time linear in its rows and lists. Where everything is attended, whole ranges
// of blocks are added for each cell of the map, so a long prompt takes no longer than a short one.
class AttentionDetails {
 public:
  // `heads`: query heads, a multiple of `kv_heads`. `block_tokens`: the policy's block.
  AttentionDetails(int heads, int kv_heads, int64_t prompt_tokens, int32_t block_tokens)
      : heads_(heads),
        kv_heads_(kv_heads),
        prompt_tokens_(prompt_tokens),
        block_tokens_(block_tokens) {}

  // Adds what one rank did in one layer and step. Ignores a part whose lists have blocks of another
  // size.
  void Add(const LayerAttention& part);

  // Returns the details by layer, then kv head, of the layers that were added.
  std::vector<AttentionDetail> Make() const;

 private:
  struct Head {
    PairCount pairs;
    double covered = 0;
    double samples = 0;
    std::vector<float> cells;  // chosen (row, block) pairs in each cell of the map
  };
  struct Layer {
    std::vector<Head> heads;
    double estimated = 0;
    double estimates = 0;
    std::vector<float> cells;  // all causal (row, block) pairs
    std::vector<float> rows;   // prompt rows computed, in each row of the map
  };
  // A range of cells along a side of the map. A block longer than a cell covers several.
  struct Cells {
    int begin = 0;
    int end = 0;
  };

  // The cells that a block of the prompt covers. If blocks are shorter than cells, several blocks
  // share a cell.
  Cells CellsOf(int32_t block) const;
  // The first block after `first` that begins in another cell; at most `end`.
  int32_t EndOfRun(int32_t first, int32_t end) const;
  // For each of the key blocks [first, end), adds `value` to every causal cell of that block and
  // `query_block`. Takes at most as many steps as a map has cells, however many blocks there are.
  void AddRange(int32_t query_block, int32_t first, int32_t end, double value,
                std::vector<float>& cells) const;
  // [kSide] How many tokens of the prompt each row of the map has, counted as in Layer::rows.
  std::vector<float> RowTokens() const;
  // These add `rows`, positions in one query block: what they chose by lists (null: everything) or
  // by branches, and all causal pairs.
  void AddRows(int32_t query_block, std::span<const int32_t> rows, const BlockPattern* lists,
               Layer& layer) const;
  void AddDilated(int32_t query_block, std::span<const int32_t> rows,
                  std::span<const DilatedBranch> branches, Layer& layer) const;
  void AddCausal(int32_t query_block, std::span<const int32_t> rows, Layer& layer) const;
  // Whether the block is part of the map.
  bool Draws(int32_t query_block) const {
    return int64_t{query_block} * block_tokens_ < prompt_tokens_;
  }

  const int heads_;
  const int kv_heads_;
  const int64_t prompt_tokens_;
  const int32_t block_tokens_;
  std::map<int32_t, Layer> layers_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_REQUEST_ATTENTION_DETAILS_H_
