#ifndef ANNULUS_ENGINE_RUNNER_SUM_EXCHANGE_H_
#define ANNULUS_ENGINE_RUNNER_SUM_EXCHANGE_H_

#include <span>

#include "engine/runner/choice.h"

namespace annulus {

// Between the two phases of Antidiagonals, in rings of several ranks: each holder's sums go to the
// rank of the rows, which adds them up, and come back to all holders, which then pool. A number for
// each row group and query head each way, whatever the context's length.
class SumExchange {
 public:
  SumExchange(const ChoiceContext& context, const ChoiceLayer& layer, std::span<Choice> choices)
      : context_(context), layer_(layer), choices_(choices) {}

  // Where ChoiceQuery::scored is filled: fills ChoiceQuery::owed of antidiagonals.
  absl::Status Run();

 private:
  // As ForEachQuery, of antidiagonals whose keys several ranks may hold.
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

#endif  // ANNULUS_ENGINE_RUNNER_SUM_EXCHANGE_H_
