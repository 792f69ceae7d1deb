#ifndef ANNULUS_ENGINE_RUNNER_OWN_QUERIES_H_
#define ANNULUS_ENGINE_RUNNER_OWN_QUERIES_H_

#include "engine/runner/choice.h"

namespace annulus {

// Fills ChoiceQuery::own: all own rows, some of them, or the mean of each query block. Rows that
// are not all of them are copied to `context.messages`; read them after the stream.
absl::Status TakeOwnQueries(const ChoiceContext& context, const ChoiceLayer& layer,
                            const Choice& item, ChoiceQuery& query);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_OWN_QUERIES_H_
