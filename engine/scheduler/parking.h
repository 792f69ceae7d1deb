#ifndef ANNULUS_ENGINE_SCHEDULER_PARKING_H_
#define ANNULUS_ENGINE_SCHEDULER_PARKING_H_

#include <functional>

#include "engine/state/sequence.h"

namespace annulus {

// The number of sequences that count towards `max_running`: all except paused ones.
int CountActive(const EngineState& state);

// Pauses sequences whose reader is slow. Resumes paused ones whose reader has caught up, the
// earliest admitted first, while fewer than `max_running` are active. A paused sequence keeps its
// pages. `has_room`: whether the reader keeps up (TokenSink::HasRoom); called once for each
// sequence. Call before admitting new requests, so that earlier ones resume first.
void UpdatePaused(EngineState& state, const std::function<bool(SequenceId)>& has_room,
                  int max_running);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_PARKING_H_
