#include "engine/coordinator/draft_ahead.h"

namespace annulus {

void DraftAhead(Ledger& ledger, const Serving& serving) {
  constexpr int64_t kReadAtOnce = 65'536;  // tokens of a sequence: well below a millisecond
  for (const auto& sequence : ledger.state().running) {
    Request& request = ledger.request(sequence->id);
    PromptLookup* const lookup = request.lookup();
    if (lookup == nullptr || sequence->paused) continue;
    lookup->Read(sequence->tokens, kReadAtOnce);
    if (sequence->in_prefill()) continue;
    // The row before the draft gives a token too.
    const auto left =
        static_cast<int>(request.spec().sampling.max_tokens - request.completion_tokens());
    sequence->draft =
        lookup->Draft(sequence->tokens, left - 1, serving.RowCost(sequence->computed));
  }
}

}  // namespace annulus
