#ifndef ANNULUS_ENGINE_RUNNER_BLOCK_CHOOSER_H_
#define ANNULUS_ENGINE_RUNNER_BLOCK_CHOOSER_H_

#include <span>
#include <vector>

#include "engine/runner/choice.h"

namespace annulus {

// Chooses the blocks that each item attends in a layer, on all ranks of the item's ring: the ranks
// that hold keys return scores (ScoreExchange), each rank chooses blocks for its own rows, the
// ranks agree on the contract, and the lists go to the ranks that hold the blocks (ListExchange).
//
// The contract (AttentionPolicy::coverage): 16 seeded rows are scored exactly, block by block. The
// ranks sum the coverage that each value in a ladder of increasing tau would reach, and take the
// first value whose mean over rows and heads is sufficient. The last rung is all blocks.
class BlockChooser {
 public:
  explicit BlockChooser(const ChoiceContext& context) : context_(context) {}

  // `choosing`: ascending by item; entries beyond layer.items are ignored. Appends what own rows
  // chose to `report`.
  absl::Status Run(const ChoiceLayer& layer, std::span<const ChoosingItem> choosing,
                   std::vector<LayerAttention>& report);

 private:
  class LayerChoice;

  const ChoiceContext context_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_BLOCK_CHOOSER_H_
