#ifndef ANNULUS_ENGINE_COORDINATOR_DRAFT_AHEAD_H_
#define ANNULUS_ENGINE_COORDINATOR_DRAFT_AHEAD_H_

#include "engine/coordinator/ledger.h"
#include "engine/coordinator/serving.h"

namespace annulus {

// Guesses how the sequences that decode go on, if their requests want that, and sets
// Sequence::draft. Call before a step is planned. Those that are not in that step get the same
// draft for a later one.
void DraftAhead(Ledger& ledger, const Serving& serving);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_DRAFT_AHEAD_H_
