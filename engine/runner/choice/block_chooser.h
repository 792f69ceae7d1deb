#ifndef ANNULUS_ENGINE_RUNNER_CHOICE_BLOCK_CHOOSER_H_
#define ANNULUS_ENGINE_RUNNER_CHOICE_BLOCK_CHOOSER_H_

#include <span>
#include <vector>

#include "engine/runner/choice/choice.h"

namespace annulus {

// Chooses the blocks that each item attends in a layer. Runs on all ranks of the item's ring: ranks
// that hold keys return scores (ScoreExchange), each rank chooses blocks for the rows it computes,
// the ranks agree on a tau, and the lists go to the ranks that hold the blocks (ListExchange).
//
// Agreeing on a tau is how AttentionPolicy::coverage is kept: 16 seeded rows are scored exactly,
// block by block; the ranks tell each other what each of several increasing values of tau would
// cover of each row, and take the first value whose mean over rows and heads is enough. The last:
// all blocks. Every rank adds up all rows in the order of positions. Sums in another order can
// differ in their last bits, and then ranks could take different values.
class BlockChooser {
 public:
  explicit BlockChooser(const ChoiceContext& context) : context_(context) {}

  // Writes the chosen blocks to layer.shards. `choosing` ascends by item; those beyond layer.items
  // are ignored. Appends to `report` what was chosen for the rows that this rank computes.
  absl::Status Run(const ChoiceLayer& layer, std::span<const ChoosingItem> choosing,
                   std::vector<LayerAttention>& report);

 private:
  class LayerChoice;

  const ChoiceContext context_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_CHOICE_BLOCK_CHOOSER_H_
