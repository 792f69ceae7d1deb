#include "engine/coordinator/admission/memory_account.h"

#include <algorithm>

#include "engine/grammar/matcher.h"
#include "engine/memory/page_book.h"
#include "kernels/ops/sampling.h"

namespace annulus {
namespace {

// Bytes of a token in Sampler's edits: an array whose size doubles as it grows.
constexpr int64_t kBytesPerEdit = 2 * sizeof(LogitEdit);

// Pages for summaries on the rank with that ring index.
int64_t CountSummaries(const Sequence& sequence, size_t index) {
  if (sequence.summaries == nullptr) return 0;
  int64_t pages = 0;
  for (const auto& group : *sequence.summaries) {
    if (!group.empty()) pages += static_cast<int64_t>(group[index].size());  // else: a window
  }
  return pages;
}

// Bytes that penalties and the output constraint take: see Sampler.
int64_t SamplingBytes(const Sequence& sequence) {
  const SamplingSetup& setup = *sequence.setup;
  const SamplingParams& params = setup.params;
  int64_t edits = static_cast<int64_t>(params.logit_bias.size());
  int64_t seen = 0;
  if (!setup.prompt.empty()) seen = SeenWords(setup.vocabulary) * int64_t{sizeof(uint32_t)};
  if (seen > 0 || params.frequency_penalty != 0 || params.presence_penalty != 0) {
    edits += params.max_tokens;
  }
  const int64_t output = setup.output.has_value()
                             ? SeenWords(setup.vocabulary) * int64_t{sizeof(uint32_t)} +
                                   static_cast<int64_t>(GrammarCache::kDefaultBytes)
                             : 0;
  return WaitingBytes(static_cast<int64_t>(setup.prompt.size())) + seen + output +
         std::min<int64_t>(edits, setup.vocabulary) * kBytesPerEdit;
}

}  // namespace

int64_t WaitingBytes(int64_t prompt_tokens) {
  return prompt_tokens * static_cast<int64_t>(sizeof(int32_t));
}

int64_t PlannedTokens(const Sequence& sequence) {
  return int64_t{sequence.prompt_length} - sequence.answered + sequence.setup->params.max_tokens;
}

int64_t RunningBytes(const Sequence& sequence, int32_t page_tokens) {
  const int64_t tokens = PlannedTokens(sequence);
  const int64_t pages = (tokens / page_tokens + 1) * static_cast<int64_t>(sequence.groups.size());
  const int64_t tables = static_cast<int64_t>(sequence.ring.size()) + 1;
  int64_t summaries = 0;  // pages, listed once for all ranks
  for (size_t i = 0; i < sequence.ring.size(); ++i) summaries += CountSummaries(sequence, i);
  return WaitingBytes(sequence.prompt_length) + WaitingBytes(tokens) + SamplingBytes(sequence) +
         pages * (PageBook::kBytesPerHeldPage + tables * static_cast<int64_t>(sizeof(PageEntry))) +
         summaries * (PageBook::kBytesPerHeldPage + static_cast<int64_t>(sizeof(int32_t)));
}

}  // namespace annulus
