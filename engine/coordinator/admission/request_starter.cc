#include "engine/coordinator/admission/request_starter.h"

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "engine/coordinator/admission/cache_lookup.h"
#include "engine/coordinator/admission/memory_account.h"
#include "engine/pages/request_pages.h"
#include "engine/request/evidence_account.h"
#include "engine/runner/choice/evidence_masses.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// The block size that all policies other than dense share.
int32_t BlockOf(const AttentionAssignment& attention) {
  if (!AttendsAll(attention.policy)) return attention.policy.block;
  for (const AttentionRule& rule : attention.rules) {
    if (!AttendsAll(rule.policy)) return rule.policy.block;
  }
  return attention.policy.block;
}

}  // namespace

absl::StatusOr<AdmissionHost::Answer> RequestStarter::TryStart(Request& request,
                                                               const Request* large) {
  ANNULUS_RETURN_IF_ERROR(use_.needs.CheckFits(request));
  const AdmissionHost::Answer no_room =
      large == nullptr ? AdmissionHost::Answer::kNoRoom : AdmissionHost::Answer::kLeavesNoRoom;
  if (!HasEvidenceRoom(request, large)) return no_room;
  const RequestSpec& spec = request.spec();
  std::shared_ptr<const AttentionAssignment> attention = use_.policies.ChooseFor(request);
  const PageDemand demand = use_.needs.Of(spec, attention.get());
  CacheLookup lookup(request, attention.get(), use_.ledger);
  ANNULUS_ASSIGN_OR_RETURN(const std::optional<Start> start,
                           use_.finder.Find(request, demand, lookup.TakeFound(), large));
  if (!start.has_value()) return no_room;
  use_.finder.NotePlaced(demand, *start);
  if (large != nullptr) use_.finder.NoteBegun(request.id(), *start);
  std::unique_ptr<Sequence> sequence = MakeSequence(request, demand, *start, std::move(attention));
  const bool again = request.has_begun();
  if (!again) {
    const AttentionAssignment* const policy = sequence->attention.get();
    request.SetCacheMiss(lookup.WhyNoMore(request, policy, start->cached, use_.ledger));
    request.SetRopeFactors(std::string(RopeFactors(use_.options.ropes, std::ssize(spec.prompt))));
  }
  use_.ledger.ReserveToRun();
  // If memory runs out before the sequence runs, the request still waits.
  absl::Cleanup undo = [&request, again] { request.TakeBackAdmission(again); };
  request.Admit(sequence.get());
  // Rows of a policy may depend on what their step holds; those of exact attention never do.
  const Speculation wanted = spec.speculation.value_or(*use_.options.engine.speculation);
  if (wanted == Speculation::kNgram && sequence->attention == nullptr && !spec.prefill_only) {
    std::optional<OutputGuide> guide;
    if (spec.output.machine != nullptr) {
      guide.emplace(grammars_.NewMatcher(spec.output.machine, sequence->setup->end_of_text_ids));
    }
    request.GuessAhead(PlannedTokens(*sequence), std::move(guide));
  }
  if (!again) ReportBeginning(request, *sequence, start->cached);
  std::move(undo).Cancel();
  use_.ledger.Run(std::move(sequence));
  return AdmissionHost::Answer::kAdmitted;
}

// Whether it has room for its evidence, if it asks for any, beside the requests that run and, if
// room is gathered for it, `large`.
bool RequestStarter::HasEvidenceRoom(const Request& request, const Request* large) const {
  if (!request.spec().evidence) return true;
  size_t bytes = 0;
  const auto add = [&](std::span<const RowRange> ranges) {
    bytes += NeedForEvidence(use_.options.evidence_shape, ranges).of_request();
  };
  add(EvidenceRanges(request.spec().documents));
  if (large != nullptr && large->spec().evidence) add(EvidenceRanges(large->spec().documents));
  for (const auto& sequence : use_.ledger.state().running) {
    if (sequence->evidence != nullptr) add(sequence->evidence->ranges);
  }
  return bytes <= use_.options.evidence_room.requests;
}

// With the pages of the start.
std::unique_ptr<Sequence> RequestStarter::MakeSequence(
    const Request& request, const PageDemand& demand, const Start& start,
    std::shared_ptr<const AttentionAssignment> attention) {
  std::unique_ptr<Sequence> sequence =
      use_.sequences.Make(request, OwnerOfRequest(request.id()), start.choice, std::move(attention),
                          use_.ledger.prefixes().RopeLengthOf(request.spec()));
  sequence->computed = start.cached;
  if (demand.reserved > 0) sequence->reserved = static_cast<int32_t>(demand.reserved);
  ReservePages(start.choice, use_.options.limits, use_.ledger.book(), *sequence);
  if (start.hit.has_value()) MapCached(*start.hit, *sequence);
  sequence->report_lists = request.spec().attention_details;
  return sequence;
}

// The part of the report that is set at the start and kept after a preemption.
void RequestStarter::ReportBeginning(Request& request, const Sequence& sequence, int32_t cached) {
  if (const PageTier* const tier = use_.ledger.tier(); tier != nullptr) {
    const TokensByTier restored = tier->verdicts().Restored(request.id(), cached);
    request.SetRestored(restored.all(), restored.host, tier->verdicts().Checked(request.id()));
  }
  if (sequence.report_lists && sequence.attention != nullptr) {
    const AttentionGeometry& geometry = use_.options.modes.geometry;
    request.attention_account().KeepDetails(AttentionDetails(geometry.heads, geometry.page.kv_heads,
                                                             request.prompt_tokens(),
                                                             BlockOf(*sequence.attention)));
  }
  if (sequence.evidence != nullptr) {
    request.KeepEvidence(EvidenceBlock(use_.options.limits.page_tokens));
  }
  use_.ledger.prefixes().InheritCoverage(request);
  use_.metrics.request_queue_time.Observe(request.timings().queue);
  use_.metrics.prefix_cache_queries.Add(static_cast<double>(request.prompt_tokens()));
  use_.metrics.prefix_cache_hits.Add(cached);
}

}  // namespace annulus
