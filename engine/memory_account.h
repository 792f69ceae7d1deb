#ifndef ANNULUS_ENGINE_MEMORY_ACCOUNT_H_
#define ANNULUS_ENGINE_MEMORY_ACCOUNT_H_

// What the coordinator's requests take beside their pages, in bytes of bookkeeping.

#include <cstdint>

#include "engine/state/sequence.h"

namespace annulus {

// Bytes of the heap that a request takes beside its pages, to within a few percent for long ones:
// its ids, once as they were submitted and once with room for the whole answer while it runs, what
// sampling remembers of them, and its page tables here and on each rank of its ring. Foreseen at
// admission: it does not change while the request runs.
int64_t WaitingBytes(int64_t prompt_tokens);
int64_t RunningBytes(const Sequence& sequence, int32_t page_tokens);

// Ids of the prompt and of the longest answer.
int64_t PlannedTokens(const Sequence& sequence);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_ACCOUNT_H_
