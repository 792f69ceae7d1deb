// The part of Coordinator that decides which request begins, and begins it.

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/base/field_error.h"
#include "engine/coordinator/coordinator.h"
#include "engine/pages/request_pages.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Tokens of prompts that one pass looks through, hashing them, before it leaves the rest to the
// next: some ten milliseconds. The last prompt may go beyond.
constexpr int64_t kMostTokensOfPass = int64_t{1} << 20;

// The block size that all policies other than dense share.
int32_t BlockOf(const AttentionAssignment& attention) {
  if (!AttendsAll(attention.policy)) return attention.policy.block;
  for (const AttentionRule& rule : attention.rules) {
    if (!AttendsAll(rule.policy)) return rule.policy.block;
  }
  return attention.policy.block;
}

}  // namespace

// What admission asks of the coordinator.
class Coordinator::AdmissionSide final : public AdmissionHost {
 public:
  explicit AdmissionSide(Coordinator& own)
      : own_(own), places_(own.serving_.CountPlaces(own.state_, own.requests_)) {
    own.looked_through_ = 0;
  }
  bool HasTime() override { return own_.looked_through_ < kMostTokensOfPass; }
  bool HasPlace(const Contender& contender) override { return places_.Has(contender.share); }
  bool Waits(const Contender& contender, const Contender* large) override {
    const Request& request = *own_.requests_.at(contender.id);
    const Request* const other = large == nullptr ? nullptr : own_.requests_.at(large->id).get();
    // One that was preempted while its reader was behind would only be parked again.
    if (request.has_begun() && !own_.requests_.at(contender.id)->sink().HasRoom()) return true;
    return own_.WaitsForPrefix(request) || own_.WaitsForPages(request, other);
  }
  Answer TryAdmit(const Contender& contender, const Contender* large) override {
    const Request* const other = large == nullptr ? nullptr : own_.requests_.at(large->id).get();
    Answer answer = Answer::kNoRoom;
    const auto admit = [&] {
      Request& request = *own_.requests_.at(contender.id);
      own_.looked_through_ += request.tokens_to_read();
      if (own_.IsKept(request)) {
        kept_.push_back(contender.id);
        return absl::OkStatus();
      }
      if (absl::Status room = own_.CheckPinRoom(request.spec()); !room.ok()) return room;
      ANNULUS_ASSIGN_OR_RETURN(answer, own_.TryAdmit(request, other));
      return answer == Answer::kNoRoom ? own_.CheckRoomBesidePins(request) : absl::OkStatus();
    };
    if (absl::Status status = Guarded(admit, NoMemoryError); !status.ok()) {
      const PageOwner owner = OwnerOfRequest(contender.id);
      if (own_.pages_.IsOpen(owner)) own_.pages_.Release(owner);
      failed_.emplace_back(contender.id, std::move(status));
      return Answer::kAdmitted;  // it waits no more
    }
    if (!kept_.empty() && kept_.back() == contender.id) return Answer::kAdmitted;  // so does it
    if (answer == Answer::kAdmitted) {
      places_.Take(contender.share);
      own_.waiting_.erase(std::find(own_.waiting_.begin(), own_.waiting_.end(), contender.id));
      --own_.waiting_count_;
    }
    return answer;
  }

  const std::vector<std::pair<RequestId, absl::Status>>& failed() const { return failed_; }
  const std::vector<RequestId>& kept() const { return kept_; }

 private:
  Coordinator& own_;
  Places places_;
  // Requests for which the system had no memory, or pinned documents or their tenants' quotas leave
  // no room.
  std::vector<std::pair<RequestId, absl::Status>> failed_;
  std::vector<RequestId> kept_;  // requests whose whole prompt, to be read ahead, is cached
};

void Coordinator::AdmitWaiting() {
  const SteadyTime now = clock_.Now();
  if (!left_.empty()) return;  // more room comes in this very turn
  // Room goes to those that run first.
  if (waiting_.empty() || lacks_pages_ || !serving_.PassIsDue(now)) return;
  AdmissionSide side(*this);
  int position = 0;
  for (const RequestId id : serving_.Admit(waiting_, requests_, side, now)) {
    Request& request = *requests_.at(id);
    if (request.sequence() == nullptr) request.ReportQueued(position++);
  }
  // The next turn goes on where this pass was cut off, as the results so far are remembered.
  if (!side.HasTime()) serving_.NoteArrival();
  for (const auto& [id, status] : side.failed()) Finish(id, FinishReason::kError, status);
  for (const RequestId id : side.kept()) {
    requests_.at(id)->SetAllCached();
    Finish(id, FinishReason::kPrefilled, absl::OkStatus());
  }
}

// Whether the request is only to read ahead, and its whole prompt is cached.
bool Coordinator::IsKept(Request& request) {
  if (!request.spec().prefill_only || request.spec().ignore_cache) return false;
  return prefixes_.HasAll(request.spec(), TakePolicy(request).get());
}

// Whether a running request is now computing the beginning of this one: waiting for those pages is
// faster than computing them a second time. If the running request ends early, its pages are kept
// and this one goes on from there; if it makes no progress, nobody waits for it.
bool Coordinator::WaitsForPrefix(const Request& request) {
  const RequestSpec& spec = request.spec();
  if (spec.ignore_cache) return false;
  const AttentionAssignment& policy =
      spec.attention.has_value() ? *spec.attention : options_.attention;
  int32_t longest = 0;
  Sequence* from = nullptr;
  for (const auto& sequence : state_.running) {
    if (!sequence->in_prefill() || sequence->paused || checks_.contains(sequence->id)) continue;
    const auto [known, is_new] = common_.try_emplace({request.id(), sequence->id}, 0);
    if (is_new) {
      known->second = prefixes_.Common(spec, policy, *sequence, requests_.at(sequence->id)->spec());
    }
    const int32_t common = known->second;
    const bool worth_it = common >= 1024 || 2 * common >= request.prompt_tokens();
    if (!worth_it || common <= longest) continue;
    longest = common;
    from = sequence.get();
  }
  if (from == nullptr) return false;
  if (from->computed < longest) {
    const int32_t layers = from->suspended.has_value() ? from->suspended->layers : 0;
    return !standstill_.Look(from->id, (int64_t{from->computed} << 16) + layers, state_.step,
                             clock_.Now());
  }
  int32_t& kept = kept_common_[from->id];
  if (longest > kept) {
    const auto keep = [&] {
      prefixes_.KeepCommon(longest, *from, *requests_.at(from->id));
      return absl::OkStatus();
    };
    // Without memory for it, this one computes it once more.
    Guarded(keep, NoMemoryError).IgnoreError();
    kept = longest;
  }
  return false;
}

// The request has ended.
void Coordinator::ForgetCommon(const Request& request) {
  const RequestId id = request.id();
  const auto waited = common_.lower_bound({id, 0});
  auto end = waited;
  while (end != common_.end() && end->first.first == id) ++end;
  common_.erase(waited, end);
  if (request.sequence() == nullptr) return;  // nobody waited for it
  std::erase_if(common_, [id](const auto& entry) { return entry.first.second == id; });
  kept_common_.erase(id);
  standstill_.Forget(id);
}

// Whether a tier is now reading back the beginning of this request. Asks it to if it has more of it
// than memory and reading is faster than computing. `large`: as for TryAdmit.
bool Coordinator::WaitsForPages(const Request& request, const Request* large) {
  if (tier_ == nullptr || request.spec().ignore_cache) return false;
  const RequestId id = request.id();
  using Verdict = RestoreVerdicts::Verdict;
  Verdict verdict = tier_->verdicts().Of(id);
  if (verdict == Verdict::kSettled) return false;
  if (RestoreVerdicts::IsWait(verdict)) return true;
  const PageOwner owner = tier_->restorer().NewOwner();
  bool begun = false;
  const auto look = [&] {
    const RequestSpec& spec = request.spec();
    looked_through_ += request.tokens_to_read();
    const AttentionAssignment& asked = spec.attention.value_or(options_.attention);
    const bool own = !asked.dense() && !asked.automatic();
    const AttentionAssignment policy =
        own ? ResolveAssignment(asked, std::ssize(spec.prompt) + spec.sampling.max_tokens) : asked;
    const AttentionAssignment* const under = own ? &policy : nullptr;
    SavedBeginning kept = tier_->lookup().Find(spec, under, prefixes_.RopeLengthOf(spec));
    const bool has_all = spec.prefill_only && prefixes_.HasAll(spec, under);
    const auto in_memory = static_cast<int32_t>(has_all ? std::ssize(spec.prompt)
                                                        : prefixes_.LongestFound(spec, under));
    const int32_t saved_to = std::max(in_memory, kept.tokens - tier_->checked_tokens());
    // Dense pages go on where memory's end; others stand on their own.
    std::optional<PrefixReuse::Found> before;
    if (kept.tokens > in_memory && !kept.policy.has_value()) {
      before = prefixes_.FindFull(spec, tier_->lookup().MostBefore(kept));
    }
    const double computed = serving_.PromptSeconds(in_memory, saved_to);
    bool lacks_room = false;
    for (const auto* const from : PlacesToRestore(DemandOf(request), kept.tokens, before)) {
      // A verdict for another place, to which more is read, does not apply to this one.
      if (verdict == Verdict::kSettled) tier_->verdicts().NoRoom(id);
      const int32_t there = from == nullptr ? 0 : from->hit.tokens;
      verdict = tier_->verdicts().Judge(id, spec.tenant, kept, {in_memory, there}, computed);
      const bool waits = RestoreVerdicts::IsWait(verdict);
      const bool ready = verdict == Verdict::kReady;
      begun = ready && BeginRestore(request, kept, from, owner, large);
      lacks_room = !begun && !waits && (lacks_room || ready);
      if (begun || waits) break;
    }
    if (lacks_room) tier_->verdicts().NoRoom(id);
    return absl::OkStatus();
  };
  if (!Guarded(look, NoMemoryError).ok()) {
    tier_->restorer().Abort(id, owner);
    return false;
  }
  return begun || RestoreVerdicts::IsWait(verdict);
}

// Whether there is room for what the tier is to bring back: behind what memory has, or, if `before`
// is null, all of it. Takes `kept` if there is.
bool Coordinator::BeginRestore(const Request& request, SavedBeginning& kept,
                               const PrefixReuse::Found* before, PageOwner owner,
                               const Request* large) {
  const RequestSpec& spec = request.spec();
  const PrefixIndex::Hit* const hit = before != nullptr ? &before->hit : nullptr;
  PageDemand demand = DemandOf(request);
  pages_.Open(owner, spec.tenant);
  if (hit != nullptr) {
    HoldPages(*hit, owner, pages_);
    CountCached(*hit, options_.limits, demand);
    LeaveHeld(*hit, pins_, demand);
  }
  const std::vector<int32_t> ring = hit != nullptr ? before->ring : std::vector<int32_t>();
  // Room that is gathered for a large request must not be taken by others' pages.
  const auto will_do = [&](const RingChoice& choice) {
    if (!FindTenantRoom(spec, choice)) return false;
    return large == nullptr || room_kept_.LeavesRoom(large->id(), DemandOf(*large),
                                                     MostPagesHeld(choice, hit, options_.limits),
                                                     pages_, options_.limits);
  };
  std::optional<RingChoice> choice = MakeRoom(spec, demand, ring, will_do);
  if (!choice.has_value()) {
    pages_.Release(owner);
    return false;
  }
  tier_->restorer().Begin(request, std::move(kept), hit, choice->ring, owner);
  return true;
}

Coordinator::Lookup Coordinator::LookUp(const RequestSpec& spec,
                                        const AttentionAssignment* policy) {
  Lookup lookup;
  lookup.found = prefixes_.Find(spec, policy, &lookup.nearest);
  for (const PrefixReuse::Found& each : lookup.found) {
    lookup.longest = std::max<int64_t>(lookup.longest, each.hit.tokens);
  }
  if (!spec.ignore_cache) return lookup;
  lookup.found.clear();
  lookup.ignored = lookup.longest > 0 ||
                   (tier_ != nullptr &&
                    tier_->lookup().Find(spec, policy, prefixes_.RopeLengthOf(spec)).tokens > 0);
  return lookup;
}

std::optional<CacheMiss> Coordinator::WhyNoMore(const Request& request,
                                                const AttentionAssignment* policy,
                                                const Lookup& lookup, int32_t cached) const {
  const RequestSpec& spec = request.spec();
  if (spec.ignore_cache) {
    if (!lookup.ignored) return std::nullopt;
    return CacheMiss{CacheMiss::Reason::kIgnored, 0};
  }
  const auto disk = tier_ != nullptr ? tier_->verdicts().WhyNoMore(request.id()) : std::nullopt;
  if (disk.has_value() && disk->position >= cached) return disk;
  if (cached < lookup.longest) return std::nullopt;
  const auto miss = prefixes_.WhyNoMore(spec, policy, lookup.nearest, cached);
  if (miss.has_value() && miss->reason != CacheMiss::Reason::kOtherTokens) return miss;
  const int32_t known = lookup.nearest.whole;
  if (tier_ != nullptr &&
      tier_->lookup().HasUnderAnotherIdentity(spec, policy, prefixes_.RopeLengthOf(spec), known)) {
    return CacheMiss{CacheMiss::Reason::kOtherModel, known};
  }
  return miss;
}

// The policies in effect for a request; null: dense.
std::shared_ptr<const AttentionAssignment> Coordinator::TakePolicy(Request& request) {
  if (request.has_begun()) return nullptr;  // only dense ones are preempted, and stay so
  std::string choice;
  auto taken = PolicyOf(request.spec(), choice);
  if (!choice.empty()) request.SetAttentionChoice(std::move(choice));
  return taken;
}

// `choice`: why, where `auto` is asked for.
std::shared_ptr<const AttentionAssignment> Coordinator::PolicyOf(const RequestSpec& spec,
                                                                 std::string& choice) {
  AttentionAssignment taken = spec.attention.value_or(options_.attention);
  const int64_t prompt = std::ssize(spec.prompt);
  if (taken.automatic()) {
    const auto cached = [&](const AttentionPolicy& policy) -> int64_t {
      if (spec.ignore_cache) return 0;
      const AttentionAssignment alone = policy;
      return prefixes_.LongestFound(spec, alone.dense() ? nullptr : &alone);
    };
    AutoPolicy::Choice chosen = automatic_.Choose(taken.policy, prompt, cached);
    choice = std::move(chosen.reason);
    taken = AttentionAssignment(std::move(chosen.policy));
  }
  if (taken.dense()) return nullptr;
  return std::make_shared<const AttentionAssignment>(
      ResolveAssignment(taken, prompt + spec.sampling.max_tokens));
}

std::shared_ptr<const PatternPairs> Coordinator::PatternPairsOf(
    const AttentionAssignment* attention, int64_t tokens) const {
  if (ClassOf(attention) != AttentionClass::kPattern) return nullptr;
  return std::make_shared<const PatternPairs>(*attention, LayersWithPairs(options_.limits),
                                              options_.modes.geometry.page.kv_heads, tokens);
}

// What the request needs if nothing of it is cached.
PageDemand Coordinator::DemandOf(const Request& request) const {
  if (request.has_begun()) return DemandOf(request.spec(), nullptr);
  const AttentionAssignment attention = request.spec().attention.value_or(options_.attention);
  return DemandOf(request.spec(), attention.dense() ? nullptr : &attention);
}

// The same under the policies that it will have; null: dense.
PageDemand Coordinator::DemandOf(const RequestSpec& spec,
                                 const AttentionAssignment* attention) const {
  PageDemand demand = Demand(spec, options_.limits.page_tokens);
  if (attention != nullptr) demand.summarised = ranks_.PagesSummarised(SummariesOf(*attention));
  if (ReservesExpected(spec, attention)) ReserveExpected(spec, demand);
  return demand;
}

// Takes every page that the request can ever need, so that it cannot run out of pages later; or
// those that it is expected to need (ReservesExpected). Tokens that an earlier prompt left cached
// are shared instead of computed, but the last token is always computed.
absl::StatusOr<AdmissionHost::Answer> Coordinator::TryAdmit(Request& request,
                                                            const Request* large) {
  const std::vector<int32_t>& prompt = request.spec().prompt;
  std::shared_ptr<const AttentionAssignment> attention = TakePolicy(request);
  const PageDemand demand = DemandOf(request.spec(), attention.get());
  Lookup lookup = LookUp(request.spec(), attention.get());
  ANNULUS_ASSIGN_OR_RETURN(std::optional<Placement> placement,
                           Place(request, demand, std::move(lookup.found), large));
  if (!placement.has_value()) {
    return large == nullptr ? AdmissionHost::Answer::kNoRoom : AdmissionHost::Answer::kLeavesNoRoom;
  }
  const RingChoice& choice = placement->choice;
  if (large != nullptr) {
    room_kept_.Began(request.id(),
                     MostPagesHeld(choice, placement->hit.has_value() ? &*placement->hit : nullptr,
                                   options_.limits));
  }

  auto sequence = MakeSequence(request, OwnerOfRequest(request.id()), choice, std::move(attention),
                               prefixes_.RopeLengthOf(request.spec()));
  sequence->computed = placement->cached;
  if (demand.reserved > 0) sequence->reserved = static_cast<int32_t>(demand.reserved);
  ReservePages(choice, options_.limits, pages_, *sequence);
  if (placement->hit.has_value()) MapCached(*placement->hit, *sequence);
  sequence->report_lists = request.spec().attention_details;
  const bool again = request.has_begun();
  if (!again) {
    request.SetCacheMiss(WhyNoMore(request, sequence->attention.get(), lookup, placement->cached));
    request.SetRopeFactors(std::string(RopeFactors(options_.ropes, std::ssize(prompt))));
  }
  state_.running.reserve(state_.running.size() + 1);
  // If memory runs out before the sequence runs, the request still waits.
  absl::Cleanup undo = [&request, again] { request.TakeBackAdmission(again); };
  request.Admit(sequence.get());
  // Rows of a policy may depend on what their step holds; those of exact attention never do.
  const Speculation wanted = request.spec().speculation.value_or(options_.speculation);
  if (wanted == Speculation::kNgram && sequence->attention == nullptr &&
      !request.spec().prefill_only) {
    request.GuessAhead(PlannedTokens(*sequence));
  }
  if (!again) ReportBeginning(request, *sequence, placement->cached);
  std::move(undo).Cancel();
  state_.running.push_back(std::move(sequence));
  return AdmissionHost::Answer::kAdmitted;
}

// What is reported of a request's beginning, and stays if it is preempted.
void Coordinator::ReportBeginning(Request& request, const Sequence& sequence, int32_t cached) {
  if (tier_ != nullptr) {
    const TokensByTier restored = tier_->verdicts().Restored(request.id(), cached);
    request.SetRestored(restored.all(), restored.host, tier_->verdicts().Checked(request.id()));
  }
  if (sequence.report_lists && sequence.attention != nullptr) {
    const AttentionGeometry& geometry = options_.modes.geometry;
    request.attention_account().KeepDetails(AttentionDetails(geometry.heads, geometry.page.kv_heads,
                                                             request.prompt_tokens(),
                                                             BlockOf(*sequence.attention)));
  }
  prefixes_.InheritCoverage(request);
  metrics_.request_queue_time.Observe(request.timings().queue);
  metrics_.prefix_cache_queries.Add(static_cast<double>(request.prompt_tokens()));
  metrics_.prefix_cache_hits.Add(cached);
}

// Without pages.
std::unique_ptr<Sequence> Coordinator::MakeSequence(
    const Request& request, PageOwner owner, const RingChoice& choice,
    std::shared_ptr<const AttentionAssignment> attention, int64_t rope_length) const {
  const std::vector<int32_t>& prompt = request.spec().prompt;
  const std::vector<int> homes = HomesOnRanks();
  auto sequence = std::make_unique<Sequence>();
  sequence->id = request.id();
  sequence->owner = owner;
  sequence->prompt_length = static_cast<int32_t>(prompt.size());
  sequence->answered = request.spec().answered;
  sequence->ring = choice.ring;
  const auto has_fewer = [&](int a, int b) { return homes[a] < homes[b]; };
  sequence->home = options_.ranks_share_machine  // see RankToJoin
                       ? *std::max_element(choice.ring.begin(), choice.ring.end(), has_fewer)
                       : *std::min_element(choice.ring.begin(), choice.ring.end(), has_fewer);
  auto setup = std::make_shared<SamplingSetup>();
  setup->params = request.spec().sampling;
  if (setup->params.repetition_penalty != 1) {
    setup->prompt.assign(prompt.begin(), prompt.end() - sequence->answered);
  }
  setup->end_of_text_ids = end_of_text_ids_;
  setup->vocabulary = vocabulary_;
  sequence->setup = std::move(setup);
  // Room for the whole answer now: a vector that grows moves, and holds its ids twice meanwhile.
  sequence->tokens.reserve(static_cast<size_t>(PlannedTokens(*sequence)));
  sequence->tokens.assign(prompt.begin(), prompt.end());
  sequence->attention = std::move(attention);
  sequence->pattern_pairs = PatternPairsOf(sequence->attention.get(), sequence->prompt_length);
  sequence->rope_length = rope_length;
  return sequence;
}

}  // namespace annulus
