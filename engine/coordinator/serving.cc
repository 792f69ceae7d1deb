#include "engine/coordinator/serving.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/base/clock.h"

namespace annulus {
namespace {

constexpr std::chrono::milliseconds kPassInterval{100};

void SetSuspended(const Sequence& sequence, PromptState& state) {
  if (!sequence.suspended.has_value()) return;
  for (const PlanItem& item : sequence.suspended->items) {
    state.suspended_end = std::max(state.suspended_end, item.end);
  }
  state.layers_done = sequence.suspended->layers;
}

RowAttention AttentionOf(const Sequence& sequence) {
  return {ClassOf(sequence.attention.get()), sequence.pattern_pairs.get(),
          sequence.prompt_logprobs.has_value()};
}

PromptState StateOf(const Sequence& sequence) {
  PromptState state{.sequence = sequence.id,
                    .computed = sequence.computed,
                    .prompt_length = sequence.prompt_length,
                    .attention = AttentionOf(sequence),
                    .degree = static_cast<int>(sequence.ring.size())};
  if (!sequence.lost.has_value()) SetSuspended(sequence, state);
  return state;
}

// The same for the rows that it lost, which it computes before it goes on.
PromptState StateOfRepair(const Sequence& sequence) {
  PromptState state{.sequence = sequence.id,
                    .computed = sequence.lost->begin,
                    .prompt_length = sequence.lost->end,
                    .attention = AttentionOf(sequence),
                    .degree = 1};  // a rank lost its pages, and others have none of the rows
  state.attention.scored = false;  // they were scored before
  SetSuspended(sequence, state);
  return state;
}

}  // namespace

ShareName ShareOf(const RequestSpec& spec) {
  return {spec.tenant.name(), spec.client, spec.connection};
}

Serving::Serving(std::chrono::milliseconds stall_budget, const PlanLimits& limits, int max_running,
                 EngineMetrics& metrics)
    : stall_seconds_(std::chrono::duration<double>(stall_budget).count()),
      ranks_(limits.ranks),
      max_running_(max_running),
      metrics_(metrics),
      pacer_(stall_seconds_, limits) {}

Contender Serving::ContenderOf(const Request& request, SteadyTime now) const {
  const RequestSpec& spec = request.spec();
  Contender contender;
  contender.id = request.id();
  contender.share = ShareOf(spec);
  contender.priority = spec.priority;
  contender.elapsed = SecondsBetween(request.submitted(), now);
  const PromptShare share = ShareDone(request);
  contender.remaining = share.left;
  contender.total = share.done + share.left;
  const SteadyTime due = std::min(spec.deadline, spec.wanted_by);
  if (due != SteadyTime::max()) contender.until_deadline = SecondsBetween(now, due);
  contender.ends_at_deadline = spec.deadline == due;
  contender.answer = AnswerSeconds(spec);
  contender.slowed = prompt_pace_.slowed();
  return contender;
}

// An answer takes as long as those of others do now; max_tokens is rarely reached.
double Serving::AnswerSeconds(const RequestSpec& spec) const {
  if (spec.prefill_only) return 0;
  const double tokens = std::min<double>(spec.sampling.max_tokens, answer_tokens_);
  return (tokens - 1) * token_seconds_;
}

// Of a request that does not run: on as many ranks as it can have at most.
PromptState Serving::StateAhead(const Request& request) const {
  const bool scored = request.prompt_logprobs().has_value();
  return {.prompt_length = request.tokens_to_read(),
          .attention = {AttentionClass::kDense, nullptr, scored},
          .degree = ranks_};
}

Serving::PromptShare Serving::ShareDone(const Request& request) const {
  const int32_t length = request.tokens_to_read();
  PromptState prompt = StateAhead(request);
  int32_t cached = 0;
  if (request.sequence() != nullptr) {
    prompt = StateOf(*request.sequence());
    cached = request.begun_from();
  }
  const int32_t computed = std::min(prompt.computed, length);
  PromptShare share{.done = pacer_.PromptSeconds(prompt, cached, computed),
                    .left = pacer_.PromptSeconds(prompt, computed, length),
                    .processed = prompt.computed};
  if (prompt.suspended_end == 0) return share;
  const Stretch run{.first_layer = 0, .end_layer = prompt.layers_done};
  const double chunk = pacer_.PromptSeconds(prompt, computed, prompt.suspended_end);
  const double seconds = pacer_.PromptSeconds(prompt, computed, prompt.suspended_end, run);
  share.done += seconds;
  share.left = std::max(0.0, share.left - seconds);
  const double part = chunk > 0 ? std::min(seconds / chunk, 1.0) : pacer_.StepPart(run);
  share.processed += static_cast<int64_t>(part * (prompt.suspended_end - prompt.computed));
  return share;
}

Serving::PromptShare Serving::ShareWithSteps(const Request& request,
                                             const EngineState& state) const {
  PromptShare share = ShareDone(request);
  share.done += request.prompt_steps() * pacer_.StepSeconds();
  share.left += pacer_.StepSecondsLeft(StateOf(*request.sequence()), StreamsAhead(state));
  return share;
}

std::vector<StreamRows> Serving::StreamsAhead(const EngineState& state) const {
  std::vector<StreamRows> streams;
  double owed = 0;  // rows that the streams so far should have had and, being whole, have not
  for (const auto& sequence : state.running) {
    if (sequence->paused || sequence->in_prefill()) continue;
    owed += stream_rows_;
    const int32_t rows = std::max(1, static_cast<int32_t>(owed));
    owed -= rows;
    streams.push_back({.position = sequence->computed, .rows = rows});
  }
  return streams;
}

double Serving::PromptSeconds(int32_t begin, int32_t end) const {
  return pacer_.PromptSeconds({.prompt_length = end, .degree = ranks_}, begin, end);
}

std::optional<RequestPlan::Seconds> Serving::Expect(const RequestSpec& spec,
                                                    const PromptState& prompt,
                                                    const EngineState& state,
                                                    const Requests& requests,
                                                    SteadyTime now) const {
  if (pacer_.costs().steps() == 0) return std::nullopt;
  const std::vector<StreamRows> streams = StreamsAhead(state);
  const auto seconds_of = [&](const PromptState& one) {
    return pacer_.SecondsBeside(one, streams);
  };
  RequestPlan::Seconds expected{.prefill = seconds_of(prompt)};
  std::vector<Contender> contenders;
  std::vector<double> seconds;
  for (const auto& [id, request] : requests) {
    const Sequence* const sequence = request->sequence();
    if (sequence != nullptr && (sequence->paused || !sequence->in_prefill())) continue;
    contenders.push_back(ContenderOf(*request, now));
    seconds.push_back(seconds_of(sequence != nullptr ? StateOf(*sequence) : StateAhead(*request)));
  }
  Contender& own = contenders.emplace_back();
  own.id = std::numeric_limits<SequenceId>::max();
  own.share = ShareOf(spec);
  own.priority = spec.priority;
  own.total = own.remaining = expected.prefill;
  for (const size_t i : ServingOrder(contenders, shares_)) {
    if (i + 1 == contenders.size()) break;
    expected.first_token += seconds[i];
  }
  expected.first_token += expected.prefill;
  return expected;
}

std::chrono::milliseconds RetryAfter(double turnover_seconds, int waiting) {
  const double ends = std::max(2.0, waiting / 2.0);
  const double seconds = std::clamp(ends * turnover_seconds, 0.25, 60.0);
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

bool Serving::PassIsDue(SteadyTime now) const { return news_ || now >= next_pass_; }

void Serving::NoteEnd(RequestId id, SteadyTime now) {
  if (last_end_ != SteadyTime{}) {
    constexpr double kMost = 10;  // an idle hour tells nothing of the next request
    const double gap = std::min(SecondsBetween(last_end_, now), kMost);
    turnover_seconds_ += 0.2 * (gap - turnover_seconds_);
  }
  last_end_ = now;
  admission_.Forget(id);
  NoteRoom();
}

void Serving::NotePreempted(RequestId id) {
  admission_.Forget(id);
  NoteRoom();
}

void Serving::NoteRoom() {
  admission_.RoomMayHaveCome();
  news_ = true;
}

void Serving::SetContending(const Requests& requests) {
  lent_turns_.Keep([&](SequenceId id) {
    const auto found = requests.find(id);
    if (found == requests.end()) return false;
    const Sequence* const sequence = found->second->sequence();
    return sequence == nullptr || sequence->in_prefill();
  });
  std::vector<ShareName> contending = lent_turns_.Owing();
  for (const auto& [id, request] : requests) {
    const Sequence* const sequence = request->sequence();
    if (sequence == nullptr || (sequence->in_prefill() && !sequence->paused)) {
      contending.push_back(ShareOf(request->spec()));
    }
  }
  shares_.SetContending(contending);
}

std::vector<RequestId> Serving::Admit(const std::deque<RequestId>& waiting,
                                      const Requests& requests, AdmissionHost& host,
                                      SteadyTime now) {
  news_ = false;
  next_pass_ = now + kPassInterval;
  SetContending(requests);
  // Nothing runs, so nothing slows prompts any more.
  if (requests.size() == waiting.size()) prompt_pace_ = PromptPace();
  std::vector<Contender> contenders;
  for (const RequestId id : waiting) contenders.push_back(ContenderOf(*requests.at(id), now));
  std::vector<Contender> begun;
  for (const auto& [id, request] : requests) {
    const Sequence* const sequence = request->sequence();
    if (sequence == nullptr || sequence->paused || !sequence->in_prefill()) continue;
    begun.push_back(ContenderOf(*request, now));
  }
  std::vector<RequestId> order;
  for (const size_t i : admission_.Run(contenders, begun, shares_, host)) {
    order.push_back(contenders[i].id);
  }
  return order;
}

OwnerSlots Serving::CountSlots(const EngineState& state, const Requests& requests) const {
  OwnerSlots slots(max_running_);
  for (const auto& sequence : state.running) {
    if (!sequence->paused) slots.Take(ShareOf(requests.at(sequence->id)->spec()).owner());
  }
  return slots;
}

std::vector<size_t> Serving::OrderOfRunning(const EngineState& state, const Requests& requests,
                                            SteadyTime now) const {
  std::vector<Contender> contenders;
  for (const auto& sequence : state.running) {
    contenders.push_back(ContenderOf(*requests.at(sequence->id), now));
  }
  return ServingOrder(contenders, shares_);
}

StepChoice Serving::Next(const EngineState& state, const Requests& requests,
                         std::span<const StreamRows> streams,
                         const std::function<bool(SequenceId)>& waits, SteadyTime now) {
  std::vector<Contender> contenders;
  std::vector<PromptState> states;
  std::vector<bool> repairs;
  std::vector<bool> is_apart;
  // They may share pages, so one is repaired after the other: first the one whose chunk is
  // suspended.
  std::optional<SequenceId> repaired;
  for (const auto& sequence : state.running) {
    const bool suspended = sequence->suspended.has_value();
    const bool lost = sequence->lost.has_value();
    if (!sequence->prefills() || (sequence->paused && !suspended)) continue;
    const bool held = sequence->apart || (!lost && waits(sequence->id));
    if (!suspended && held) continue;
    contenders.push_back(ContenderOf(*requests.at(sequence->id), now));
    states.push_back(lost ? StateOfRepair(*sequence) : StateOf(*sequence));
    repairs.push_back(lost);
    is_apart.push_back(sequence->apart);
    if (suspended && lost) repaired = sequence->id;
  }
  std::vector<size_t> order = ServingOrder(contenders, shares_);
  turn_.reset();
  if (!order.empty()) {
    turn_ = lent_turns_.Next(contenders, shares_);
    const auto first = std::find_if(order.begin(), order.end(),
                                    [&](size_t i) { return contenders[i].id == turn_->served.id; });
    std::rotate(order.begin(), first, first + 1);
  }
  std::vector<PromptState> prompts;
  for (const bool apart : {false, true}) {
    for (const size_t i : order) {
      if (is_apart[i] != apart) continue;
      if (repairs[i] && repaired.value_or(states[i].sequence) != states[i].sequence) continue;
      if (repairs[i]) repaired = states[i].sequence;
      prompts.push_back(states[i]);
    }
  }
  return pacer_.Next(prompts, streams, state.after_stretch);
}

StepChoice Serving::NextApart(const Sequence& sequence, std::span<const StreamRows> streams) const {
  const PromptState prompt = StateOf(sequence);
  return pacer_.Next({&prompt, 1}, streams, /*after_stretch=*/false);
}

void Serving::Took(const StepPlan& plan, const Requests& requests, double seconds) {
  if (plan.items.empty()) return;
  int streams = 0;
  int64_t stream_rows = 0;
  int64_t rows = 0;
  std::vector<double> costs;
  std::vector<ShareUse> uses;
  std::vector<RowAttention> attention;
  double all = 0;
  const double step = plan.stretch.has_value() ? pacer_.StepPart(*plan.stretch) : 1;
  for (const PlanItem& item : plan.items) {
    Request& request = *requests.at(item.sequence);
    if (!item.sampled) request.CountPromptStep(step);
    attention.push_back(AttentionOf(*request.sequence()));
    const bool stream = item.sampled && item.begin >= request.sequence()->prompt_length;
    if (stream) {
      ++streams;
      stream_rows += item.end - item.begin;
    }
    if (EndsItsChunks(plan)) rows += item.end - item.begin;
    const StepWork work = stream
                              ? SampledWork(item.begin, item.end)
                              : EvenWork(item.begin, item.end,
                                         {AttentionClass::kDense, nullptr, item.score.has_value()});
    costs.push_back(pacer_.costs().Predict(work) + 1e-6 * (item.end - item.begin));
    all += costs.back();
    uses.push_back(
        {.share = ShareOf(request.spec()), .prompt = !stream, .priority = request.spec().priority});
  }
  if (streams > 0) {
    stream_rows_ += 0.1 * (static_cast<double>(stream_rows) / streams - stream_rows_);
  }
  LearnPace(plan, requests, seconds);
  pacer_.Took(plan, attention, streams, seconds);
  double turn = 0;  // seconds of whom Next had let go first
  for (size_t i = 0; i < uses.size(); ++i) {
    uses[i].seconds = seconds * costs[i] / all;
    if (!uses[i].prompt || !turn_.has_value()) continue;
    if (plan.items[i].sequence != turn_->served.id) continue;
    uses[i].share = turn_->lender.share;
    uses[i].priority = turn_->lender.priority;
    turn += uses[i].seconds;
  }
  if (turn > 0) lent_turns_.Charge(*turn_, turn);
  turn_.reset();
  shares_.Charge(uses);
  SetContending(requests);
  if (rows > 0) metrics_.iteration_tokens.Observe(static_cast<double>(rows));
  if (plan.stretch.has_value()) metrics_.chunk_stretches.Increment();
  metrics_.step_cost_error.Set(pacer_.costs().error());
  metrics_.smallest_chunk_seconds.Set(pacer_.smallest_chunk_seconds());
}

// Call before pacer_.Took, so that a step is judged by what was predicted without it. Learns only
// from steps after which some prompt is unfinished, also from those without prompt rows. The step
// in which the only prompt ends is left out: few prompt rows, but the time of all streams.
void Serving::LearnPace(const StepPlan& plan, const Requests& requests, double seconds) {
  if (pacer_.costs().steps() == 0) return;  // no prediction yet
  double alone = 0;
  for (const PlanItem& item : plan.items) {
    const Sequence& sequence = *requests.at(item.sequence)->sequence();
    if (item.begin >= sequence.prompt_length) continue;
    const PromptState prompt = StateOf(sequence);
    alone += plan.stretch.has_value()
                 ? pacer_.PromptSeconds(prompt, item.begin, item.end, *plan.stretch)
                 : pacer_.PromptSeconds(prompt, item.begin, item.end);
  }
  const bool waits = std::any_of(requests.begin(), requests.end(), [](const auto& entry) {
    const Sequence* const sequence = entry.second->sequence();
    return sequence != nullptr && sequence->in_prefill() && !sequence->paused;
  });
  if (waits) prompt_pace_.Learn(seconds, alone);
}

void Serving::CountAnswer(int64_t tokens) {
  answer_tokens_ += 0.1 * (static_cast<double>(tokens) - answer_tokens_);
  answer_length_.Learn(tokens);
}

int64_t Serving::ExpectAnswer(const RequestSpec& spec, int64_t so_far) const {
  return answer_length_.Expect(spec.sampling.min_tokens, spec.sampling.max_tokens, so_far);
}

bool Serving::CountGap(double seconds, int tokens) {
  token_seconds_ += 0.02 * (seconds / std::max(tokens, 1) - token_seconds_);
  const bool stall = stall_seconds_ > 0 && seconds > stall_seconds_;
  if (stall) metrics_.stall_violations.Increment();
  return stall;
}

double Serving::RowCost(int32_t position) const {
  // As long as all steps had one row, the time of a row cannot be told from that of a step: these
  // are the least and the most shares that are believed.
  constexpr double kLeast = 0.02;
  constexpr double kMost = 0.25;
  const StepWork row = SampledWork(position, position + 1);
  StepWork step = row;
  step.amount[StepWork::kStep] = 1;
  const double all = pacer_.costs().Predict(step);
  if (all <= 0) return kMost;
  return std::clamp(pacer_.costs().Predict(row) / all, kLeast, kMost);
}

}  // namespace annulus
