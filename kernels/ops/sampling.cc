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

// Writes read(token) of each allowed token to the beginning of `candidates`, in the order of ids.
template <class Read>
std::span<Candidate> KeepAllowed(std::span<const uint32_t> allowed, std::span<Candidate> candidates,
                                 const Read& read) {
  size_t kept = 0;
  for (size_t word = 0; word < allowed.size(); ++word) {
    for (uint32_t bits = allowed[word]; bits != 0; bits &= bits - 1) {
      candidates[kept++] = read(32 * word + std::countr_zero(bits));
    }
  }
  return candidates.first(kept);
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
  if (how.temperature == 0 && !adjusted && how.allowed.empty()) return greatest;
  std::span<Candidate> candidates = workspace.first(logits.size());
  const auto logit = [&](size_t token) {
    return Candidate{ReadLogit(logits[token]), static_cast<int32_t>(token)};
  };
  if (adjusted || how.allowed.empty()) {
    for (size_t token = 0; token < logits.size(); ++token) candidates[token] = logit(token);
    Adjust(candidates, how);
    if (!how.allowed.empty()) {
      candidates = KeepAllowed(how.allowed, candidates, [&](size_t t) { return candidates[t]; });
    }
  } else {
    candidates = KeepAllowed(how.allowed, candidates, logit);
  }
  const auto usable = [](const Candidate& c) { return c.value > kExcludedLogit; };
  if (std::none_of(candidates.begin(), candidates.end(), usable)) return kAllExcluded;
  return ChooseToken(candidates, how);
}

}  // namespace annulus
