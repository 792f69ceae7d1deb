#ifndef ANNULUS_ENGINE_RUNNER_WORK_SHAPE_H_
#define ANNULUS_ENGINE_RUNNER_WORK_SHAPE_H_

#include "engine/runner/rank_set.h"
#include "kernels/ops/workspace.h"

namespace annulus {

// What steps of one rank ask of its stream's ops at most. With two exceptions, as what they take
// depends on requests that are not there yet: pages count once, however many requests of a step
// read the same, and a step that is held as a whole has neither lists of pages nor edits of logits.
// Then arrays may be longer than was planned, and the stream does what Stream::UseWorkspace says.
WorkShape WorkShapeOf(const RankModel& model, const RankSetOptions& options,
                      const BackendCapabilities& device);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_WORK_SHAPE_H_
