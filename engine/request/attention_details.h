#ifndef ANNULUS_ENGINE_REQUEST_ATTENTION_DETAILS_H_
#define ANNULUS_ENGINE_REQUEST_ATTENTION_DETAILS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "engine/api/result.h"
#include "engine/state/step_plan.h"

namespace annulus {

// Collects what each layer and key/value head of one request chose, from the lists that ranks
// report. Adding a part takes time linear in its rows and lists. Blocks that no list names are
// added by ranges, one cell of the map at a time, so a long prompt whose layers attend all of it
// takes no longer.
class AttentionDetails {
 public:
  // `heads`: a multiple of `kv_heads`.
  AttentionDetails(int heads, int kv_heads, int64_t prompt_tokens, int32_t block_tokens)
      : heads_(heads),
        kv_heads_(kv_heads),
        prompt_tokens_(prompt_tokens),
        block_tokens_(block_tokens) {}

  void Add(const LayerAttention& part);

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
  // A range of cells along a side of the map. A block that is longer than a cell has several.
  struct Cells {
    int begin = 0;
    int end = 0;
  };

  // The cells of a block of the prompt; neighbours share none unless a cell holds several blocks.
  Cells CellsOf(int32_t block) const;
  // The first block after `first`, at most `end`, that begins in another cell. If several blocks
  // begin in one cell, they lie within it.
  int32_t EndOfRun(int32_t first, int32_t end) const;
  // For each of the key blocks [first, end), adds `value` to every causal cell of that block and
  // `query_block`. Takes at most as many steps as a map has cells, however many blocks there are.
  void AddRange(int32_t query_block, int32_t first, int32_t end, double value,
                std::vector<float>& cells) const;
  // Tokens of the prompt in each row of the map, counted as Layer::rows are.
  std::vector<float> RowTokens() const;
  void AddRows(int32_t query_block, std::span<const int32_t> rows, const BlockPattern* lists,
               Layer& layer) const;
  void AddDilated(int32_t query_block, std::span<const int32_t> rows,
                  std::span<const DilatedBranch> branches, Layer& layer) const;
  void AddCausal(int32_t query_block, std::span<const int32_t> rows, Layer& layer) const;
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
