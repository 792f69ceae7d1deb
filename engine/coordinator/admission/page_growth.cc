#include "engine/coordinator/admission/page_growth.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/error_payloads.h"
#include "engine/base/field_error.h"
#include "engine/base/try_to.h"

namespace annulus {

void PageGrowth::GrowRunning(SteadyTime now) {
  lacks_pages_ = false;
  const auto& running = use_.ledger.state().running;
  const auto due = [](const auto& sequence) {
    return !sequence->paused && sequence->needs_pages();
  };
  if (std::none_of(running.begin(), running.end(), due)) return;
  bool lacks = true;  // without memory to decide it, the next turn tries again
  TryTo([&] {
    std::vector<Grower> growers;
    for (const auto& sequence : running) {
      const RequestSpec& spec = use_.ledger.request(sequence->id).spec();
      growers.push_back({.id = sequence->id,
                         .grows = due(sequence),
                         .may_yield = use_.needs.ReservesExpected(spec, sequence->attention.get()),
                         .is_parked = sequence->paused});
    }
    const std::vector<size_t> order =
        use_.serving.OrderOfRunning(use_.ledger.state(), use_.ledger.requests(), now);
    lacks = GrowSequences(GrowthOrder(growers, order), *this);
  });
  lacks_pages_ = lacks;
}

int64_t PageGrowth::OnePageMore(const Request& request) const {
  return int64_t{request.sequence()->reserved} + use_.options.limits.page_tokens;
}

std::vector<int32_t> PageGrowth::PagesToGrowTo(const Request& request, int64_t tokens) const {
  const Sequence& sequence = *request.sequence();
  PageDemand demand = Demand(request.spec(), use_.options.limits.page_tokens);
  demand.cached = request.begun_from();
  return PagesToGrow(demand, sequence.reserved, tokens, static_cast<int>(sequence.ring.size()),
                     use_.options.limits);
}

bool PageGrowth::GrowTo(Request& request, int64_t tokens, bool let_go_of_writes) {
  Sequence& sequence = *request.sequence();
  const std::vector<int32_t> pages = PagesToGrowTo(request, tokens);
  const auto fit = [&](const std::vector<int32_t>& there) {
    for (size_t index = 0; index < pages.size(); ++index) {
      if (pages[index] > there[sequence.ring[index]]) return false;
    }
    return true;
  };
  if (!fit(use_.ledger.PagesWithoutUse())) {
    const bool let_go = let_go_of_writes && use_.ledger.LetGoOfWrites();
    if (!let_go || !fit(use_.ledger.PagesWithoutUse())) return false;
  }
  const auto enough = [&] { return fit(use_.ledger.FreePages()); };
  if (!enough() && !use_.ledger.prefixes().index().Evict(enough)) return false;
  for (size_t index = 0; index < pages.size(); ++index) {
    use_.ledger.book().Reserve(sequence.owner, sequence.ring[index], pages[index]);
  }
  sequence.reserved = static_cast<int32_t>(tokens);
  return true;
}

bool PageGrowth::Grow(SequenceId id) {
  Request& request = use_.ledger.request(id);
  const int64_t page = use_.options.limits.page_tokens;
  const int64_t expected = request.prompt_tokens() +
                           use_.serving.ExpectAnswer(request.spec(), request.completion_tokens());
  const int64_t next = OnePageMore(request);
  const int64_t wanted = (expected + page - 1) / page * page;
  if (wanted > next && GrowTo(request, wanted, /*let_go_of_writes=*/false)) return true;
  return GrowTo(request, next, /*let_go_of_writes=*/true);
}

bool PageGrowth::Helps(SequenceId victim, SequenceId id) {
  const Request& request = use_.ledger.request(id);
  const std::vector<int32_t>& ring = request.sequence()->ring;
  const std::vector<int32_t> pages = PagesToGrowTo(request, OnePageMore(request));
  const std::vector<int32_t> there = use_.ledger.PagesWithoutUse();
  for (size_t index = 0; index < ring.size(); ++index) {
    if (pages[index] > there[ring[index]] && Frees(victim, ring[index])) return true;
  }
  return false;
}

bool PageGrowth::Frees(SequenceId victim, int32_t rank) const {
  const Sequence& sequence = *use_.ledger.request(victim).sequence();
  const PageBook& book = use_.ledger.book();
  if (!book.reserve(sequence.owner, rank).empty()) return true;
  for (const GroupTable& group : sequence.groups) {
    for (const PageEntry& entry : group.entries) {
      if (entry.rank == rank && book.holders({rank, entry.page}) == 1) return true;
    }
  }
  return false;
}

void PageGrowth::Preempt(SequenceId victim) {
  Request& request = use_.ledger.request(victim);
  SetBack(request);
  request.CountPreemption();
  use_.metrics.preemptions.Increment();
}

void PageGrowth::SetBack(Request& request) {
  use_.ledger.WaitAgain(request);
  const Sequence& sequence = *request.sequence();
  // Without memory for it, all is computed again.
  TryTo([&] {
    use_.ledger.prefixes().KeepUnfinished(sequence, request);
    const int32_t page = use_.options.limits.page_tokens;
    PageTier* const tier = use_.ledger.tier();
    if (tier != nullptr) tier->saver().Offer(sequence, request, {sequence.whole() / page * page});
  });
  use_.on_set_back(request);
  use_.ledger.Suspend(request);
  use_.serving.NotePreempted(request.id());
}

absl::Status PageGrowth::CheckRoomBeside(const PrefixIndex::Hit& pin) const {
  const PageBook& book = use_.ledger.book();
  std::vector<int32_t> left;
  for (int rank = 0; rank < book.ranks(); ++rank) {
    left.push_back(book.room(rank) - book.pinned_count(rank));
  }
  for (const auto& group : pin.groups) {
    for (const PrefixPage& page : group) left[page.id.rank] -= book.IsPinned(page.id) ? 0 : 1;
  }
  for (const auto& [id, request] : use_.ledger.requests()) {
    const Sequence* const sequence = request->sequence();
    if (!request->has_begun() ||
        !use_.needs.ReservesExpected(request->spec(), request->attention().get())) {
      continue;
    }
    PageDemand demand = Demand(request->spec(), use_.options.limits.page_tokens);
    demand.most_ranks = book.usable_ranks();
    // It also owns the windows of the prefix that it began from: a window and a page.
    if (sequence != nullptr && request->begun_from() > 0) demand.checkpoints += 2;
    const std::vector<int32_t> ring = sequence != nullptr ? sequence->ring : std::vector<int32_t>();
    if (ChooseRing(demand, left, ring, use_.options.limits).has_value()) continue;
    return NoRoomToPin("a running answer could run out of pages");
  }
  const LossReserve reserve(use_.options, use_.ledger, use_.needs);
  if (reserve.FitsPin(pin)) return absl::OkStatus();
  return NoRoomToPin(absl::StrCat("what runs would not fit on the ring without ",
                                  use_.options.tolerated_ranks, " of its ranks (--tolerate)"));
}

absl::Status PageGrowth::NoRoomToPin(absl::string_view why) const {
  absl::Status status =
      RetryError(absl::StrCat("pin: with this document pinned, ", why,
                              "; try again when fewer requests run, or prefill the document "
                              "without pin"),
                 RetryAfter(use_.serving.turnover_seconds(), 0));
  status.SetPayload(kLimitPayload, absl::Cord("pinned"));
  return status;
}

}  // namespace annulus
