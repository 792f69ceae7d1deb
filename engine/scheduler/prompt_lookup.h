#ifndef ANNULUS_ENGINE_SCHEDULER_PROMPT_LOOKUP_H_
#define ANNULUS_ENGINE_SCHEDULER_PROMPT_LOOKUP_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/state/step_plan.h"

namespace annulus {

// How many tokens to guess ahead, 0 to `most`: the length that yields the most tokens per unit of
// time. `acceptance`: probability that a guess is right if all before it were. `row_cost`: time of
// one more row in a step, as a fraction of the step's time. (Leviathan et al., arXiv 2211.17192,
// section 3.3, with guesses that cost nothing.)
int DraftLength(double acceptance, double row_cost, int most);

// Guesses the continuation of a sequence: what followed the same tokens earlier in its prompt or
// answer (prompt lookup; Yang et al., arXiv 2304.04487). The more often guesses were right, the
// further it guesses. If they never are, it rests and tries a single token now and then, which
// costs a few percent of a row's time in total.
//
// Deterministic. One instance per sequence; not thread-safe.
class PromptLookup {
 public:
  static constexpr int kMatch = 3;  // how many equal tokens a guess needs
  static constexpr int kMostDraft = kMostSampledRows - 1;

  // `most_tokens`: the length the sequence can grow to. Allocates BytesFor(most_tokens) at once.
  explicit PromptLookup(int64_t most_tokens);

  // Indexes further tokens of the sequence, at most `most` per call. `tokens`: the prompt and the
  // answer so far; may only grow.
  void Read(std::span<const int32_t> tokens, int64_t most);

  // Returns the tokens that may follow, at most min(most, kMostDraft). Empty if the last kMatch
  // tokens have not occurred before, or if a guess is not worth its time. If it is asked again
  // before the sequence has grown, because no step has tried the draft yet, it returns the same
  // tokens and counts nothing twice.
  std::vector<int32_t> Draft(std::span<const int32_t> tokens, int most, double row_cost);

  // Reports that `drafted` tokens of the last draft were tried (fewer than Draft returned if a step
  // had no room for all), and that the first `accepted` of them were right.
  void Learn(int drafted, int accepted);

  double acceptance() const { return right_ / tried_; }
  // Bytes of memory for a sequence of at most `most_tokens` tokens.
  static int64_t BytesFor(int64_t most_tokens);

 private:
  uint32_t Slot(const int32_t* match) const;
  // The position that followed an earlier occurrence of the last kMatch tokens; 0: none.
  int64_t Find(std::span<const int32_t> tokens) const;
  int LengthOf(int most, double row_cost);

  std::vector<int32_t> follows_;  // [slot] the position after its last match; 0: none
  int64_t read_ = kMatch;         // matches that end before this position are indexed
  int64_t source_ = 0;            // the position the last draft was copied from
  int64_t drafted_at_ = 0;        // number of tokens at that time
  // Moving counts over recent drafts, newer ones weighted more. Start as if half were right.
  double right_ = 1;
  double tried_ = 2;
  int rest_ = 0;  // opportunities to skip between single tries
  int passed_over_ = 0;
  int64_t weighed_at_ = 0;  // number of tokens when LengthOf was asked last, and what it said
  int weighed_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_PROMPT_LOOKUP_H_
