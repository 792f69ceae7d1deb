#include "engine/memory_account.h"

#include <algorithm>

#include "kernels/ops/sampling.h"

namespace annulus {
namespace {

// One page in Request::Pages: a hash node with its id and reference, its bucket, the heap's header.
constexpr int64_t kBytesPerHeldPage = 64;

// A token in Sampler's edits: an array that doubles.
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

// What penalties remember: see Sampler.
int64_t SamplingBytes(const Sequence& sequence) {
  const SamplingSetup& setup = *sequence.setup;
  const SamplingParams& params = setup.params;
  int64_t edits = static_cast<int64_t>(params.logit_bias.size());
  int64_t seen = 0;
  if (!setup.prompt.empty()) seen = SeenWords(setup.vocabulary) * int64_t{sizeof(uint32_t)};
  if (seen > 0 || params.frequency_penalty != 0 || params.presence_penalty != 0) {
    edits += params.max_tokens;
  }
  return WaitingBytes(static_cast<int64_t>(setup.prompt.size())) + seen +
         std::min<int64_t>(edits, setup.vocabulary) * kBytesPerEdit;
}

// Moves pages from those reserved to those written: what a step about to run will do.
void AddNext(const StepPlan& next, const EngineState& state, const PlanLimits& limits,
             std::vector<PageAccount>& accounts) {
  for (const SequenceUpdate& update : next.updates) {
    for (const auto& sequence : state.running) {
      if (sequence->id != update.sequence) continue;
      for (size_t g = 0; g < update.tables.size(); ++g) {
        for (const PageEntry& entry : update.tables[g].append) {
          // Cached pages are only announced; they are in the sequence's table already.
          if (entry.first_position < sequence->groups[g].mapped_end) continue;
          --accounts[entry.rank].reserved;
          if (limits.group_windows[g] > 0) ++accounts[entry.rank].window;
        }
      }
    }
  }
}

}  // namespace

std::vector<PageAccount> CountPages(const EngineState& state, const StepPlan* next,
                                    const PlanLimits& limits, const PrefixIndex& prefixes,
                                    const RankSet& ranks) {
  std::vector<PageAccount> accounts(ranks.size());
  for (const auto& sequence : state.running) {
    for (size_t index = 0; index < sequence->ring.size(); ++index) {
      accounts[sequence->ring[index]].reserved +=
          static_cast<int64_t>(sequence->spare[index].size());
      accounts[sequence->ring[index]].summaries += CountSummaries(*sequence, index);
    }
    for (size_t g = 0; g < sequence->groups.size(); ++g) {
      if (limits.group_windows[g] == 0) continue;
      const GroupTable& group = sequence->groups[g];
      for (const PageEntry& entry : group.entries) {
        if (!group.shared.contains(entry.first_position)) ++accounts[entry.rank].window;
      }
    }
  }
  if (next != nullptr) AddNext(*next, state, limits, accounts);
  for (int rank = 0; rank < ranks.size(); ++rank) {
    PageAccount& account = accounts[rank];
    const PageAllocator& allocator = ranks.pool(rank).allocator();
    account.free = allocator.free_count();
    account.cached = prefixes.pages(rank);
    // What is left is held by full groups, shared pages counted once.
    account.full = allocator.held_count() - account.cached - account.reserved - account.window -
                   account.summaries;
  }
  return accounts;
}

int64_t WaitingBytes(int64_t prompt_tokens) {
  return prompt_tokens * static_cast<int64_t>(sizeof(int32_t));
}

int64_t PlannedTokens(const Sequence& sequence) {
  return int64_t{sequence.prompt_length} + sequence.setup->params.max_tokens;
}

int64_t RunningBytes(const Sequence& sequence, int32_t page_tokens) {
  const int64_t tokens = PlannedTokens(sequence);
  const int64_t pages = (tokens / page_tokens + 1) * static_cast<int64_t>(sequence.groups.size());
  const int64_t tables = static_cast<int64_t>(sequence.ring.size()) + 1;
  int64_t summaries = 0;  // pages, listed once for all ranks
  for (size_t i = 0; i < sequence.ring.size(); ++i) summaries += CountSummaries(sequence, i);
  return WaitingBytes(sequence.prompt_length) + WaitingBytes(tokens) + SamplingBytes(sequence) +
         pages * (kBytesPerHeldPage + tables * static_cast<int64_t>(sizeof(PageEntry))) +
         summaries * (kBytesPerHeldPage + static_cast<int64_t>(sizeof(int32_t)));
}

}  // namespace annulus
