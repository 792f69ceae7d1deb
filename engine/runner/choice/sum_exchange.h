#ifndef ANNULUS_ENGINE_RUNNER_CHOICE_SUM_EXCHANGE_H_
#define ANNULUS_ENGINE_RUNNER_CHOICE_SUM_EXCHANGE_H_

#include <span>

#include "engine/runner/choice/choice.h"

namespace annulus {

// Runs between the two phases of Antidiagonals in rings of several ranks: each holder sends its
// sums to the rank that runs the rows, which adds them up and returns the totals to all holders;
// these then compute masses. One number per row group and query head in each direction, whatever
// the context's length.
class SumExchange {
 public:
  SumExchange(const ChoiceContext& context, const ChoiceLayer& layer, std::span<Choice> choices)
      : context_(context), layer_(layer), choices_(choices) {}

  // Requires ChoiceQuery::scored. Fills ChoiceQuery::owed of queries along antidiagonals.
  absl::Status Run();

 private:
  // Like ForEachQuery, but only for antidiagonals whose keys may be on several ranks.
  template <class Visit>
  void ForEachSummed(int peer, const Visit& visit);
  absl::Status ReturnSums();
  absl::Status SendSums();
  absl::Status AddSums(const Choice& item, ChoiceQuery& query, std::span<const float> sums);
  absl::Status PoolOwed(const Choice& item, ChoiceQuery& query, int runner, const float* sums);

  const ChoiceContext& context_;
  const ChoiceLayer& layer_;
  const std::span<Choice> choices_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_CHOICE_SUM_EXCHANGE_H_
