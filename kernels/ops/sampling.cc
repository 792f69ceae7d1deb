#include "kernels/ops/sampling.h"

#include <algorithm>
#include <bit>

namespace annulus {
namespace {

void Adjust(std::span<Candidate> logits, const SampleRow& how) {
  for (const LogitEdit& edit : how.edits) {
    float& logit = logits[edit.token].value;
    logit = AdjustedLogit(logit, edit, how.penalties);
  }
  for (size_t word = 0; word < how.seen.size(); ++word) {
    for (uint32_t bits = how.seen[word]; bits != 0; bits &= bits - 1) {
      float& logit = logits[32 * word + std::countr_zero(bits)].value;
      logit = AdjustedLogit(logit, {.count = 0}, how.penalties);
    }
  }
}

}  // namespace

int32_t ChooseToken(std::span<Candidate> candidates, const SampleRow& how) {
  if (how.temperature == 0) {
    return std::min_element(candidates.begin(), candidates.end(), Before)->token;
  }
  ToWeights(candidates, how.temperature);
  candidates = KeepTopK(candidates, how.top_k);
  candidates = KeepTopP(candidates, how.top_p);
  candidates = KeepMinP(candidates, how.min_p);
  return Draw(candidates, how.uniform);
}

int32_t ChooseFrom(std::span<const float> logits, const SampleRow& how,
                   std::span<Candidate> workspace) {
  const int32_t greatest = GreatestToken(logits);
  if (greatest < 0) return kNoUsableLogit;
  const bool adjusted = !how.edits.empty() || !how.seen.empty();
  if (how.temperature == 0 && !adjusted) return greatest;
  const std::span<Candidate> candidates = workspace.first(logits.size());
  for (size_t token = 0; token < logits.size(); ++token) {
    candidates[token] = {ReadLogit(logits[token]), static_cast<int32_t>(token)};
  }
  if (adjusted) {
    Adjust(candidates, how);
    const auto usable = [](const Candidate& c) { return c.value > kExcludedLogit; };
    if (std::none_of(candidates.begin(), candidates.end(), usable)) return kAllExcluded;
  }
  return ChooseToken(candidates, how);
}

}  // namespace annulus
