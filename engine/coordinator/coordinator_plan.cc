// The part of Coordinator that finds where a request may begin, and that plans requests that are
// not submitted.

#include <algorithm>
#include <utility>

#include "engine/coordinator/coordinator.h"
#include "engine/pages/request_pages.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

constexpr PageOwner kPlanner{PageOwner::Kind::kPlan, 1};

// An owner of pages for as long as it lives.
class Holder {
 public:
  Holder(PageBook& book, const TenantId& tenant) : book_(book) { book_.Open(kPlanner, tenant); }
  ~Holder() { book_.Release(kPlanner); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

 private:
  PageBook& book_;
};

}  // namespace

absl::StatusOr<RequestPlan> Coordinator::Plan(RequestSpec spec, const CancelFlag& cancel) {
  return plans_.Ask(
      std::move(spec), [this] { commands_.TryPush(nullptr); }, cancel);
}

RequestPlan Coordinator::PlanNow(const RequestSpec& spec) {
  RequestPlan plan;
  const auto attention = PolicyOf(spec, plan.choice);
  if (attention != nullptr) plan.policy = AssignmentText(*attention);
  plan.requests_ahead = static_cast<int>(waiting_.size());
  if (tier_ != nullptr && !spec.ignore_cache) {
    const TierLookup& lookup = tier_->lookup();
    const TokensByTier kept =
        lookup.Where(lookup.Find(spec, attention.get(), prefixes_.RopeLengthOf(spec)));
    plan.host_tokens = kept.host;
    plan.disk_tokens = kept.disk;
  }
  const RingChoice choice = PlanPlace(spec, attention.get(), plan);
  if (plan.room != RoomFor::kNow) return plan;
  const auto pairs = PatternPairsOf(attention.get(), std::ssize(spec.prompt));
  const PromptState prompt{.computed = static_cast<int32_t>(plan.cached_tokens),
                           .prompt_length = static_cast<int32_t>(spec.prompt.size()),
                           .attention = {ClassOf(attention.get()), pairs.get()},
                           .degree = static_cast<int>(choice.ring.size())};
  plan.seconds = serving_.Expect(spec, prompt, state_, requests_, clock_.Now());
  return plan;
}

std::vector<int> Coordinator::SequencesOnRanks() const {
  std::vector<int> running(ranks_.size(), 0);
  for (const auto& sequence : state_.running) {
    for (const int32_t rank : sequence->ring) ++running[rank];
  }
  return running;
}

std::vector<int> Coordinator::LoadOfRanks() const {
  return options_.ranks_share_machine ? std::vector<int>() : SequencesOnRanks();
}

std::vector<int> Coordinator::HomesOnRanks() const {
  std::vector<int> homes(ranks_.size(), 0);
  for (const auto& sequence : state_.running) {
    if (!sequence->paused) ++homes[sequence->home];
  }
  return homes;
}

std::vector<Coordinator::Start> Coordinator::StartsToTry(
    const PageDemand& demand, std::vector<PrefixReuse::Found>& found) const {
  const PlanLimits& limits = options_.limits;
  const bool share = options_.ranks_share_machine;
  const std::vector<int> running = SequencesOnRanks();
  const std::vector<int> none(running.size(), 0);
  const std::vector<int32_t> pages = PagesWithoutUse();
  std::vector<std::pair<double, Start>> order;
  for (PrefixReuse::Found& each : found) {
    // Where ranks share the machine, those that others run on are no slower.
    const bool alike = share && LeavesRoom(each.ring, pages);
    const int64_t rest = demand.tokens - each.hit.tokens;
    order.emplace_back(RestOfWork(rest, each.ring, alike ? none : running, limits),
                       Start{&each, each.ring});
  }
  const double fresh = FreshWork(demand, share ? none : running, limits);
  // Expected answers may grow beyond what is free on one rank.
  if (share && options_.admission == AdmissionMode::kWorst) {
    const auto rank = RankToJoin(demand, HomesOnRanks(), FreePages(), limits);
    if (rank.has_value()) order.emplace_back(fresh, Start{nullptr, {*rank}});
  }
  order.emplace_back(fresh, Start());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Start> starts;
  for (auto& [work, start] : order) starts.push_back(std::move(start));
  return starts;
}

// Of a long text, memory may have the first pages alone, say a system prompt, on fewer ranks than
// the text is worth. To read a token again counts as much as to compute one, though it takes less:
// otherwise the tier would not be asked.
std::vector<const PrefixReuse::Found*> Coordinator::PlacesToRestore(
    const PageDemand& demand, int32_t tokens,
    const std::optional<PrefixReuse::Found>& before) const {
  if (!before.has_value()) return {nullptr};
  const std::vector<int> running = SequencesOnRanks();
  const int64_t rest = demand.tokens - tokens;
  const double again =
      static_cast<double>(rest + before->hit.tokens) / static_cast<double>(demand.tokens);
  const double fresh = FreshWork(demand, running, options_.limits) * again;
  if (fresh < RestOfWork(rest, before->ring, running, options_.limits)) return {nullptr, &*before};
  return {&*before, nullptr};
}

std::vector<int32_t> Coordinator::FreePages() const {
  std::vector<int32_t> pages;
  for (int rank = 0; rank < pages_.ranks(); ++rank) pages.push_back(pages_.free_count(rank));
  return pages;
}

std::vector<int32_t> Coordinator::PagesWithoutUse() const {
  std::vector<int32_t> pages = FreePages();
  for (int rank = 0; rank < pages_.ranks(); ++rank) pages[rank] += pages_.unheld_count(rank);
  return pages;
}

// Finds a ring with enough free pages. Frees cached prefixes if that gives one: first the tenant's
// own, as far as its quota requires, then the oldest; never those that this request, by its hit, or
// a running one uses. If that gives none, or `will_do` refuses the ring, frees nothing.
std::optional<RingChoice> Coordinator::MakeRoom(
    const RequestSpec& spec, const PageDemand& demand, const std::vector<int32_t>& fixed,
    const std::function<bool(const RingChoice&)>& will_do) {
  const std::vector<int> load = LoadOfRanks();
  std::optional<RingChoice> choice;
  const auto found = [&] {
    choice = ChooseRing(demand, FreePages(), fixed, options_.limits, load);
    return choice.has_value();
  };
  const auto chosen = [&] {
    return will_do(*choice) && MakeTenantRoom(spec, *choice) ? choice : std::nullopt;
  };
  if (found()) return chosen();
  const auto choose_of_most = [&] {
    return ChooseRing(demand, PagesWithoutUse(), fixed, options_.limits, load);
  };
  auto most = choose_of_most();
  if (!most.has_value() && tier_ != nullptr && tier_->LetGoOfWrites()) most = choose_of_most();
  if (!most.has_value() || !will_do(*most) || !MakeTenantRoom(spec, *most)) return std::nullopt;
  if (!prefixes_.index().Evict(found)) return std::nullopt;
  return chosen();
}

// Where a request begins: on the ring of one of its cached beginnings, or with nothing cached on
// the rank that it should join or on a fresh ring. The first that fits is taken, in the order of
// what the busiest rank would still have to do, so a hit is computed by the ranks that hold it
// unless they are much busier or fuller than others, or too few for what is left. The request is
// then open in the book and holds the hit's pages, so that making room leaves them for last;
// otherwise it is not. RESOURCE_EXHAUSTED: its tenant may not have so many pages now.
absl::StatusOr<std::optional<Coordinator::Placement>> Coordinator::Place(
    const Request& request, const PageDemand& demand, std::vector<PrefixReuse::Found> found,
    const Request* large) {
  absl::Status full;
  const auto fits = [&](const Start& start) -> std::optional<Placement> {
    PrefixReuse::Found* const from = start.from;
    PageDemand rest = demand;
    const PageOwner owner = OwnerOfRequest(request.id());
    pages_.Open(owner, request.spec().tenant);
    if (from != nullptr) {
      HoldPages(from->hit, owner, pages_);
      CountCached(from->hit, options_.limits, rest);
      LeaveHeld(from->hit, pins_, rest);
    }
    const auto will_do = [&](const RingChoice& choice) {
      if (!FindTenantRoom(request.spec(), choice)) {
        full = TenantIsFull(request.spec(), NewBytes(choice));
        return false;
      }
      return large == nullptr ||
             room_kept_.LeavesRoom(
                 large->id(), DemandOf(*large),
                 MostPagesHeld(choice, from != nullptr ? &from->hit : nullptr, options_.limits),
                 pages_, options_.limits);
    };
    auto choice = MakeRoom(request.spec(), rest, start.ring, will_do);
    if (!choice.has_value()) {
      pages_.Release(owner);
      return std::nullopt;
    }
    Placement placement{*std::move(choice), std::nullopt, rest.cached};
    if (from != nullptr) placement.hit = std::move(from->hit);
    return placement;
  };
  for (const Start& start : StartsToTry(demand, found)) {
    std::optional<Placement> placement = fits(start);
    if (placement.has_value()) return placement;
  }
  if (!full.ok()) return full;
  return std::nullopt;
}

// Tries the places of a request in the order in which its admission would, but gives nothing back
// for it.
RingChoice Coordinator::PlanPlace(const RequestSpec& spec, const AttentionAssignment* attention,
                                  RequestPlan& plan) {
  const PageDemand demand = DemandOf(spec, attention);
  const std::vector<int> load = LoadOfRanks();
  std::vector<PrefixReuse::Found> found;
  if (!spec.ignore_cache) found = prefixes_.Find(spec, attention);
  std::optional<RingChoice> choice;
  const PrefixIndex::Hit* hit = nullptr;
  for (const auto& [from, ring] : StartsToTry(demand, found)) {
    const Holder holder(pages_, spec.tenant);
    PageDemand rest = demand;
    if (from != nullptr) {
      HoldPages(from->hit, kPlanner, pages_);
      CountCached(from->hit, options_.limits, rest);
      LeaveHeld(from->hit, pins_, rest);
    }
    choice = ChooseRing(rest, FreePages(), ring, options_.limits, load);
    if (!choice.has_value()) {
      choice = ChooseRing(rest, PagesWithoutUse(), ring, options_.limits, load);
    }
    hit = from != nullptr ? &from->hit : nullptr;
    if (choice.has_value()) break;
  }
  const bool now = choice.has_value() && TenantMayHave(spec, *choice);
  plan.room = now ? RoomFor::kNow : RoomFor::kLater;
  plan.cached_tokens = hit != nullptr ? hit->tokens : 0;
  if (!choice.has_value()) {
    hit = nullptr;
    for (const auto& each : found) {
      plan.cached_tokens = std::max<int64_t>(plan.cached_tokens, each.hit.tokens);
    }
    PageDemand all = demand;
    all.reserved = 0;
    choice = ChooseRing(all, ranks_.page_counts(), {}, options_.limits);
    ANNULUS_CHECK(choice.has_value()) << "a plan of what never fits";
  }
  DescribeRanks(*choice, hit, plan);
  return *std::move(choice);
}

void Coordinator::DescribeRanks(const RingChoice& choice, const PrefixIndex::Hit* hit,
                                RequestPlan& plan) const {
  const std::vector<int32_t> held = PagesHeld(choice, hit, options_.limits);
  const std::vector<int32_t> fresh = PagesHeld(choice, nullptr, options_.limits);
  for (const int32_t rank : choice.ring) {
    const RankFacts& facts = ranks_.facts()[rank];
    plan.ranks.push_back({.rank = rank,
                          .kv_bytes = held[rank] * facts.page_bytes,
                          .cached_bytes = (held[rank] - fresh[rank]) * facts.page_bytes,
                          .kv_bytes_total = facts.pages * facts.page_bytes});
  }
}

}  // namespace annulus
