#ifndef ANNULUS_ENGINE_ENGINE_REPORT_H_
#define ANNULUS_ENGINE_ENGINE_REPORT_H_

#include "engine/api/load.h"
#include "engine/engine_parts.h"

// What a running engine says of itself. Both may be called on any thread; all figures of one call
// are of one moment, so that they add up.

namespace annulus {

// For Engine::Load.
EngineLoad LoadOf(const EngineParts& parts);

// For Engine::Report: brings those of the engine's metrics up to date that show a state.
EngineReport ReportOf(const EngineParts& parts);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_ENGINE_REPORT_H_
