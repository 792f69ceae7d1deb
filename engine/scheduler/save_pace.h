#ifndef ANNULUS_ENGINE_SCHEDULER_SAVE_PACE_H_
#define ANNULUS_ENGINE_SCHEDULER_SAVE_PACE_H_

#include <cstdint>
#include <deque>
#include <optional>

#include "engine/base/steady_time.h"

namespace annulus {

// Keeps a prompt at most kMostChunks finished chunks ahead of the disk that saves them: the next
// chunk waits while that many are unsaved. So a kill loses no more than those and the chunk under
// way.
//
// A disk may be slower than computing, or hang, so the waits are bounded: all waits of a prompt
// together never exceed kMostSeconds plus kMostShare of the time since its first chunk ended. Once
// they do, the prompt goes on and the disk falls behind.
//
// One object per prompt. Time is a parameter that never goes back. Not thread-safe.
class SavePace {
 public:
  static constexpr int kMostChunks = 2;
  static constexpr double kMostSeconds = 0.25;
  static constexpr double kMostShare = 0.1;

  // A chunk has ended: all positions below `end` are computed. Ends ascend.
  void Computed(int32_t end, SteadyTime now);
  // All positions below `end` are saved, or never will be, so that waiting for them is pointless.
  void Saved(int32_t end);

  // Returns whether the next chunk must wait. If so, the time until the next call counts as waited.
  bool Waits(SteadyTime now);
  // If the last call of Waits returned true: when that wait ends even if nothing is saved.
  // Otherwise nothing.
  std::optional<SteadyTime> due() const { return due_; }
  // Seconds of all waits that have ended.
  double waited() const { return waited_; }

 private:
  std::deque<int32_t> unsaved_;      // ends of finished chunks, ascending
  std::optional<SteadyTime> begun_;  // when the first chunk ended
  SteadyTime since_{};               // when the wait began
  std::optional<SteadyTime> due_;    // of that wait
  double waited_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_SAVE_PACE_H_
