#ifndef ANNULUS_ENGINE_SCHEDULER_QUANTUM_H_
#define ANNULUS_ENGINE_SCHEDULER_QUANTUM_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/scheduler/placement.h"
#include "engine/scheduler/step_cost.h"

namespace annulus {

// A prompt that could continue in the next step.
struct PromptState {
  SequenceId sequence = 0;
  int32_t computed = 0;
  int32_t prompt_length = 0;
  RowAttention attention = AttentionClass::kDense;
  int degree = 1;
  // The end of its suspended chunk, and how many layers of that have run. 0: none is suspended.
  int32_t suspended_end = 0;
  int32_t layers_done = 0;
};

// The rows of a stream in the next step: its next one, and those of the tokens that are guessed
// after it.
struct StreamRows {
  int32_t position = 0;  // of the first
  int32_t rows = 1;
};

// How far a prompt may advance in the next step.
struct PrefillTurn {
  SequenceId sequence = 0;
  int32_t end = 0;

  bool operator==(const PrefillTurn&) const = default;
};

// The next layers of a chunk that is suspended between layers: from the first, or from where the
// sequence's suspended chunk stands, to `end_layer`.
struct StretchTurn {
  SequenceId sequence = 0;
  int32_t end = 0;  // of the chunk; fixed when it begins
  int32_t end_layer = 0;
};

// What prompts do in the next step. With a stretch, the step has nothing else in it; without, it
// has the streams and `turns`.
struct StepChoice {
  std::vector<PrefillTurn> turns;
  std::optional<StretchTurn> stretch;
};

// Beside streams, a chunk is at most as large as so many stretches have time for, unless even a
// page needs more; since layers are whole, it may be cut into a few more. Bounds how long a chunk
// takes, and so how long other prompts wait that do not fit between its stretches, and how much is
// lost if its request is cancelled.
inline constexpr int kMostStretches = 8;

// About the most rows of a suspended chunk, for which ranks keep memory
// (PlanLimits::suspended_rows_per_rank). Beside streams it has kMostStretches stretches, and each
// has time for less than a page, or nothing would be suspended; alone, more than 512 rows at once
// are hardly read faster (bench/results/by-hand.md).
constexpr int SuspendedRows(int page_tokens) { return std::max(kMostStretches * page_tokens, 512); }

// The most rows of a step that are scored (RowAttention::scored), unless a page has more; a page
// until a step had some. The head of the model is not cut as layers are: all streams wait until it
// is done with them.
inline constexpr int64_t kMostScoredRows = 256;

struct QuantumLimits {
  double seconds = 0;     // longest time of the step; 0: unlimited
  int64_t most_rows = 0;  // of all prompts together; 0: unlimited
};

// Chooses which prompts continue in the next step, and how far: in the order given, as many rows as
// fit into the time and, of those that are scored, kMostScoredRows. `rest`: all other work of the
// step, including kStep. Chunks end at a page end, after whole rounds of the ring if possible, or
// at the prompt's end. Empty if not even one page of the first prompt fits.
std::vector<PrefillTurn> SolveQuantum(std::span<const PromptState> prompts, const StepWork& rest,
                                      const StepCostModel& costs, const QuantumLimits& limits,
                                      const PlanLimits& plan);

// Sizes steps to keep the stall budget: the longest time that a stream should wait between two
// tokens. A stream is a request whose answer is being generated. If not even one page of a prompt
// fits into a step, the prompt's chunk is suspended between layers, and streams run between its
// stretches. Steps end within half a second in any case, unless
// the streams alone take longer. If there are no streams, stretches end
// sooner, and a chunk is suspended too if it can be larger so. Not thread-safe.
class StepPacer {
 public:
  // If `stall_seconds` is 0, steps are as large as `plan` allows.
  StepPacer(double stall_seconds, const PlanLimits& plan);

  // Returns what prompts do in the next step. `prompts`: in serving order; at most one has a
  // suspended chunk. `streams`: the rows of all streams, which run in any case unless a stretch is
  // returned. `after_stretch`: whether the last step was a stretch; if so, and there are streams,
  // prompts do nothing.
  //
  // While a chunk is suspended, prompts before its own in serving order still go first if they fit
  // into a step; without streams, unless they are done sooner if they wait for the chunk. As long
  // as no prompt rows have been timed, one layer of a page runs alone, to learn how long a page
  // takes.
  StepChoice Next(std::span<const PromptState> prompts, std::span<const StreamRows> streams,
                  bool after_stretch) const;

  // Learns from a finished step. `attention`: as for WorkOf. `streams`: how many of its sampled
  // sequences already had a token before. A stretch counts as its layers' part of a whole step
  // (PartOf); this ignores that only one stretch of a chunk has the embedding, and only one has the
  // head.
  void Took(const StepPlan& plan, std::span<const RowAttention> attention, int streams,
            double seconds);

  // Predicted seconds that prompt rows [begin, end) add to a step. A guess before the first step.
  double PromptSeconds(const PromptState& prompt, int32_t begin, int32_t end) const;
  // The same for these layers alone. Like Took, counts each layer by PlanLimits::layer_costs.
  double PromptSeconds(const PromptState& prompt, int32_t begin, int32_t end,
                       const Stretch& layers) const;
  // Predicted seconds that every step takes besides its rows.
  double StepSeconds() const;
  // The part of StepSeconds that these layers take, 0 to 1.
  double StepPart(const Stretch& layers) const;
  // StepSeconds of all steps until the prompt is computed, if its chunks take about as long as the
  // next one, which Next would choose if it were the only prompt, together with these rows of
  // streams.
  double StepSecondsLeft(const PromptState& prompt, std::span<const StreamRows> streams) const;

  // Predicted seconds until the prompt is computed, in the chunks that Next would choose if it
  // were the only prompt, together with these rows of streams. Evaluates the cost at kLooks points
  // of the prompt. 0 before the first step.
  static constexpr int kLooks = 16;
  double SecondsBeside(PromptState prompt, std::span<const StreamRows> streams) const;

  const StepCostModel& costs() const { return costs_; }
  // Predicted seconds of the smallest part of a prompt that a step can have, at the previous step's
  // depth, including what every step takes: one layer of one page, or all layers of it if chunks
  // are not suspended. If this exceeds the stall budget, the budget cannot be kept.
  double smallest_chunk_seconds() const { return smallest_; }

 private:
  // A step whose prompts are not chosen yet.
  struct Room {
    StepWork rest;  // its other work: kStep and the streams' rows
    QuantumLimits limits;
    bool streams = false;  // whether there are streams
  };
  // The end of a prompt's next chunk, and all other work of the steps until it is computed.
  struct Pace {
    int32_t end = 0;
    StepWork beside;
  };
  Pace PaceOf(const PromptState& prompt, const Room& room) const;
  Room RoomBeside(std::span<const StreamRows> streams) const;
  // The same if the prompt is the only one.
  Room RoomFor(const PromptState& prompt, std::span<const StreamRows> streams) const;
  double StallBeside(const Room& room) const;
  bool CanSuspend(const Room& room) const;
  bool MaySuspend(const PromptState& prompt, const Room& room) const;
  bool GainsIfSuspended(const PromptState& prompt, int32_t end, const Room& room) const;
  double WithMargin(double seconds) const { return seconds / (1 + costs_.margin()); }
  double StretchSeconds(const Room& room) const;
  // Of the work of a whole step, that of the layers [first, end).
  StepWork PartOf(const StepWork& work, int first, int end) const;
  // The work of a step that has nothing but this prompt's rows up to `end`.
  StepWork ChunkWork(const PromptState& prompt, int32_t end) const;
  int Cut(const StepWork& work, int first, double wanted, double most) const;
  int StretchesFrom(const StepWork& work, int first, double most) const;
  // Predicted seconds of the layer that takes longest.
  double LongestLayer(const StepWork& work) const;
  int32_t SuspendedEnd(const PromptState& prompt, const Room& room) const;
  int64_t ScoredWithin(const PromptState& prompt, double seconds) const;
  StretchTurn Stretched(const PromptState& prompt, int32_t end, const Room& room) const;
  std::vector<PrefillTurn> TurnsAhead(std::span<const PromptState> ahead,
                                      const PromptState& suspended, const Room& room) const;
  bool GainsByWaiting(const PromptState& prompt, int32_t end, const PromptState& suspended,
                      const Room& room) const;

  const double stall_;
  const PlanLimits plan_;
  // [layer]: the part of a step that the layers before it take. One element more than layers.
  std::vector<LayerCost> before_;
  double longest_ = 0;  // the largest part that one layer has, of rows or of pairs
  StepCostModel costs_;
  // The most prompt rows of any step so far: [0] without, [1] with streams. The next step has at
  // most twice as many, so that no stream waits for a size that was never tried.
  std::array<int64_t, 2> tried_{};
  double smallest_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_QUANTUM_H_
