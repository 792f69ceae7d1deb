#include "engine/scheduler/answer_length.h"

#include <algorithm>
#include <cmath>

namespace annulus {

void AnswerLength::Learn(int64_t tokens) {
  const auto length = static_cast<double>(tokens);
  if (answers_++ == 0) {
    mean_ = length;
    deviation_ = length / 2;
    return;
  }
  const double error = length - mean_;
  mean_ += error / 8;
  deviation_ += (std::abs(error) - deviation_) / 4;
}

int64_t AnswerLength::Expect(int64_t min_tokens, int64_t max_tokens, int64_t so_far) const {
  if (answers_ < kLeastAnswers) return max_tokens;
  const auto typical = static_cast<int64_t>(std::ceil(mean_ + deviation_));
  const int64_t outgrown = so_far + so_far / 4 + 1;
  return std::min(max_tokens, std::max({min_tokens, typical, outgrown}));
}

}  // namespace annulus
