#ifndef ANNULUS_ENGINE_RUNNER_BLOCK_CHOOSER_H_
#define ANNULUS_ENGINE_RUNNER_BLOCK_CHOOSER_H_

#include <span>
#include <vector>

#include "engine/runner/choice.h"

namespace annulus {

// Settles the block lists of a layer on all ranks of each item's ring: scores come from the ranks
// that hold the keys (ScoreExchange), each rank chooses for its own rows, the ranks agree on the
// contract, and lists go to the holders (ListExchange).
//
// The contract (AttentionPolicy::coverage): 16 seeded rows are scored exactly, block by block. All
// ranks add up what they would cover under a ladder of ever larger tau, and take the first that is
// enough for the mean over rows and heads; the last step of the ladder is all blocks.
class BlockChooser {
 public:
  explicit BlockChooser(const ChoiceContext& context) : context_(context) {}

  // `choosing`: ascending item; those beyond layer.items are left out. Appends what was chosen for
  // own rows to `report`.
  absl::Status Run(const ChoiceLayer& layer, std::span<const ChoosingItem> choosing,
                   std::vector<LayerAttention>& report);

 private:
  class LayerChoice;

  const ChoiceContext context_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_BLOCK_CHOOSER_H_
