#ifndef ANNULUS_ENGINE_SCHEDULER_PROMPT_PACE_H_
#define ANNULUS_ENGINE_SCHEDULER_PROMPT_PACE_H_

#include <algorithm>

namespace annulus {

// How much longer prompts take now than alone: streams have rows in their steps, and steps of their
// own in between. A mean over about the last 20 steps. Plain data.
class PromptPace {
 public:
  // A step took `seconds` while a prompt was being computed. `alone`: how long the step's rows of
  // prompts were predicted to take alone.
  void Learn(double seconds, double alone) {
    seconds_ = kForget * seconds_ + seconds;
    alone_ = kForget * alone_ + alone;
  }

  // Seconds that prompts take for each second that they take alone; 1 to 4.
  double slowed() const { return alone_ > 0 ? std::clamp(seconds_ / alone_, 1.0, kMost) : 1; }

 private:
  static constexpr double kForget = 0.95;
  static constexpr double kMost = 4;

  double seconds_ = 0;
  double alone_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_PROMPT_PACE_H_
