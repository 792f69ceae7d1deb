#include "engine/coordinator/admission/start_finder.h"

#include <algorithm>
#include <utility>

#include "engine/pages/request_pages.h"

namespace annulus {

std::vector<int> StartFinder::Load() const {
  return options_.ranks_share_machine ? std::vector<int>() : ledger_.SequencesByRank();
}

std::vector<StartFinder::Candidate> StartFinder::Candidates(
    const PageDemand& demand, std::vector<PrefixReuse::Found>& found) const {
  const PlanLimits& limits = options_.limits;
  const bool share = options_.ranks_share_machine;
  const std::vector<int> running = ledger_.SequencesByRank();
  const std::vector<int> none(running.size(), 0);
  const std::vector<int32_t> pages = ledger_.PagesWithoutUse();
  std::vector<std::pair<double, Candidate>> order;
  for (PrefixReuse::Found& each : found) {
    // If ranks share the machine, those that others run on are no slower.
    const bool alike = share && annulus::LeavesRoom(each.ring, pages);
    const int64_t rest = demand.tokens - each.hit.tokens;
    order.emplace_back(RestOfWork(rest, each.ring, alike ? none : running, limits),
                       Candidate{&each, each.ring});
  }
  const double fresh = FreshWork(demand, share ? none : running, limits);
  // Expected answers may grow beyond what is free on one rank.
  if (share && options_.engine.admission == AdmissionMode::kWorst) {
    const auto rank = RankToJoin(demand, ledger_.HomesByRank(), ledger_.FreePages(), limits);
    if (rank.has_value()) order.emplace_back(fresh, Candidate{nullptr, {*rank}});
  }
  order.emplace_back(fresh, Candidate());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Candidate> candidates;
  for (auto& [work, candidate] : order) candidates.push_back(std::move(candidate));
  return candidates;
}

// Of a long text, memory may have the first pages alone, say a system prompt, on fewer ranks than
// the text is worth. To read a token again counts as much as to compute one, though it takes less:
// otherwise the tier would not be asked.
std::vector<const PrefixReuse::Found*> StartFinder::RestoreTargets(
    const PageDemand& demand, int32_t tokens,
    const std::optional<PrefixReuse::Found>& before) const {
  if (!before.has_value()) return {nullptr};
  const std::vector<int> running = ledger_.SequencesByRank();
  const int64_t rest = demand.tokens - tokens;
  const double again =
      static_cast<double>(rest + before->hit.tokens) / static_cast<double>(demand.tokens);
  const double fresh = FreshWork(demand, running, options_.limits) * again;
  if (fresh < RestOfWork(rest, before->ring, running, options_.limits)) return {nullptr, &*before};
  return {&*before, nullptr};
}

bool StartFinder::IsWorthRing(const PageDemand& demand, int32_t tokens,
                              const std::vector<int32_t>& ring) const {
  const std::vector<int> running = ledger_.SequencesByRank();
  return RestOfWork(demand.tokens - tokens, ring, running, options_.limits) <=
         FreshWork(demand, running, options_.limits);
}

void StartFinder::HoldHit(const PrefixIndex::Hit& hit, PageOwner owner, PageDemand& demand) {
  HoldPages(hit, owner, ledger_.book());
  CountCached(hit, options_.limits, demand);
  LeaveHeld(hit, ledger_.book(), demand);
}

std::optional<RingChoice> StartFinder::MakeRoom(
    const RequestSpec& spec, const PageDemand& demand, const std::vector<int32_t>& fixed,
    const std::function<bool(const RingChoice&)>& accepts) {
  const std::vector<int> load = Load();
  std::optional<RingChoice> choice;
  const auto found = [&] {
    choice = ChooseRing(demand, ledger_.FreePages(), fixed, options_.limits, load);
    return choice.has_value();
  };
  const auto chosen = [&] {
    return accepts(*choice) && quota_.MakeRoom(spec, *choice) ? choice : std::nullopt;
  };
  if (found()) return chosen();
  const auto choose_of_most = [&] {
    return ChooseRing(demand, ledger_.PagesWithoutUse(), fixed, options_.limits, load);
  };
  auto most = choose_of_most();
  if (!most.has_value() && ledger_.LetGoOfWrites()) most = choose_of_most();
  if (!most.has_value() || !accepts(*most) || !quota_.MakeRoom(spec, *most)) return std::nullopt;
  if (!ledger_.prefixes().index().Evict(found)) return std::nullopt;
  return chosen();
}

bool StartFinder::LeavesRoom(const Request* large, const RingChoice& choice,
                             const PrefixIndex::Hit* hit) {
  if (large == nullptr) return true;
  return room_kept_.LeavesRoom(large->id(), needs_.Of(*large),
                               MostPagesHeld(choice, hit, options_.limits), ledger_.book(),
                               options_.limits);
}

bool StartFinder::KeepsReserve(const PageDemand& demand, const PrefixIndex::Hit* hit,
                               const Request* large) {
  if (!reserve_.Fits({demand, hit})) return false;
  const auto stays = [this](RequestId id) { return room_kept_.HasBegun(id); };
  return large == nullptr || reserve_.LeavesRoom(needs_.Of(*large), stays, {demand, hit});
}

void StartFinder::NotePlaced(const PageDemand& demand, const Start& start) {
  reserve_.NoteBegun({demand, start.hit.has_value() ? &*start.hit : nullptr});
}

void StartFinder::NoteBegun(RequestId id, const Start& start) {
  const PrefixIndex::Hit* const hit = start.hit.has_value() ? &*start.hit : nullptr;
  room_kept_.Began(id, MostPagesHeld(start.choice, hit, options_.limits));
}

absl::StatusOr<std::optional<Start>> StartFinder::Find(const Request& request,
                                                       const PageDemand& demand,
                                                       std::vector<PrefixReuse::Found> found,
                                                       const Request* large) {
  absl::Status full;
  const auto fits = [&](const Candidate& candidate) -> std::optional<Start> {
    PrefixReuse::Found* const from = candidate.from;
    const PrefixIndex::Hit* const hit = from != nullptr ? &from->hit : nullptr;
    PageDemand rest = demand;
    const PageOwner owner = OwnerOfRequest(request.id());
    ledger_.book().Open(owner, request.spec().tenant);
    if (hit != nullptr) HoldHit(*hit, owner, rest);
    const auto accepts = [&](const RingChoice& choice) {
      if (!quota_.FindRoom(request.spec(), choice)) {
        full = quota_.FullError(request.spec(), choice);
        return false;
      }
      return LeavesRoom(large, choice, hit) && KeepsReserve(demand, hit, large);
    };
    auto choice = MakeRoom(request.spec(), rest, candidate.ring, accepts);
    if (!choice.has_value()) {
      ledger_.book().Release(owner);
      return std::nullopt;
    }
    Start start{*std::move(choice), std::nullopt, rest.cached};
    if (from != nullptr) start.hit = std::move(from->hit);
    return start;
  };
  for (const Candidate& candidate : Candidates(demand, found)) {
    std::optional<Start> start = fits(candidate);
    if (start.has_value()) return start;
  }
  if (!full.ok()) return full;
  return std::nullopt;
}

}  // namespace annulus
