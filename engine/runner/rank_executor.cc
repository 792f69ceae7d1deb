#include "engine/runner/rank_executor.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "engine/model/experts/expert_cache.h"
#include "engine/runner/plan_check.h"
#include "engine/runner/step/step_run.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

bool NeedsGates(const std::optional<AttentionAssignment>& attention) {
  if (!attention.has_value()) return false;
  const auto gated = [](const AttentionPolicy& policy) {
    return EstimateOf(policy).source == BlockEstimate::Source::kGates;
  };
  return gated(attention->policy) ||
         std::any_of(attention->rules.begin(), attention->rules.end(),
                     [&](const AttentionRule& rule) { return gated(rule.policy); });
}

}  // namespace

RankResult RankExecutor::Execute(const StepPlan& plan) {
  RankResult result;
  const auto run = [&]() -> absl::Status {
    ANNULUS_RETURN_IF_ERROR(ApplyUpdates(plan));
    state_.messages = ChoiceMessages();
    state_.parts.arena->Reset();
    if (state_.parts.host_arena != state_.parts.arena) state_.parts.host_arena->Reset();
    ANNULUS_RETURN_IF_ERROR(StepRun(state_, plan).Run(result));
    return state_.choice.link.Flush();
  };
  result.status = Guarded(run, NoMemoryError);
  if (!result.status.ok()) AbortPeers(result.status);
  result.ring = state_.ring.TakeCounters();
  return result;
}

void RankExecutor::AbortPeers(const absl::Status& why) {
  state_.parts.channel->Abort(why);
  if (ExpertCache* const experts = state_.weights().expert_cache.get()) experts->Abort(why);
}

// Equal parts share a policy object, and with it the caches keyed by its identity.
void RankExecutor::SetAttention(const std::optional<AttentionAssignment>& assignment,
                                RankSequence& sequence) const {
  sequence.attention.clear();
  sequence.summary_kinds = {};
  sequence.ruled = assignment.has_value() && !assignment->rules.empty();
  if (!assignment.has_value()) return;
  std::vector<std::shared_ptr<const AttentionPolicy>> policies;
  for (int layer = 0; layer < state_.model().layers(); ++layer) {
    std::vector<SequencePart>& parts = sequence.attention.emplace_back();
    for (LayerPart& part : PartsOf(*assignment, layer, state_.model().page_shape.kv_heads)) {
      auto known = std::find_if(policies.begin(), policies.end(),
                                [&](const auto& policy) { return *policy == part.policy; });
      if (known == policies.end()) {
        policies.push_back(std::make_shared<const AttentionPolicy>(std::move(part.policy)));
        known = std::prev(policies.end());
      }
      parts.push_back({*known, std::move(part.heads)});
    }
  }
  sequence.summary_kinds = SummariesOf(*assignment);
}

// A new ring holds other pages: the pages of the old ring are announced again.
absl::Status RankExecutor::SetTerms(const SequenceTerms& terms, RankSequence& sequence) const {
  if (NeedsGates(terms.attention) && state_.model().gates == nullptr) {
    return absl::InvalidArgumentError("the plan attends by gates, and this rank has none");
  }
  ANNULUS_RETURN_IF_ERROR(CheckEvidence(terms, state_.model()));
  if (sequence.ring != terms.ring) sequence.groups.clear();
  const SummaryKinds kinds_before = sequence.summary_kinds;
  const bool same_pages = sequence.ring == terms.ring && sequence.summary_pages == terms.summaries;
  sequence.version = terms.version;
  sequence.ring = terms.ring;
  sequence.home = terms.home;
  SetAttention(terms.attention, sequence);
  // What the pages before held is not in others, nor where other kinds lie in them.
  if (!same_pages || sequence.summary_kinds != kinds_before) sequence.summaries.clear();
  sequence.summaries.resize(sequence.attention.size());
  sequence.summary_pages = terms.summaries;
  sequence.report_lists = terms.report_lists;
  sequence.evidence = terms.evidence;
  if (sequence.rope_length == terms.rope_length) return absl::OkStatus();
  sequence.rope_length = terms.rope_length;
  sequence.inverse_frequencies.clear();
  for (const RopeConfig& rope : state_.model().config.ropes) {
    sequence.inverse_frequencies.push_back(InverseFrequencies(rope, terms.rope_length));
  }
  return absl::OkStatus();
}

absl::Status RankExecutor::ApplyUpdate(const SequenceUpdate& update) {
  RankSequence& sequence = state_.sequences[update.sequence];
  if (update.terms.has_value()) ANNULUS_RETURN_IF_ERROR(SetTerms(*update.terms, sequence));
  if (sequence.version == 0 || sequence.version != update.version) {
    return absl::InvalidArgumentError(
        absl::StrCat("the plan names version ", update.version, " of the terms of sequence ",
                     update.sequence, "; rank ", state_.parts.rank, " has ", sequence.version));
  }
  ANNULUS_RETURN_IF_ERROR(CheckTables(update, sequence, state_.model()));
  sequence.groups.resize(update.tables.size());
  for (size_t g = 0; g < update.tables.size(); ++g) {
    const TableDelta& delta = update.tables[g];
    std::vector<PageEntry>& entries = sequence.groups[g];
    entries.erase(entries.begin(), entries.begin() + delta.drop_front);
    entries.insert(entries.end(), delta.append.begin(), delta.append.end());
  }
  sequence.begins_answer = update.setup.has_value() && update.setup->generated.empty();
  if (!update.setup.has_value() || sequence.home != state_.parts.rank) return absl::OkStatus();
  const SamplingSetup& setup = *update.setup;
  std::optional<GrammarMatcher> output;
  if (setup.output.has_value()) {
    if (!state_.grammars.can_match()) {
      return absl::InvalidArgumentError(
          "the plan constrains an answer, and this rank has no vocabulary");
    }
    output.emplace(state_.grammars.NewMatcher(setup.output.pointer(), setup.end_of_text_ids));
  }
  sequence.sampler = std::make_unique<Sampler>(
      setup.params, setup.vocabulary, setup.end_of_text_ids, setup.forced, std::move(output));
  sequence.sampler->ObservePrompt(setup.prompt);
  for (const int32_t token : setup.generated) sequence.sampler->Observe(token);
  return absl::OkStatus();
}

void RankExecutor::ForgetEnded(std::span<const SequenceId> ended) {
  for (const SequenceId id : ended) {
    state_.sequences.erase(id);
    if (state_.suspended.has_value() && state_.suspended->chunk.items[0].sequence == id)
      state_.suspended.reset();
  }
}

absl::Status RankExecutor::ApplyUpdates(const StepPlan& plan) {
  ForgetEnded(plan.ended);
  ANNULUS_RETURN_IF_ERROR(
      CheckStretch(plan, state_.suspended.has_value() ? &state_.suspended->chunk : nullptr,
                   state_.model().layers()));
  for (const SequenceUpdate& update : plan.updates) ANNULUS_RETURN_IF_ERROR(ApplyUpdate(update));
  for (const PlanItem& item : plan.items) {
    const auto known = state_.sequences.find(item.sequence);
    if (known == state_.sequences.end()) {
      return absl::InvalidArgumentError(absl::StrCat("the plan has rows of sequence ",
                                                     item.sequence, ", which rank ",
                                                     state_.parts.rank, " does not know"));
    }
    ANNULUS_RETURN_IF_ERROR(CheckItem(item, known->second, state_.model(), state_.parts.rank));
  }
  return absl::OkStatus();
}

}  // namespace annulus
