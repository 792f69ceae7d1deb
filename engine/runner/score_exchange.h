#ifndef ANNULUS_ENGINE_RUNNER_SCORE_EXCHANGE_H_
#define ANNULUS_ENGINE_RUNNER_SCORE_EXCHANGE_H_

#include <span>

#include "engine/runner/choice.h"

namespace annulus {

// Queries travel to the ranks that hold the keys, and scores of blocks come back: first half of
// choosing (XAttention, arXiv 2503.16428, sends all rows; the other estimators one pooled row for
// each query block). What comes back along antidiagonals are masses; before, their sums over the
// keys of all ranks go round (SumExchange).
class ScoreExchange {
 public:
  ScoreExchange(const ChoiceContext& context, const ChoiceLayer& layer, std::span<Choice> choices)
      : context_(context), layer_(layer), choices_(choices) {}

  // Fills ChoiceQuery::scores, or masses, of all that own rows asked.
  absl::Status Run();

  // Where no lists follow: tells holders that their scores have been read, and hears it of own
  // ones. ChoiceMessages::layer may then be emptied.
  absl::Status Acknowledge();

 private:
  absl::Status SendQueries();
  absl::Status ReturnScores();
  size_t SpareBytes() const;
  absl::Status ScoreAntidiagonals(const Choice& item, ChoiceQuery& query, int runner,
                                  const float* rows);
  absl::Status ScoreBlocks(const Choice& item, const ChoiceQuery& query, int runner,
                           const ConstMatrixView& rows, std::vector<KvPageView> pages,
                           std::span<float> scores);
  absl::Status Score(Choice& item, ChoiceQuery& query, int runner, const float* rows);
  absl::Status ScorePages(const Choice& item, const ChoiceQuery& query, const ConstMatrixView& rows,
                          std::span<const KvPageView> pages, std::span<float> scores);
  SummaryPlaces PlacesOf(const ChoosingItem& item) const;
  void Merge(Choice& item, ChoiceQuery& query, int holder, std::span<const float> scores) const;
  size_t AskedFloats(const Choice& item, const ChoiceQuery& query, int holder) const;
  size_t OwedFloats(const Choice& item, const ChoiceQuery& query, int runner) const;

  const ChoiceContext& context_;
  const ChoiceLayer& layer_;
  const std::span<Choice> choices_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_SCORE_EXCHANGE_H_
