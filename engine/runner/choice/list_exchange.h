#ifndef ANNULUS_ENGINE_RUNNER_CHOICE_LIST_EXCHANGE_H_
#define ANNULUS_ENGINE_RUNNER_CHOICE_LIST_EXCHANGE_H_

#include <span>
#include <vector>

#include "engine/runner/choice/choice.h"

namespace annulus {

// Second half of choosing: sends the chosen blocks to the ranks that hold them, as one bit per
// candidate block. The holders then send only those blocks.
class ListExchange {
 public:
  ListExchange(const ChoiceContext& context, const ChoiceLayer& layer,
               std::span<const Choice> choices)
      : context_(context), layer_(layer), choices_(choices) {}

  // Writes ChoiceLayer::shards for all choices. Their patterns must be final.
  absl::Status Run();

 private:
  std::vector<std::byte> Encode(const Choice& item, const std::vector<int32_t>& blocks) const;
  BlockPattern Decode(const Choice& item, int runner, const std::byte* bits) const;
  void PlaceOwnLists(const Choice& item) const;
  void UseLists(const Choice& item, int runner, const BlockPattern& pattern) const;

  const ChoiceContext& context_;
  const ChoiceLayer& layer_;
  const std::span<const Choice> choices_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_CHOICE_LIST_EXCHANGE_H_
