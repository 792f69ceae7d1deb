#include "engine/scheduler/parking.h"

#include <algorithm>

namespace annulus {

int CountActive(const EngineState& state) {
  return static_cast<int>(std::count_if(state.running.begin(), state.running.end(),
                                        [](const auto& sequence) { return !sequence->paused; }));
}

void UpdatePaused(EngineState& state, const std::function<bool(SequenceId)>& has_room,
                  int max_running) {
  std::vector<Sequence*> returned;
  for (const auto& sequence : state.running) {
    if (!has_room(sequence->id)) {
      sequence->paused = true;
    } else if (sequence->paused) {
      returned.push_back(sequence.get());
    }
  }
  int free = max_running - CountActive(state);
  for (Sequence* sequence : returned) {
    if (free-- <= 0) return;
    sequence->paused = false;
  }
}

}  // namespace annulus
