#include "engine/coordinator/planning/plan_answers.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/coordinator/admission/room_kept.h"
#include "engine/scheduler/step_cost.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

constexpr PageOwner kPlanner{PageOwner::Kind::kPlan, 1};

// Keeps the planner open in the book for as long as it lives.
class OpenPlanner {
 public:
  OpenPlanner(PageBook& book, const TenantId& tenant) : book_(book) {
    book_.Open(kPlanner, tenant);
  }
  ~OpenPlanner() { book_.Release(kPlanner); }
  OpenPlanner(const OpenPlanner&) = delete;
  OpenPlanner& operator=(const OpenPlanner&) = delete;

 private:
  PageBook& book_;
};

}  // namespace

RequestPlan PlanAnswers::Answer(const RequestSpec& spec) {
  use_.finder.BeginPass();
  RequestPlan plan;
  const auto attention = use_.policies.Choose(spec, plan.choice);
  if (attention != nullptr) plan.policy = AssignmentText(*attention);
  plan.requests_ahead = static_cast<int>(use_.ledger.waiting().size());
  if (const PageTier* const tier = use_.ledger.tier(); tier != nullptr && !spec.ignore_cache) {
    const int64_t rope = use_.ledger.prefixes().RopeLengthOf(spec);
    const TokensByTier saved =
        tier->lookup().Where(tier->lookup().Find(spec, attention.get(), rope));
    plan.host_tokens = saved.host;
    plan.disk_tokens = saved.disk;
  }
  const RingChoice choice = PlanStart(spec, attention.get(), plan);
  if (plan.room != RoomFor::kNow) return plan;
  const auto pairs = use_.policies.PairsOf(attention.get(), std::ssize(spec.prompt));
  const PromptState prompt{.computed = static_cast<int32_t>(plan.cached_tokens),
                           .prompt_length = static_cast<int32_t>(spec.prompt.size()),
                           .attention = {ClassOf(attention.get()), pairs.get()},
                           .degree = static_cast<int>(choice.ring.size())};
  plan.seconds = use_.serving.Expect(spec, prompt, use_.ledger.state(), use_.ledger.requests(),
                                     use_.clock.Now());
  return plan;
}

std::optional<RingChoice> PlanAnswers::ChooseNow(const RequestSpec& spec, const PageDemand& demand,
                                                 std::vector<PrefixReuse::Found>& found,
                                                 const PrefixIndex::Hit*& hit) {
  const PlanLimits& limits = use_.options.limits;
  const std::vector<int> load = use_.finder.Load();
  for (const auto& [from, ring] : use_.finder.Candidates(demand, found)) {
    const OpenPlanner planner(use_.ledger.book(), spec.tenant);
    PageDemand rest = demand;
    hit = from != nullptr ? &from->hit : nullptr;
    if (hit != nullptr) use_.finder.HoldHit(*hit, kPlanner, rest);
    auto choice = ChooseRing(rest, use_.ledger.FreePages(), ring, limits, load);
    if (!choice.has_value()) {
      choice = ChooseRing(rest, use_.ledger.PagesWithoutUse(), ring, limits, load);
    }
    if (choice.has_value()) return choice;
  }
  return std::nullopt;
}

RingChoice PlanAnswers::PlanStart(const RequestSpec& spec, const AttentionAssignment* attention,
                                  RequestPlan& plan) {
  const PageDemand demand = use_.needs.Of(spec, attention);
  std::vector<PrefixReuse::Found> found;
  if (!spec.ignore_cache) found = use_.ledger.prefixes().Find(spec, attention);
  const PrefixIndex::Hit* hit = nullptr;
  std::optional<RingChoice> choice = ChooseNow(spec, demand, found, hit);
  const bool now = choice.has_value() && use_.quota.MayHave(spec, *choice) &&
                   use_.finder.KeepsReserve(demand, hit, /*large=*/nullptr);
  plan.room = now ? RoomFor::kNow : RoomFor::kLater;
  plan.cached_tokens = hit != nullptr ? hit->tokens : 0;
  if (!choice.has_value()) {
    hit = nullptr;
    for (const auto& each : found) {
      plan.cached_tokens = std::max<int64_t>(plan.cached_tokens, each.hit.tokens);
    }
    PageDemand all = demand;
    all.reserved = all.most_ranks = 0;
    choice = ChooseRing(all, use_.ranks.page_counts(), {}, use_.options.limits);
    ANNULUS_CHECK(choice.has_value()) << "a plan of what never fits";
  }
  DescribeRanks(*choice, hit, plan);
  return *std::move(choice);
}

void PlanAnswers::DescribeRanks(const RingChoice& choice, const PrefixIndex::Hit* hit,
                                RequestPlan& plan) const {
  const std::vector<int32_t> held = PagesHeld(choice, hit, use_.options.limits);
  const std::vector<int32_t> fresh = PagesHeld(choice, nullptr, use_.options.limits);
  for (const int32_t rank : choice.ring) {
    const RankFacts& facts = use_.ranks.facts()[rank];
    plan.ranks.push_back({.rank = rank,
                          .kv_bytes = held[rank] * facts.page_bytes,
                          .cached_bytes = (held[rank] - fresh[rank]) * facts.page_bytes,
                          .kv_bytes_total = facts.pages * facts.page_bytes});
  }
}

}  // namespace annulus
