#ifndef ANNULUS_ENGINE_SCHEDULER_ANSWER_LENGTH_H_
#define ANNULUS_ENGINE_SCHEDULER_ANSWER_LENGTH_H_

#include <cstdint>

namespace annulus {

// Estimates how many tokens answers take, from those that have ended.
//
// The estimate is the mean of past answers plus their mean absolute deviation, as TCP estimates
// round trips (Jacobson, SIGCOMM 1988, with one deviation instead of four). New answers weigh an
// eighth in the mean and a quarter in the deviation. An answer that has outgrown the estimate is
// expected to grow by another quarter. Before kLeastAnswers answers have ended, every answer is
// expected to take max_tokens.
//
// Bounds: never less than min_tokens or than one more token, never more than max_tokens. Too low an
// estimate costs preemptions, never an answer. Plain data.
class AnswerLength {
 public:
  static constexpr int kLeastAnswers = 8;

  // Records that an answer is complete: it ended the text, met a stop, or reached max_tokens.
  void Learn(int64_t tokens);

  // Tokens that an answer is expected to have in the end, if it has `so_far` < max_tokens now.
  int64_t Expect(int64_t min_tokens, int64_t max_tokens, int64_t so_far) const;

 private:
  int64_t answers_ = 0;
  double mean_ = 0;
  double deviation_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_ANSWER_LENGTH_H_
