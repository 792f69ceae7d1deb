#ifndef ANNULUS_ENGINE_SCHEDULER_PROMPT_LOOKUP_H_
#define ANNULUS_ENGINE_SCHEDULER_PROMPT_LOOKUP_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/state/step_plan.h"

namespace annulus {

// How many tokens to guess ahead, 0 to `most`: the length with the most tokens for the time. A
// guess is right with probability `acceptance` if all before it were. `row_cost`: the time of one
// more row in a step, as a share of the step's. (Leviathan et al., arXiv 2211.17192, section 3.3,
// with guesses that cost nothing themselves.)
int DraftLength(double acceptance, double row_cost, int most);

// Guesses how a sequence goes on: as it did after the same tokens before, in its prompt or its
// answer (prompt lookup; Yang et al., arXiv 2304.04487). How far it guesses follows from how often
// it was right. Where it never is, it rests, and tries a single token now and then: a few percent
// of a row's time in all.
//
// Pure but for what it has learned. One for each sequence; not thread-safe.
class PromptLookup {
 public:
  static constexpr int kMatch = 3;  // equal tokens that a guess needs
  static constexpr int kMostDraft = kMostSampledRows - 1;

  // `most_tokens`: that the sequence can grow to. Takes bytes() of memory at once.
  explicit PromptLookup(int64_t most_tokens);

  // Takes further tokens of the sequence up, `most` of them at a time. `tokens` are the sequence's:
  // prompt and answer so far, which only grow.
  void Read(std::span<const int32_t> tokens, int64_t most);

  // The tokens that may follow, at most min(most, kMostDraft): empty if the last kMatch tokens were
  // not read before, or if a guess would not be worth its time.
  std::vector<int32_t> Draft(std::span<const int32_t> tokens, int most, double row_cost);

  // Of the last draft `drafted` tokens were tried (fewer than it had where a step had no room), and
  // the first `accepted` of these were right.
  void Learn(int drafted, int accepted);

  double acceptance() const { return right_ / tried_; }
  // Of memory for a sequence of so many tokens.
  static int64_t BytesFor(int64_t most_tokens);

 private:
  uint32_t Slot(const int32_t* match) const;
  // Where the sequence went on after its last kMatch tokens; 0: nowhere.
  int64_t Find(std::span<const int32_t> tokens) const;
  int LengthOf(int most, double row_cost);

  std::vector<int32_t> follows_;  // [slot] the position after the last match that has it; 0: none
  int64_t read_ = kMatch;         // matches that end before this position are in `follows_`
  int64_t source_ = 0;            // where the last draft was taken from
  int64_t drafted_at_ = 0;        // tokens that there were then
  // Of the last drafts, later ones counting more. Begins as if it were right half of the time.
  double right_ = 1;
  double tried_ = 2;
  int rest_ = 0;  // chances to be passed over between single tries
  int passed_over_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_PROMPT_LOOKUP_H_
