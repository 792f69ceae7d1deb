#ifndef ANNULUS_ENGINE_COORDINATOR_MEMORY_ACCOUNT_H_
#define ANNULUS_ENGINE_COORDINATOR_MEMORY_ACCOUNT_H_

// Bytes of bookkeeping that the coordinator's requests take besides their pages.

#include <cstdint>

#include "engine/state/sequence.h"

namespace annulus {

// Bytes of the heap that a request takes besides its pages, exact to a few percent for long ones:
// its ids as they were submitted, after a preemption with the answer so far; while it runs, its ids
// again with room for the whole answer, what sampling remembers of them, and its page tables here
// and on each rank of its ring. Computed for admission: the number does not change while the
// request runs.
int64_t WaitingBytes(int64_t prompt_tokens);
int64_t RunningBytes(const Sequence& sequence, int32_t page_tokens);

// Ids of the prompt and of the longest answer.
int64_t PlannedTokens(const Sequence& sequence);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_MEMORY_ACCOUNT_H_
