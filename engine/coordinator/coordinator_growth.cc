// The part of Coordinator for requests that take pages as their answers grow, and give them up for
// others.

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "engine/base/error_payloads.h"
#include "engine/base/field_error.h"
#include "engine/coordinator/coordinator.h"
#include "engine/pages/request_pages.h"
#include "kernels/base/guarded.h"

namespace annulus {

// Requests with an attention policy reserve everything: their summaries' pages are fixed when they
// begin, and rows that are computed again in another chunk may choose other blocks. So do those of
// tenants with a quota of keys and values, whom nobody else's pages help.
bool Coordinator::ReservesExpected(const RequestSpec& spec,
                                   const AttentionAssignment* attention) const {
  return options_.admission == AdmissionMode::kExpected && attention == nullptr &&
         !spec.prefill_only && spec.tenant_room.kv_bytes == 0;
}

void Coordinator::ReserveExpected(const RequestSpec& spec, PageDemand& demand) const {
  const int64_t page = options_.limits.page_tokens;
  const int64_t prompt = std::ssize(spec.prompt) - spec.answered;
  const int64_t tokens = prompt + serving_.ExpectAnswer(spec, spec.answered);
  const int64_t reserved = (tokens + page - 1) / page * page;
  if (reserved >= demand.tokens) return;
  demand.reserved = reserved;
  for (int rank = 0; rank < pages_.ranks(); ++rank) {
    const auto total = static_cast<int32_t>(pages_.counts(rank).total());
    demand.alone.push_back(total - pins_.pages_on(rank));
  }
}

// What it lacks for its first `tokens` positions.
std::vector<int32_t> Coordinator::PagesToGrowTo(const Request& request, int64_t tokens) const {
  const Sequence& sequence = *request.sequence();
  PageDemand demand = Demand(request.spec(), options_.limits.page_tokens);
  demand.cached = request.begun_from();
  return PagesToGrow(demand, sequence.reserved, tokens, static_cast<int>(sequence.ring.size()),
                     options_.limits);
}

// Takes the pages for the request's first `tokens` positions, which are whole pages. Frees cached
// prefixes for that, and pages that are held only to be written if it may. False: there are too
// few.
bool Coordinator::GrowTo(Request& request, int64_t tokens, bool let_go_of_writes) {
  Sequence& sequence = *request.sequence();
  const std::vector<int32_t> pages = PagesToGrowTo(request, tokens);
  const auto fit = [&](const std::vector<int32_t>& there) {
    for (size_t index = 0; index < pages.size(); ++index) {
      if (pages[index] > there[sequence.ring[index]]) return false;
    }
    return true;
  };
  if (!fit(PagesWithoutUse())) {
    const bool let_go = let_go_of_writes && tier_ != nullptr && tier_->LetGoOfWrites();
    if (!let_go || !fit(PagesWithoutUse())) return false;
  }
  const auto enough = [&] { return fit(FreePages()); };
  if (!enough() && !prefixes_.index().Evict(enough)) return false;
  for (size_t index = 0; index < pages.size(); ++index) {
    pages_.Reserve(sequence.owner, sequence.ring[index], pages[index]);
  }
  sequence.reserved = static_cast<int32_t>(tokens);
  return true;
}

class Coordinator::GrowthSide final : public GrowthHost {
 public:
  explicit GrowthSide(Coordinator& own) : own_(own) {}

  // Takes what the answer is now expected to need; if there is less, a single page.
  bool Grow(SequenceId id) override {
    Request& request = *own_.requests_.at(id);
    const int64_t page = own_.options_.limits.page_tokens;
    const int64_t expected =
        request.prompt_tokens() +
        own_.serving_.ExpectAnswer(request.spec(), request.completion_tokens());
    const int64_t next = OnePageMore(request);
    const int64_t wanted = (expected + page - 1) / page * page;
    if (wanted > next && own_.GrowTo(request, wanted, /*let_go_of_writes=*/false)) return true;
    return own_.GrowTo(request, next, /*let_go_of_writes=*/true);
  }

  bool Helps(SequenceId victim, SequenceId id) override {
    const Request& request = *own_.requests_.at(id);
    const std::vector<int32_t>& ring = request.sequence()->ring;
    const std::vector<int32_t> pages = own_.PagesToGrowTo(request, OnePageMore(request));
    const std::vector<int32_t> there = own_.PagesWithoutUse();
    for (size_t index = 0; index < ring.size(); ++index) {
      if (pages[index] > there[ring[index]] && Frees(victim, ring[index])) return true;
    }
    return false;
  }

  void Preempt(SequenceId victim) override { own_.Preempt(victim); }

 private:
  int64_t OnePageMore(const Request& request) const {
    return int64_t{request.sequence()->reserved} + own_.options_.limits.page_tokens;
  }

  // Whether the victim alone holds a page of the rank.
  bool Frees(SequenceId victim, int32_t rank) const {
    if (!own_.pages_.reserve(OwnerOfRequest(victim), rank).empty()) return true;
    for (const GroupTable& group : own_.requests_.at(victim)->sequence()->groups) {
      for (const PageEntry& entry : group.entries) {
        if (entry.rank == rank && own_.pages_.holders({rank, entry.page}) == 1) return true;
      }
    }
    return false;
  }

  Coordinator& own_;
};

// Before requests that wait get any: gives pages to those that run and grow.
void Coordinator::GrowRunning() {
  // A step behind another is planned only if nobody is due, so the next turn is early enough.
  if (step_.has_value()) return;
  lacks_pages_ = false;
  const auto due = [](const auto& sequence) {
    return !sequence->paused && sequence->needs_pages();
  };
  if (std::none_of(state_.running.begin(), state_.running.end(), due)) return;
  bool lacks = true;  // without memory to decide it, the next turn tries again
  const auto grow = [&] {
    std::vector<Grower> running;
    for (const auto& sequence : state_.running) {
      const RequestSpec& spec = requests_.at(sequence->id)->spec();
      running.push_back({.id = sequence->id,
                         .grows = due(sequence),
                         .may_yield = ReservesExpected(spec, sequence->attention.get()),
                         .is_parked = sequence->paused});
    }
    GrowthSide side(*this);
    lacks = GrowSequences(
        GrowthOrder(running, serving_.OrderOfRunning(state_, requests_, clock_.Now())), side);
    return absl::OkStatus();
  };
  Guarded(grow, NoMemoryError).IgnoreError();
  lacks_pages_ = lacks;
}

// The request gives up its pages and waits, with the answer so far as part of its prompt. What it
// has computed stays as a cached prefix as long as nobody needs the room, and goes to the tier, if
// there is one: when it goes on, it reads back what is read faster than computed (WaitsForPages).
void Coordinator::Preempt(RequestId id) {
  Request& request = *requests_.at(id);
  state_.ended.reserve(state_.ended.size() + 1);
  waiting_.push_back(id);
  absl::Cleanup undo = [this] { waiting_.pop_back(); };
  request.TakeAnswerBack();
  std::move(undo).Cancel();
  Sequence& sequence = *request.sequence();
  sequence.prompt_length = request.tokens_to_read();
  const auto keep = [&] {
    prefixes_.KeepUnfinished(sequence, request);
    const int32_t page = options_.limits.page_tokens;
    if (tier_ != nullptr)
      tier_->saver().Offer(sequence, request, {sequence.computed / page * page});
    return absl::OkStatus();
  };
  // Without memory for it, all is computed again.
  Guarded(keep, NoMemoryError).IgnoreError();
  room_kept_.Forget(id);
  ForgetCommon(request);
  if (tier_ != nullptr) tier_->Forget(id);
  Leave(request);
  request.Suspend();
  serving_.NotePreempted(id);
  ++waiting_count_;
  metrics_.preemptions.Increment();
}

// Whether every request that has begun, and may still have to grow, fits if it runs alone beside
// all pins and this one. Counts pages that both use twice.
absl::Status Coordinator::CheckRoomToGrow(const PrefixIndex::Hit& pin) const {
  std::vector<int32_t> left;
  for (int rank = 0; rank < pages_.ranks(); ++rank) {
    left.push_back(static_cast<int32_t>(pages_.counts(rank).total()) - pins_.pages_on(rank));
  }
  for (const auto& group : pin.groups) {
    for (const PrefixPage& page : group) left[page.id.rank] -= pins_.Holds(page.id) ? 0 : 1;
  }
  for (const auto& [id, request] : requests_) {
    const Sequence* const sequence = request->sequence();
    const AttentionAssignment* const attention =
        sequence != nullptr ? sequence->attention.get() : nullptr;
    if (!request->has_begun() || !ReservesExpected(request->spec(), attention)) continue;
    PageDemand demand = Demand(request->spec(), options_.limits.page_tokens);
    // The windows of what it began from are its own besides: a window and a page.
    if (sequence != nullptr && request->begun_from() > 0) demand.checkpoints += 2;
    const std::vector<int32_t> ring = sequence != nullptr ? sequence->ring : std::vector<int32_t>();
    if (ChooseRing(demand, left, ring, options_.limits).has_value()) continue;
    absl::Status status = RetryError(
        "pin: beside this document, an answer that is being generated could run out of pages; try "
        "again when fewer requests run, or read the document ahead without pin",
        RetryAfter(turnover_seconds_, 0));
    status.SetPayload(kLimitPayload, absl::Cord("pinned"));
    return status;
  }
  return absl::OkStatus();
}

}  // namespace annulus
