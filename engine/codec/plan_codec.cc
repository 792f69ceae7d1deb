#include <set>
#include <utility>

#include "annulus/internal/v1/step.pb.h"
#include "engine/codec/machine_codec.h"
#include "engine/codec/message_parts.h"
#include "engine/codec/step_codec.h"
#include "engine/sampling/validate.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

namespace wire = internal::v1;
using codec::Encode;
using codec::kPositions;
using codec::MachineMessage;
using codec::Parse;
using codec::Put;
using codec::ReadMachine;
using codec::Take;
using codec::Within;
using codec::Wrong;

absl::StatusOr<AttentionAssignment> ReadAttention(const std::string& text,
                                                  const CodecLimits& limits) {
  ANNULUS_ASSIGN_OR_RETURN(AttentionAssignment assignment, ParseAssignment(text));
  if (!IsResolved(assignment)) {
    return Wrong(absl::StrCat("the attention '", text.substr(0, 200), "', which is not resolved"));
  }
  ANNULUS_RETURN_IF_ERROR(CheckAssignment(assignment, limits.model));
  return assignment;
}

wire::SamplingSetup ToMessage(const SamplingSetup& setup) {
  const SamplingParams& params = setup.params;
  wire::SamplingSetup message;
  wire::SamplingParams& to = *message.mutable_params();
  to.set_max_tokens(params.max_tokens);
  to.set_min_tokens(params.min_tokens);
  to.set_temperature(params.temperature);
  to.set_top_p(params.top_p);
  to.set_top_k(params.top_k);
  to.set_min_p(params.min_p);
  to.set_frequency_penalty(params.frequency_penalty);
  to.set_presence_penalty(params.presence_penalty);
  to.set_repetition_penalty(params.repetition_penalty);
  if (params.seed.has_value()) to.set_seed(*params.seed);
  to.mutable_stop()->Add(params.stop.begin(), params.stop.end());
  Put(params.stop_token_ids, to.mutable_stop_token_ids());
  to.set_ignore_eos(params.ignore_eos);
  if (params.logprobs.has_value()) to.set_logprobs(*params.logprobs);
  to.mutable_logit_bias()->insert(params.logit_bias.begin(), params.logit_bias.end());
  Put(setup.forced, to.mutable_forced());
  Put(setup.prompt, message.mutable_prompt());
  Put(setup.generated, message.mutable_generated());
  Put(setup.end_of_text_ids, message.mutable_end_of_text_ids());
  message.set_vocabulary(setup.vocabulary);
  if (setup.output.has_value()) *message.mutable_output() = MachineMessage(*setup.output);
  return message;
}

absl::StatusOr<SamplingSetup> FromMessage(const wire::SamplingSetup& message,
                                          const CodecLimits& limits) {
  const wire::SamplingParams& from = message.params();
  SamplingSetup setup;
  SamplingParams& params = setup.params;
  params.max_tokens = from.max_tokens();
  params.min_tokens = from.min_tokens();
  params.temperature = from.temperature();
  params.top_p = from.top_p();
  params.top_k = from.top_k();
  params.min_p = from.min_p();
  params.frequency_penalty = from.frequency_penalty();
  params.presence_penalty = from.presence_penalty();
  params.repetition_penalty = from.repetition_penalty();
  if (from.has_seed()) params.seed = from.seed();
  params.stop.assign(from.stop().begin(), from.stop().end());
  params.stop_token_ids = Take(from.stop_token_ids());
  params.ignore_eos = from.ignore_eos();
  if (from.has_logprobs()) params.logprobs = from.logprobs();
  params.logit_bias.insert(from.logit_bias().begin(), from.logit_bias().end());
  setup.forced = Take(from.forced());
  setup.prompt = Take(message.prompt());
  setup.generated = Take(message.generated());
  setup.end_of_text_ids = Take(message.end_of_text_ids());
  setup.vocabulary = message.vocabulary();
  if (!params.seed.has_value()) return Wrong("a sampling setup without a seed");
  if (setup.vocabulary != limits.vocabulary) {
    return Wrong(absl::StrCat("a vocabulary of ", setup.vocabulary, "; the model's has ",
                              limits.vocabulary));
  }
  if (message.has_output()) {
    ANNULUS_ASSIGN_OR_RETURN(setup.output, ReadMachine(message.output()));
  }
  ANNULUS_RETURN_IF_ERROR(ValidateSampling(params, setup.vocabulary));
  const std::vector<int32_t> none;
  const auto& thinking_end = setup.output.has_value() ? setup.output->thinking_end : none;
  for (const std::vector<int32_t>* ids :
       {&std::as_const(setup.prompt), &std::as_const(setup.generated),
        &std::as_const(setup.end_of_text_ids), &std::as_const(setup.forced), &thinking_end}) {
    for (const int32_t id : *ids) {
      ANNULUS_RETURN_IF_ERROR(Within("the token id", id, 0, limits.vocabulary));
    }
  }
  return setup;
}

wire::EvidenceTerms ToMessage(const EvidenceTerms& evidence) {
  wire::EvidenceTerms message;
  for (const LayerHead& head : evidence.heads) {
    message.add_layers(head.layer);
    message.add_heads(head.head);
  }
  for (const RowRange& range : evidence.ranges) {
    message.add_begins(range.begin);
    message.add_ends(range.end);
  }
  return message;
}

// Whether the layers have such heads is checked by the executor, which has the model.
absl::StatusOr<EvidenceTerms> FromMessage(const wire::EvidenceTerms& message,
                                          const CodecLimits& limits) {
  if (message.layers_size() != message.heads_size() ||
      message.begins_size() != message.ends_size()) {
    return Wrong("evidence with lists of different length");
  }
  EvidenceTerms evidence;
  for (int i = 0; i < message.layers_size(); ++i) {
    const LayerHead head{message.layers(i), message.heads(i)};
    ANNULUS_RETURN_IF_ERROR(Within("the layer", head.layer, 0, limits.model.layers));
    ANNULUS_RETURN_IF_ERROR(Within("the head", head.head, 0, kPositions));
    if (!evidence.heads.empty() && evidence.heads.back() >= head) {
      return Wrong("heads out of order");
    }
    evidence.heads.push_back(head);
  }
  int64_t last = 0;
  for (int i = 0; i < message.begins_size(); ++i) {
    const RowRange range{message.begins(i), message.ends(i)};
    ANNULUS_RETURN_IF_ERROR(Within("the position", range.begin, last, kPositions - 1));
    ANNULUS_RETURN_IF_ERROR(Within("the end", range.end, int64_t{range.begin} + 1, kPositions));
    last = range.end;
    evidence.ranges.push_back(range);
  }
  return evidence;
}

wire::SequenceTerms ToMessage(const SequenceTerms& terms) {
  wire::SequenceTerms message;
  message.set_version(terms.version);
  Put(terms.ring, message.mutable_ring());
  message.set_home(terms.home);
  if (terms.attention.has_value()) message.set_attention(AssignmentText(*terms.attention));
  for (const auto& group : terms.summaries) {
    wire::SummaryGroup& added = *message.add_summaries();
    for (const std::vector<int32_t>& pages : group) {
      Put(pages, added.add_members()->mutable_pages());
    }
  }
  message.set_report_lists(terms.report_lists);
  message.set_rope_length(terms.rope_length);
  if (terms.evidence.has_value()) *message.mutable_evidence() = ToMessage(*terms.evidence);
  return message;
}

absl::Status CheckRing(const SequenceTerms& terms, const CodecLimits& limits) {
  std::set<int32_t> members;
  for (const int32_t rank : terms.ring) {
    ANNULUS_RETURN_IF_ERROR(Within("the rank", rank, 0, std::ssize(limits.pages)));
    if (!members.insert(rank).second) return Wrong("a ring with the same rank twice");
  }
  if (!members.contains(terms.home)) return Wrong("a home outside its ring");
  return absl::OkStatus();
}

absl::StatusOr<SequenceTerms> FromMessage(const wire::SequenceTerms& message,
                                          const CodecLimits& limits) {
  SequenceTerms terms;
  terms.version = message.version();
  terms.ring = Take(message.ring());
  terms.home = message.home();
  ANNULUS_RETURN_IF_ERROR(CheckRing(terms, limits));
  if (message.has_attention()) {
    ANNULUS_ASSIGN_OR_RETURN(terms.attention, ReadAttention(message.attention(), limits));
  }
  if (message.summaries_size() != 0 && message.summaries_size() != limits.groups) {
    return Wrong("summaries of another number of groups");
  }
  for (const wire::SummaryGroup& from : message.summaries()) {
    auto& group = terms.summaries.emplace_back();
    if (from.members_size() != 0 && from.members_size() != message.ring_size()) {
      return Wrong("summaries of another ring");
    }
    for (int i = 0; i < from.members_size(); ++i) {
      group.push_back(Take(from.members(i).pages()));
      for (const int32_t page : group.back()) {
        ANNULUS_RETURN_IF_ERROR(Within("the page", page, 0, limits.pages[terms.ring[i]]));
      }
    }
  }
  terms.report_lists = message.report_lists();
  terms.rope_length = message.rope_length();
  ANNULUS_RETURN_IF_ERROR(Within("the rope length", terms.rope_length, 0, kPositions));
  if (message.has_evidence()) {
    ANNULUS_ASSIGN_OR_RETURN(terms.evidence, FromMessage(message.evidence(), limits));
  }
  return terms;
}

absl::StatusOr<TableDelta> FromMessage(const wire::TableDelta& message, const CodecLimits& limits) {
  TableDelta delta;
  delta.drop_front = message.drop_front();
  ANNULUS_RETURN_IF_ERROR(Within("the dropped pages", delta.drop_front, 0, kPositions));
  if (message.ranks_size() != message.pages_size() ||
      message.ranks_size() != message.first_positions_size()) {
    return Wrong("a page table with lists of different length");
  }
  for (int i = 0; i < message.ranks_size(); ++i) {
    const PageEntry entry{message.ranks(i), message.pages(i), message.first_positions(i)};
    ANNULUS_RETURN_IF_ERROR(Within("the rank", entry.rank, 0, std::ssize(limits.pages)));
    ANNULUS_RETURN_IF_ERROR(Within("the page", entry.page, 0, limits.pages[entry.rank]));
    // The page must end before the largest position, so that the start of the next page cannot
    // overflow.
    ANNULUS_RETURN_IF_ERROR(
        Within("the position", entry.first_position, 0, kPositions - limits.model.page_tokens));
    const bool follows = delta.append.empty() ||
                         delta.append.back().first_position + int64_t{limits.model.page_tokens} ==
                             entry.first_position;
    if (!follows || entry.first_position % limits.model.page_tokens != 0) {
      return Wrong("a page table with a gap");
    }
    delta.append.push_back(entry);
  }
  return delta;
}

wire::SequenceUpdate ToMessage(const SequenceUpdate& update) {
  wire::SequenceUpdate message;
  message.set_sequence(update.sequence);
  message.set_version(update.version);
  if (update.terms.has_value()) *message.mutable_terms() = ToMessage(*update.terms);
  for (const TableDelta& delta : update.tables) {
    wire::TableDelta& table = *message.add_tables();
    table.set_drop_front(delta.drop_front);
    for (const PageEntry& entry : delta.append) {
      table.add_ranks(entry.rank);
      table.add_pages(entry.page);
      table.add_first_positions(entry.first_position);
    }
  }
  if (update.setup.has_value()) *message.mutable_setup() = ToMessage(*update.setup);
  return message;
}

absl::StatusOr<SequenceUpdate> FromMessage(const wire::SequenceUpdate& message,
                                           const CodecLimits& limits) {
  SequenceUpdate update;
  update.sequence = message.sequence();
  update.version = message.version();
  if (message.has_terms()) {
    ANNULUS_ASSIGN_OR_RETURN(update.terms, FromMessage(message.terms(), limits));
  }
  if (message.tables_size() != limits.groups) return Wrong("tables of another number of groups");
  for (const wire::TableDelta& from : message.tables()) {
    ANNULUS_ASSIGN_OR_RETURN(TableDelta delta, FromMessage(from, limits));
    update.tables.push_back(std::move(delta));
  }
  if (message.has_setup()) {
    ANNULUS_ASSIGN_OR_RETURN(update.setup, FromMessage(message.setup(), limits));
  }
  return update;
}

wire::PlanItem ToMessage(const PlanItem& item) {
  wire::PlanItem message;
  message.set_sequence(item.sequence);
  message.set_begin(item.begin);
  message.set_end(item.end);
  Put(item.tokens, message.mutable_tokens());
  message.set_pass_q(item.mode == RingMode::kPassQ);
  for (const RowRun& run : item.runs) {
    wire::RowRun& added = *message.add_runs();
    added.set_rank(run.rank);
    added.set_first_position(run.first_position);
    added.set_count(run.count);
  }
  message.set_sampled(item.sampled);
  Put(item.logits_positions, message.mutable_logits_positions());
  if (item.score.has_value()) {
    message.mutable_score()->set_alternatives(item.score->alternatives);
    message.mutable_score()->set_next_token(item.score->next_token);
  }
  return message;
}

absl::Status CheckItem(const PlanItem& item, const CodecLimits& limits) {
  ANNULUS_RETURN_IF_ERROR(Within("the first row", item.begin, 0, kPositions));
  ANNULUS_RETURN_IF_ERROR(Within("the end of rows", item.end, int64_t{item.begin} + 1, kPositions));
  if (std::ssize(item.tokens) != item.end - item.begin) return Wrong("rows without tokens");
  const int32_t least = item.sampled && item.tokens.size() == 1 ? kLastSampled : 0;
  for (const int32_t id : item.tokens) {
    ANNULUS_RETURN_IF_ERROR(Within("the token id", id, least, limits.vocabulary));
  }
  int64_t next = item.begin;
  for (const RowRun& run : item.runs) {
    ANNULUS_RETURN_IF_ERROR(Within("the rank", run.rank, 0, std::ssize(limits.pages)));
    ANNULUS_RETURN_IF_ERROR(Within("the rows of a run", run.count, 1, kPositions));
    if (run.first_position != next) return Wrong("runs with a gap");
    next += run.count;
  }
  if (next != item.end) return Wrong("runs that do not cover their rows");
  if (item.sampled) {
    ANNULUS_RETURN_IF_ERROR(
        Within("the number of rows to sample", item.end - item.begin, 1, kMostSampledRows + 1));
    if (item.mode != RingMode::kPassQ) return Wrong("a sampled item that is not pass-Q");
    if (!item.logits_positions.empty()) return Wrong("a sampled item that returns logits");
    if (item.score.has_value()) return Wrong("a sampled item that scores its prompt");
  }
  if (item.score.has_value()) {
    ANNULUS_RETURN_IF_ERROR(
        Within("the alternatives", item.score->alternatives, 0, kMaxLogprobs + 1));
    ANNULUS_RETURN_IF_ERROR(Within("the token id", item.score->next_token, 0, limits.vocabulary));
  }
  int64_t last = item.begin - int64_t{1};
  for (const int32_t position : item.logits_positions) {
    ANNULUS_RETURN_IF_ERROR(Within("the row of logits", position, last + 1, item.end));
    last = position;
  }
  return absl::OkStatus();
}

absl::StatusOr<PlanItem> FromMessage(const wire::PlanItem& message, const CodecLimits& limits) {
  PlanItem item;
  item.sequence = message.sequence();
  item.begin = message.begin();
  item.end = message.end();
  item.tokens = Take(message.tokens());
  item.mode = message.pass_q() ? RingMode::kPassQ : RingMode::kPassKv;
  for (const wire::RowRun& run : message.runs()) {
    item.runs.push_back({run.rank(), run.first_position(), run.count()});
  }
  item.sampled = message.sampled();
  item.logits_positions = Take(message.logits_positions());
  if (message.has_score()) {
    item.score = {message.score().alternatives(), message.score().next_token()};
  }
  ANNULUS_RETURN_IF_ERROR(CheckItem(item, limits));
  return item;
}

// Whether the rows may be suspended there is checked by the executor, which knows what runs.
absl::Status CheckStretch(const Stretch& stretch, const CodecLimits& limits) {
  ANNULUS_RETURN_IF_ERROR(Within("the first layer", stretch.first_layer, 0, limits.model.layers));
  ANNULUS_RETURN_IF_ERROR(Within("the end of layers", stretch.end_layer,
                                 int64_t{stretch.first_layer} + 1,
                                 int64_t{limits.model.layers} + 1));
  if (stretch.ends_chunk != (stretch.end_layer == limits.model.layers)) {
    return Wrong("a chunk that does not end with the last layer");
  }
  return absl::OkStatus();
}

// What the items of one plan are to each other.
absl::Status CheckItems(const StepPlan& plan) {
  std::set<std::pair<SequenceId, bool>> seen;
  bool last_layer = true;
  for (const PlanItem& item : plan.items) {
    if (!seen.insert({item.sequence, item.sampled}).second) {
      return Wrong("two items of one kind of a sequence");
    }
    if (NeedsLastLayer(item) && !last_layer) return Wrong("items out of order");
    last_layer = NeedsLastLayer(item);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> EncodePlan(const StepPlan& plan, const CodecLimits& limits) {
  wire::StepPlan message;
  message.set_step(plan.step);
  Put(plan.ended, message.mutable_ended());
  for (const SequenceUpdate& update : plan.updates) *message.add_updates() = ToMessage(update);
  for (const PlanItem& item : plan.items) *message.add_items() = ToMessage(item);
  if (plan.stretch.has_value()) {
    message.mutable_stretch()->set_first_layer(plan.stretch->first_layer);
    message.mutable_stretch()->set_end_layer(plan.stretch->end_layer);
    message.mutable_stretch()->set_ends_chunk(plan.stretch->ends_chunk);
  }
  return Encode(message, "a plan", limits.bytes);
}

absl::StatusOr<StepPlan> DecodePlan(absl::string_view bytes, const CodecLimits& limits) {
  wire::StepPlan message;
  ANNULUS_RETURN_IF_ERROR(Parse(bytes, "plan", limits.bytes, message));
  StepPlan plan;
  plan.step = message.step();
  plan.ended = Take(message.ended());
  for (const wire::SequenceUpdate& from : message.updates()) {
    ANNULUS_ASSIGN_OR_RETURN(SequenceUpdate update, FromMessage(from, limits));
    plan.updates.push_back(std::move(update));
  }
  for (const wire::PlanItem& from : message.items()) {
    ANNULUS_ASSIGN_OR_RETURN(PlanItem item, FromMessage(from, limits));
    plan.items.push_back(std::move(item));
  }
  ANNULUS_RETURN_IF_ERROR(CheckItems(plan));
  if (message.has_stretch()) {
    const wire::Stretch& from = message.stretch();
    plan.stretch = {from.first_layer(), from.end_layer(), from.ends_chunk()};
    ANNULUS_RETURN_IF_ERROR(CheckStretch(*plan.stretch, limits));
  }
  return plan;
}

}  // namespace annulus
