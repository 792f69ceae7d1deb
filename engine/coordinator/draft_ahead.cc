#include "engine/coordinator/draft_ahead.h"

#include <algorithm>
#include <span>

namespace annulus {

void DraftAhead(Ledger& ledger, const Serving& serving) {
  constexpr int64_t kReadAtOnce = 65'536;  // tokens of a sequence: well below a millisecond
  constexpr size_t kMatchedAtOnce = 4096;  // tokens of an answer: about a millisecond
  for (const auto& sequence : ledger.state().running) {
    Request& request = ledger.request(sequence->id);
    PromptLookup* const lookup = request.lookup();
    if (lookup == nullptr || sequence->paused) continue;
    lookup->Read(sequence->tokens, kReadAtOnce);
    if (sequence->prefills()) continue;
    // The row before the draft gives a token too.
    const auto left =
        static_cast<int>(request.spec().sampling.max_tokens - request.completion_tokens());
    OutputGuide* const guide = request.guide();
    if (guide != nullptr) {
      const auto answer = std::span<const int32_t>(sequence->tokens)
                              .subspan(static_cast<size_t>(sequence->prompt_length) -
                                       static_cast<size_t>(sequence->answered));
      sequence->draft.clear();
      if (!guide->Read(answer, kMatchedAtOnce)) continue;
      // Sure to be right, so they are worth their rows however dear these are.
      sequence->draft = guide->Forced(std::min(left - 1, PromptLookup::kMostDraft));
    }
    request.NoteDraft(/*forced=*/guide != nullptr && !sequence->draft.empty());
    if (guide != nullptr && !sequence->draft.empty()) continue;
    sequence->draft =
        lookup->Draft(sequence->tokens, left - 1, serving.RowCost(sequence->computed));
    if (guide != nullptr) guide->Cut(sequence->draft);
  }
}

}  // namespace annulus
