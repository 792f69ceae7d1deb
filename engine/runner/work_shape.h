#ifndef ANNULUS_ENGINE_RUNNER_WORK_SHAPE_H_
#define ANNULUS_ENGINE_RUNNER_WORK_SHAPE_H_

#include "engine/runner/rank_set.h"
#include "kernels/ops/workspace.h"

namespace annulus {

// An upper bound on the work that one rank's steps give to the ops of its stream, with two
// exceptions that depend on future requests: a page counts once, however many requests of a step
// read it, and a step that runs as one graph is assumed to have no page lists and no edits of
// logits. If these make arrays longer than planned, the stream does what Stream::UseWorkspace
// describes.
WorkShape WorkShapeOf(const RankModel& model, const RankSetOptions& options,
                      const BackendCapabilities& device);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_WORK_SHAPE_H_
