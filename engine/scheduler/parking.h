#ifndef ANNULUS_ENGINE_SCHEDULER_PARKING_H_
#define ANNULUS_ENGINE_SCHEDULER_PARKING_H_

#include <functional>

#include "engine/state/sequence.h"

namespace annulus {

// Sequences that hold one of the slots that `max_running` counts: all but the paused.
int CountActive(const EngineState& state);

// Pauses the sequences whose reader is behind, which gives their slots away, and lets paused ones
// go on whose reader has room again while fewer than `max_running` are active, the earliest
// admitted first. A paused sequence keeps its pages. Call it before new requests are admitted: what
// was admitted earlier goes first.
void UpdatePaused(EngineState& state, const std::function<bool(SequenceId)>& has_room,
                  int max_running);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_PARKING_H_
