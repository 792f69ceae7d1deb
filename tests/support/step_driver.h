#ifndef ANNULUS_TESTS_SUPPORT_STEP_DRIVER_H_
#define ANNULUS_TESTS_SUPPORT_STEP_DRIVER_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/runner/rank_set.h"
#include "engine/scheduler/scheduler.h"
#include "kernels/base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/copying_ring.h"

namespace annulus::testing {

// All CPU kernels of this binary and the backend, made once.
struct CpuWorld {
  CpuWorld() : backend(CreateCpuBackend().value()) { RegisterCpuKernels(registry); }

  // The table of that name; null where this machine cannot run it.
  const OpTable* Find(const std::string& name) const {
    for (const OpTable* table : registry.Available("cpu")) {
      if (table->name == name) return table;
    }
    return nullptr;
  }

  std::unique_ptr<Backend> backend;
  KernelRegistry registry;
};

inline SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  params.seed = 1;
  return params;
}

struct DriverOptions {
  int ranks = 1;
  RingMode mode = RingMode::kPassKv;
  RingTransport transport = RingTransport::kAuto;
  bool copying_ring = false;  // CopyingRing, whatever the transport
  // Opens another ring that copies; null: not.
  std::function<absl::StatusOr<std::unique_ptr<RingGroup>>(int ranks)> open_ring;
  // Makes the ranks, of which `set` says what a RankSet of all would be; null: that RankSet.
  std::function<std::unique_ptr<RankPort>(const RankSetOptions& set)> make_ranks;
  int prefill_rows = 64;                  // of one rank in a step
  int tokens_per_rank = 1;                // 1: every sequence over all ranks
  bool all_logits = false;                // return the logits of every row but the last of a prompt
  std::vector<int32_t> logits_positions;  // or of these rows of every prompt; ascending
  size_t kv_bytes = 0;                    // all ranks together; 0: 48 MiB for each
  // So many tokens of each prompt, in whole pages, are computed by a sequence before it and reused.
  int reused_tokens = 0;
  std::optional<AttentionAssignment> attention;  // absent: dense
  bool report_lists = false;                     // fill DriverResult::lists
  std::optional<EvidenceTerms> evidence;         // fill DriverResult::shares
  bool graphs = true;                            // see EngineOptions::device_graphs
  std::optional<int32_t> logprobs;               // fill DriverResult::logprobs
  std::optional<SamplingParams> sampling;        // with a seed; absent: greedy
  // Every prompt but the first is admitted once the one before it has so many tokens, and gets so
  // many tokens less than that one.
  int tokens_ahead = 0;
  int tokens_fewer = 0;
  // Once a sequence has so many tokens its sampling setup is sent again, as to a rank that lost it;
  // 0: never.
  int resend_setup_after = 0;
  // Guesses how a sequence that decodes goes on; null: nobody does.
  std::function<std::vector<int32_t>(const Sequence&)> draft;
  // How many of the `left` layers of a suspended chunk, or of one that would begin, the next step
  // runs; 0: it is a step of other sequences, or of whole chunks. Null: no chunk is suspended.
  std::function<int(int left)> stretch;
};

struct DriverResult {
  std::vector<int32_t> tokens;                     // sampled
  std::vector<TokenLogprob> logprobs;              // of each token
  std::vector<std::vector<EvidenceShare>> shares;  // of each token
  std::map<int32_t, std::vector<float>> logits;    // position -> [vocabulary]
  std::vector<LayerAttention> attention;           // of every step and rank, under a policy
  // (layer, row) -> what its rank chose; rows that attended all are left out.
  std::map<std::pair<int32_t, int32_t>, std::shared_ptr<const BlockPattern>> lists;
};

// Of the sampled tokens and their alternatives, for comparisons bit by bit.
inline std::vector<uint32_t> LogprobBits(const DriverResult& result) {
  std::vector<uint32_t> bits;
  for (const TokenLogprob& each : result.logprobs) {
    bits.push_back(std::bit_cast<uint32_t>(each.logprob));
    for (const auto& [id, logprob] : each.alternatives) {
      bits.push_back(std::bit_cast<uint32_t>(logprob));
    }
  }
  return bits;
}

// Runs several prompts together over ranks, without the engine's loop around it.
class StepDriver {
 public:
  StepDriver(CpuWorld& world, const RankModel& model, const DriverOptions& options)
      : StepDriver(*world.backend, model, options) {}

  StepDriver(Backend& backend, const RankModel& model, const DriverOptions& options)
      : model_(model), options_(options) {
    limits_.ranks = options.ranks;
    limits_.shards = ShardsFor(options.ranks);
    limits_.page_tokens = model.page_shape.page_tokens;
    limits_.prefill_rows_per_rank = std::max(options.prefill_rows, limits_.page_tokens);
    limits_.sampled_rows_per_rank = 4;
    if (options.draft != nullptr) limits_.draft_rows_per_rank = 2 * kMostSampledRows;
    limits_.tokens_per_rank = options.tokens_per_rank;
    limits_.layers = model.layers();
    if (options.stretch != nullptr) limits_.suspended_rows_per_rank = limits_.prefill_rows_per_rank;
    for (const CacheGroup& group : model.groups) limits_.group_windows.push_back(group.window);
    RankSetOptions set;
    set.span = {.local = options.ranks, .all = options.ranks};
    set.engine.threads = options.ranks;
    set.rows_per_rank = limits_.rows_per_rank();
    set.suspended_rows = limits_.suspended_rows_per_rank;
    set.engine.ring_transport = options.transport;
    set.engine.device_graphs = options.graphs;
    set.through_bytes = true;
    const RingNeeds copies = {.copies = true};
    if (options.copying_ring) {
      set.ring = WiderRing{[&backend, ranks = options.ranks] {
                             return std::make_unique<CopyingRing>(backend, ranks);
                           },
                           copies};
    } else if (options.open_ring != nullptr) {
      set.ring = WiderRing{
          [open = options.open_ring, ranks = options.ranks] { return open(ranks); }, copies};
    }
    set.engine.kv_memory_bytes =
        options.kv_bytes > 0 ? options.kv_bytes : static_cast<size_t>(options.ranks) * (48 << 20);
    ranks_ = options.make_ranks != nullptr ? options.make_ranks(set)
                                           : RankSet::Create(model, backend, set).value();
    pages_ = std::make_unique<PageBook>(ranks_->page_counts(), limits_.group_windows,
                                        ranks_->page_hooks());
  }

  std::vector<DriverResult> Run(const std::vector<std::vector<int32_t>>& prompts, int max_tokens) {
    EngineState state;
    const size_t count = prompts.size();
    std::vector<DriverResult> results(2 * count);
    ended_.clear();
    for (size_t i = 0; i < count && options_.reused_tokens > 0; ++i) {
      const auto begin = prompts[i].begin();
      Admit(state, count + i, {begin, begin + options_.reused_tokens}, 1, nullptr);
    }
    RunAll(state, 1, results);
    for (size_t i = 0; i < count; ++i) {
      const auto earlier = ended_.find(count + i);
      Admit(state, i, prompts[i], max_tokens,
            earlier == ended_.end() ? nullptr : earlier->second.get());
      while (i + 1 < count && static_cast<int>(results[i].tokens.size()) < options_.tokens_ahead) {
        RunStep(state, max_tokens, results);
      }
    }
    RunAll(state, max_tokens, results);
    // The ranks forget the last sequences, so that a driver can run again.
    auto last = std::make_shared<StepPlan>(PlanStep(state, *pages_, limits_, Modes()));
    ANNULUS_CHECK(ranks_->Run(last).ok());
    for (const PageId id : kept_) pages_->Unkeep(id);
    kept_.clear();
    for (const auto& [id, sequence] : ended_) pages_->Release(sequence->owner);
    // What the earlier sequence did with the rows that were reused.
    for (size_t i = 0; i < count; ++i) {
      results[i].logits.merge(results[count + i].logits);
      results[i].lists.merge(results[count + i].lists);
    }
    results.resize(count);
    return results;
  }

  // Of all runs so far.
  const RingCounters& ring() const { return ring_; }
  const RankPort& ranks() const { return *ranks_; }
  // Steps without rows of prompts, of all runs so far.
  int64_t decode_steps() const { return decode_steps_; }
  // Steps that ran some layers of a chunk and not its last, and those of others between them, of
  // all runs so far.
  int64_t stretches() const { return stretches_; }
  int64_t steps_between() const { return steps_between_; }

 private:
  ModePolicy Modes() const {
    ModePolicy modes;
    modes.mode = options_.mode;
    modes.visiting_pages = ranks_->visiting_pages();
    return modes;
  }

  void RunAll(EngineState& state, int max_tokens, std::vector<DriverResult>& results) {
    while (!state.running.empty()) RunStep(state, max_tokens, results);
  }

  void RunStep(EngineState& state, int max_tokens, std::vector<DriverResult>& results) {
    for (const auto& sequence : state.running) {
      if (options_.draft == nullptr || sequence->in_prefill()) continue;
      sequence->draft = options_.draft(*sequence);
    }
    auto plan = std::make_shared<StepPlan>(PlanNext(state));
    if (!plan->stretch.has_value() || plan->stretch->first_layer == 0) WantLogits(*plan);
    StartStep(*plan, limits_, state, *pages_);
    const auto step = ranks_->Run(plan);
    ANNULUS_CHECK(step.ok()) << step.status().ToString();
    ANNULUS_CHECK(CheckAnswered(*plan, *step).ok());
    CommitStep(*plan, *step, limits_, state, *pages_);
    DropOutsideWindows(limits_, state, *pages_);
    const bool decodes = std::all_of(plan->items.begin(), plan->items.end(),
                                     [](const PlanItem& item) { return item.sampled; });
    if (decodes && !plan->items.empty()) ++decode_steps_;
    if (!EndsItsChunks(*plan)) ++stretches_;
    const bool between = std::any_of(state.running.begin(), state.running.end(),
                                     [](const auto& s) { return s->suspended.has_value(); });
    if (between && !plan->stretch.has_value() && !plan->items.empty()) ++steps_between_;
    for (const RankResult& rank : *step) {
      Use(rank, max_tokens, state, results);
      ring_.bytes_pass_kv += rank.ring.bytes_pass_kv;
      ring_.bytes_pass_q += rank.ring.bytes_pass_q;
      ring_.bytes_estimate += rank.ring.bytes_estimate;
      ring_.compute_seconds += rank.ring.compute_seconds;
      ring_.wait_seconds += rank.ring.wait_seconds;
    }
  }

  StepPlan PlanNext(const EngineState& state) const {
    const auto whole = [&] { return PlanStep(state, *pages_, limits_, Modes()); };
    if (options_.stretch == nullptr) return whole();
    const auto is_suspended = [](const auto& s) { return s->suspended.has_value(); };
    const auto is_prompt = [](const auto& s) { return s->in_prefill(); };
    const auto end = state.running.end();
    auto next = std::find_if(state.running.begin(), end, is_suspended);
    if (next == end) next = std::find_if(state.running.begin(), end, is_prompt);
    if (next == end) return whole();
    const Sequence& sequence = **next;
    const int done = sequence.suspended.has_value() ? sequence.suspended->layers : 0;
    const int layers = options_.stretch(limits_.layers - done);
    if (layers == 0) return whole();
    return PlanStretch(state, *pages_, limits_, Modes(),
                       {sequence.id, sequence.prompt_length, done + layers});
  }

  // `earlier`: whose pages hold the prompt's first `reused_tokens`; null: nobody's.
  void Admit(EngineState& state, size_t id, const std::vector<int32_t>& prompt, int max_tokens,
             const Sequence* earlier) {
    std::vector<int32_t> free_pages;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      free_pages.push_back(pages_->free_count(rank));
    }
    const int32_t reused = earlier != nullptr ? options_.reused_tokens : 0;
    PageDemand demand;
    demand.tokens = static_cast<int64_t>(prompt.size()) + max_tokens;
    demand.cached = reused;
    if (options_.attention.has_value()) {
      demand.summarised = ranks_->PagesSummarised(SummariesOf(*options_.attention));
    }
    if (earlier != nullptr) CountCached(*earlier, demand);
    const auto choice = ChooseRing(
        demand, free_pages, earlier != nullptr ? earlier->ring : std::vector<int32_t>(), limits_);
    ANNULUS_CHECK(choice.has_value()) << "the test's pool is too small";
    auto sequence = std::make_unique<Sequence>();
    sequence->rope_length = RopeLength(model_.config.ropes, static_cast<int64_t>(prompt.size()));
    sequence->id = id;
    sequence->owner = OwnerOfRequest(id);
    sequence->tokens = prompt;
    sequence->prompt_length = static_cast<int32_t>(prompt.size());
    sequence->ring = choice->ring;
    sequence->home = choice->ring[id % choice->ring.size()];
    sequence->groups.resize(limits_.group_windows.size());
    sequence->computed = reused;
    pages_->Open(sequence->owner, TenantId());
    for (size_t g = 0; earlier != nullptr && g < sequence->groups.size(); ++g) {
      GroupTable& group = sequence->groups[g];
      group.mapped_end = reused;
      group.entries = earlier->groups[g].entries;
      for (const PageEntry& entry : group.entries) {
        kept_.push_back({entry.rank, entry.page});
        pages_->Keep(kept_.back(), {}, std::nullopt);
        pages_->Hold(sequence->owner, kept_.back());
      }
    }
    SummaryPages summaries(sequence->groups.size());
    for (size_t index = 0; index < choice->ring.size(); ++index) {
      const int32_t rank = choice->ring[index];
      pages_->Reserve(sequence->owner, rank, choice->pages[index]);
      for (size_t g = 0; g < summaries.size(); ++g) {
        if (limits_.group_windows[g] > 0) continue;
        summaries[g].push_back(
            pages_->ReserveSummaries(sequence->owner, rank, choice->summary_pages[index]));
      }
    }
    if (choice->summarises) {
      sequence->summaries = std::make_shared<const SummaryPages>(std::move(summaries));
    }
    auto setup = std::make_shared<SamplingSetup>();
    setup->params = options_.sampling.value_or(Greedy());
    setup->params.logprobs = options_.logprobs;
    setup->prompt = prompt;
    setup->vocabulary = model_.config.vocabulary;
    sequence->setup = std::move(setup);
    if (options_.attention.has_value()) {
      sequence->attention = std::make_shared<const AttentionAssignment>(*options_.attention);
    }
    sequence->report_lists = options_.report_lists;
    if (options_.evidence.has_value()) {
      sequence->evidence = std::make_shared<const EvidenceTerms>(*options_.evidence);
    }
    state.running.push_back(std::move(sequence));
  }

  void CountCached(const Sequence& earlier, PageDemand& demand) const {
    demand.cached_on.assign(static_cast<size_t>(limits_.ranks), 0);
    for (size_t g = 0; g < earlier.groups.size(); ++g) {
      if (limits_.group_windows[g] > 0) continue;
      for (const PageEntry& entry : earlier.groups[g].entries) ++demand.cached_on[entry.rank];
      return;
    }
  }

  void WantLogits(StepPlan& plan) const {
    for (PlanItem& item : plan.items) {
      if (item.sampled) continue;
      for (int32_t p = item.begin; p < item.end; ++p) {
        if (options_.all_logits || std::binary_search(options_.logits_positions.begin(),
                                                      options_.logits_positions.end(), p)) {
          item.logits_positions.push_back(p);
        }
      }
    }
    std::stable_partition(plan.items.begin(), plan.items.end(), NeedsLastLayer);
  }

  void Use(const RankResult& rank, int max_tokens, EngineState& state,
           std::vector<DriverResult>& results) {
    for (const LogitsRow& row : rank.logits) {
      results[row.sequence].logits[row.position] = row.logits;
    }
    for (const LayerAttention& part : rank.attention) {
      DriverResult& result = results[part.sequence];
      result.attention.push_back(part);
      const auto lists =
          part.lists.has_value() ? std::make_shared<const BlockPattern>(*part.lists) : nullptr;
      for (const int32_t row : part.rows) {
        if (lists != nullptr) result.lists[{part.layer, row}] = lists;
      }
    }
    for (const SampledToken& token : rank.tokens) {
      ANNULUS_CHECK(token.status.ok()) << token.status.ToString();
      DriverResult& result = results[token.sequence];
      result.tokens.push_back(token.token);
      result.shares.push_back(token.shares);
      if (token.logprob.has_value()) result.logprobs.push_back(*token.logprob);
      const auto sequence =
          std::find_if(state.running.begin(), state.running.end(),
                       [&](const auto& other) { return other->id == token.sequence; });
      if (std::ssize(result.tokens) == options_.resend_setup_after) (*sequence)->setup_sent = false;
      const int fewer = options_.tokens_fewer * static_cast<int>(token.sequence);
      if (static_cast<int>(result.tokens.size()) < max_tokens - fewer) continue;
      ended_[token.sequence] = std::move(*sequence);
      state.running.erase(sequence);
      state.ended.push_back(token.sequence);
    }
  }

  const RankModel& model_;
  const DriverOptions options_;
  PlanLimits limits_;
  std::unique_ptr<RankPort> ranks_;
  std::unique_ptr<PageBook> pages_;
  std::vector<PageId> kept_;  // of earlier sequences, for those that reuse them
  std::map<SequenceId, std::unique_ptr<Sequence>> ended_;  // of the last run
  RingCounters ring_;
  int64_t decode_steps_ = 0;
  int64_t stretches_ = 0;
  int64_t steps_between_ = 0;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_STEP_DRIVER_H_
