#ifndef ANNULUS_ENGINE_COORDINATOR_ADMISSION_MEMORY_ACCOUNT_H_
#define ANNULUS_ENGINE_COORDINATOR_ADMISSION_MEMORY_ACCOUNT_H_

// How much memory requests take for bookkeeping, besides their pages.

#include <cstdint>

#include "engine/state/sequence.h"

namespace annulus {

// Heap bytes of a waiting request: the ids of its prompt (Request::tokens_to_read).
int64_t WaitingBytes(int64_t prompt_tokens);

// Heap bytes of a running request, besides its pages. Within a few percent for long requests. Does
// not change while the request runs, since room for the whole answer is taken at admission. The sum
// of:
// - the ids of its prompt, as while it waited;
// - the sequence's ids: PlannedTokens;
// - what its sampler remembers for penalties and biases;
// - its page tables, here and on each rank of its ring, and its entries in the page book.
int64_t RunningBytes(const Sequence& sequence, int32_t page_tokens);

// The number of tokens in the prompt and the longest possible answer.
int64_t PlannedTokens(const Sequence& sequence);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_ADMISSION_MEMORY_ACCOUNT_H_
