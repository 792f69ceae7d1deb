#ifndef ANNULUS_ENGINE_RUNNER_CHOICE_SCORE_EXCHANGE_H_
#define ANNULUS_ENGINE_RUNNER_CHOICE_SCORE_EXCHANGE_H_

#include <span>

#include "engine/runner/choice/choice.h"

namespace annulus {

// First half of choosing: sends queries to the ranks that hold the keys, and receives scores of
// blocks. XAttention (arXiv 2503.16428) sends all rows; the other estimators send one pooled row
// per query block. For antidiagonals the holders return masses, after SumExchange has added up
// their sums over the keys of all ranks.
class ScoreExchange {
 public:
  ScoreExchange(const ChoiceContext& context, const ChoiceLayer& layer, std::span<Choice> choices)
      : context_(context), layer_(layer), choices_(choices) {}

  // Fills ChoiceQuery::scores, or masses, for everything that own rows requested.
  absl::Status Run();

  // For choices without a list exchange: tells holders that this rank has read their scores, and
  // waits for the same from the ranks it served. Then ChoiceMessages::layer may be cleared.
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
  absl::Status ScoreKept(const Choice& item, const ChoiceQuery& query, int runner,
                         const ConstMatrixView& rows, std::span<const KvPageView> pages,
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

#endif  // ANNULUS_ENGINE_RUNNER_CHOICE_SCORE_EXCHANGE_H_
