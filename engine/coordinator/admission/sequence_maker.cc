#include "engine/coordinator/admission/sequence_maker.h"

#include <algorithm>
#include <utility>

#include "engine/coordinator/admission/memory_account.h"
#include "engine/request/evidence_account.h"

namespace annulus {

std::unique_ptr<Sequence> SequenceMaker::Make(const Request& request, PageOwner owner,
                                              const RingChoice& choice,
                                              std::shared_ptr<const AttentionAssignment> attention,
                                              int64_t rope_length) const {
  const std::vector<int32_t>& prompt = request.spec().prompt;
  const std::vector<int> homes = ledger_.HomesByRank();
  auto sequence = std::make_unique<Sequence>();
  sequence->id = request.id();
  sequence->owner = owner;
  sequence->prompt_length = static_cast<int32_t>(prompt.size());
  sequence->answered = request.spec().answered;
  sequence->apart = request.is_suspect();
  sequence->ring = choice.ring;
  const auto has_fewer = [&](int a, int b) { return homes[a] < homes[b]; };
  sequence->home = options_.ranks_share_machine
                       ? *std::max_element(choice.ring.begin(), choice.ring.end(), has_fewer)
                       : *std::min_element(choice.ring.begin(), choice.ring.end(), has_fewer);
  auto setup = std::make_shared<SamplingSetup>();
  setup->params = request.spec().sampling;
  setup->forced = request.forced();
  setup->params.prompt_logprobs.reset();  // the ranks learn it by item
  sequence->prompt_logprobs = request.prompt_logprobs();
  if (setup->params.repetition_penalty != 1) {
    setup->prompt.assign(prompt.begin(), prompt.end() - sequence->answered);
  }
  setup->end_of_text_ids = end_of_text_ids_;
  setup->vocabulary = vocabulary_;
  setup->output = request.spec().output.machine;
  sequence->setup = std::move(setup);
  // Room for the whole answer now: a vector that grows moves, and holds its ids twice meanwhile.
  sequence->tokens.reserve(static_cast<size_t>(PlannedTokens(*sequence)));
  sequence->tokens.assign(prompt.begin(), prompt.end());
  sequence->attention = std::move(attention);
  if (request.spec().evidence) {
    sequence->evidence = std::make_shared<const EvidenceTerms>(
        EvidenceTerms{options_.evidence_heads, EvidenceRanges(request.spec().documents)});
  }
  sequence->pattern_pairs = policies_.PairsOf(sequence->attention.get(), sequence->prompt_length);
  sequence->rope_length = rope_length;
  return sequence;
}

}  // namespace annulus
