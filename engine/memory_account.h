#ifndef ANNULUS_ENGINE_MEMORY_ACCOUNT_H_
#define ANNULUS_ENGINE_MEMORY_ACCOUNT_H_

// What the coordinator's requests and cached prefixes hold, in pages and in bytes of bookkeeping.

#include <cstdint>
#include <vector>

#include "engine/memory/prefix_index.h"
#include "engine/runner/rank_set.h"
#include "engine/scheduler/placement.h"
#include "engine/state/sequence.h"

namespace annulus {

// What the pages of one rank are for, in pages. The parts add up to its page count.
struct PageAccount {
  int64_t full = 0;       // full groups of running requests
  int64_t window = 0;     // window groups of running requests
  int64_t reserved = 0;   // taken at admission, not written yet or not needed any more
  int64_t summaries = 0;  // of running requests' pages, taken at admission
  int64_t cached = 0;     // kept for reuse, whether or not a running request reads them too
  int64_t free = 0;

  int64_t used() const { return full + window + reserved + summaries; }
  int64_t total() const { return used() + cached + free; }
};

// Pages of every rank. The new pages of `next` (a plan of this very state that is about to run, or
// null) count as written. Linear in the pages of window groups and in the running requests.
std::vector<PageAccount> CountPages(const EngineState& state, const StepPlan* next,
                                    const PlanLimits& limits, const PrefixIndex& prefixes,
                                    const RankSet& ranks);

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
