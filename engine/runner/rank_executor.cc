#include "engine/runner/rank_executor.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/field_error.h"
#include "engine/runner/step_run.h"
#include "kernels/base/check.h"
#include "kernels/base/guarded.h"

namespace annulus {
namespace {

RingAttentionConfig RingConfig(const RankParts& parts) {
  RingAttentionConfig config;
  config.shape = parts.model->page_shape;
  config.layer_page_bytes = parts.model->ops->kv_page_bytes(config.shape);
  config.heads = parts.model->config.heads;
  config.scale = AttentionScale(parts.model->config);
  config.soft_cap = parts.model->config.attention_soft_cap;
  config.shards = ShardsOf(*parts.model->ops, parts.channel->size());
  config.timeout = parts.exchange_timeout;
  config.heartbeat = parts.heartbeat;
  return config;
}

}  // namespace

RankExecutor::RankExecutor(const RankParts& parts)
    : parts_(parts),
      config_(RingConfig(parts)),
      ring_(*parts.channel, *parts.backend, *parts.model->ops, *parts.stream, config_),
      choice_{ring_.link(), *parts.backend, *parts.model->ops, *parts.stream,
              config_,      messages_,      *parts.arena,      parts.model->gates.get()},
      chooser_(choice_),
      sampler_(choice_) {}

RankResult RankExecutor::Execute(const StepPlan& plan) {
  RankResult result;
  const auto run = [&] {
    ApplyUpdates(plan);
    messages_ = ChoiceMessages();
    parts_.arena->Reset();
    if (parts_.host_arena != parts_.arena) parts_.host_arena->Reset();
    return StepRun(*this, plan).Run(result);
  };
  result.status = Guarded(run, NoMemoryError);
  if (!result.status.ok()) parts_.channel->Abort(result.status);
  result.ring = ring_.TakeCounters();
  return result;
}

// Equal parts share a policy, and with it what is cached by its identity.
void RankExecutor::SetAttention(std::shared_ptr<const AttentionAssignment> assignment,
                                RankSequence& sequence) const {
  if (assignment == sequence.assignment) return;
  sequence.assignment = assignment;
  sequence.attention.clear();
  sequence.ruled = assignment != nullptr && !assignment->rules.empty();
  if (assignment == nullptr) return;
  std::vector<std::shared_ptr<const AttentionPolicy>> policies;
  for (int layer = 0; layer < parts_.model->layers(); ++layer) {
    std::vector<SequencePart>& parts = sequence.attention.emplace_back();
    for (LayerPart& part : PartsOf(*assignment, layer, parts_.model->config.kv_heads)) {
      auto known = std::find_if(policies.begin(), policies.end(),
                                [&](const auto& policy) { return *policy == part.policy; });
      if (known == policies.end()) {
        policies.push_back(std::make_shared<const AttentionPolicy>(std::move(part.policy)));
        known = std::prev(policies.end());
      }
      parts.push_back({*known, std::move(part.heads)});
    }
  }
  sequence.summaries.resize(sequence.attention.size());
  sequence.summary_kinds = SummariesOf(*assignment);
}

void RankExecutor::ApplyUpdates(const StepPlan& plan) {
  for (const SequenceId id : plan.ended) sequences_.erase(id);
  for (const SequenceUpdate& update : plan.updates) {
    RankSequence& sequence = sequences_[update.sequence];
    sequence.ring = update.ring;
    sequence.home = update.home;
    SetAttention(update.attention, sequence);
    sequence.summary_pages = update.summaries;
    sequence.report_lists = update.report_lists;
    sequence.begins_answer = update.setup != nullptr;
    if (sequence.rope_length != update.rope_length) {
      sequence.rope_length = update.rope_length;
      sequence.inverse_frequencies.clear();
      for (const RopeConfig& rope : parts_.model->config.ropes) {
        sequence.inverse_frequencies.push_back(InverseFrequencies(rope, update.rope_length));
      }
    }
    sequence.groups.resize(update.tables.size());
    for (size_t g = 0; g < update.tables.size(); ++g) {
      const TableDelta& delta = update.tables[g];
      std::vector<PageEntry>& entries = sequence.groups[g];
      ANNULUS_CHECK(delta.drop_front <= static_cast<int32_t>(entries.size()))
          << "a plan drops pages that the rank does not know";
      entries.erase(entries.begin(), entries.begin() + delta.drop_front);
      entries.insert(entries.end(), delta.append.begin(), delta.append.end());
    }
    if (update.setup != nullptr && sequence.home == parts_.rank) {
      const SamplingSetup& setup = *update.setup;
      sequence.sampler =
          std::make_unique<Sampler>(setup.params, setup.vocabulary, setup.end_of_text_ids);
      sequence.sampler->ObservePrompt(setup.prompt);
    }
  }
}

}  // namespace annulus
