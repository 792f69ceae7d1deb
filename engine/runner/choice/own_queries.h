#ifndef ANNULUS_ENGINE_RUNNER_CHOICE_OWN_QUERIES_H_
#define ANNULUS_ENGINE_RUNNER_CHOICE_OWN_QUERIES_H_

#include "engine/runner/choice/choice.h"

namespace annulus {

// Fills ChoiceQuery::own with all own rows, some of them, or the mean of each query block. Unless
// it is all rows, they are copied into `context.messages`; read them only after the stream has
// reached this point.
absl::Status TakeOwnQueries(const ChoiceContext& context, const ChoiceLayer& layer,
                            const Choice& item, ChoiceQuery& query);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_CHOICE_OWN_QUERIES_H_
