#include "engine/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/field_error.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

// The longest sleep without work, and the pace of looking at readers that are behind.
constexpr std::chrono::milliseconds kIdleTurn{1000};
constexpr std::chrono::milliseconds kPausedTurn{5};

SteadyTime Now() { return std::chrono::steady_clock::now(); }

absl::Status DeadlineStatus() {
  return absl::DeadlineExceededError("the deadline passed before the answer was complete");
}

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options, RankSet& ranks, EngineMetrics& metrics,
                         std::vector<int32_t> end_of_text_ids, int32_t vocabulary)
    : options_(options),
      ranks_(ranks),
      metrics_(metrics),
      end_of_text_ids_(std::move(end_of_text_ids)),
      vocabulary_(vocabulary),
      commands_(options.max_waiting, options.max_waiting + options.max_running) {
  Publish(false);
  thread_ = std::thread([this] { Loop(); });
}

Coordinator::~Coordinator() {
  stop_ = true;
  commands_.Close();
  thread_.join();
}

absl::Status Coordinator::Submit(std::unique_ptr<Request> request) {
  if (waiting_count_.fetch_add(1) >= options_.max_waiting ||
      !commands_.TryPush(Command(std::move(request)))) {
    --waiting_count_;
    metrics_.CountRejection(AdmissionRejection::kQueueFull);
    return RetryError(absl::StrCat("the queue is full: ", options_.max_waiting,
                                   " requests are waiting; try again later"),
                      std::chrono::milliseconds(1000));
  }
  return absl::OkStatus();
}

void Coordinator::Cancel(RequestId id) {
  // Room is reserved for one cancel of every request alive. A caller that repeats itself beyond
  // that loses only repetitions: the first cancel is in the queue.
  commands_.TryPushReserved(Command(CancelCommand{id}));
}

Coordinator::Snapshot Coordinator::Look() const {
  std::lock_guard lock(snapshot_mutex_);
  return snapshot_;
}

void Coordinator::Loop() {
  while (!stop_) {
    TakeCommands();
    ExpireDeadlines();
    UpdatePaused();
    AdmitWaiting();
    const bool worked = RunStep();
    Publish(worked);
    if (worked) continue;
    std::optional<Command> command = commands_.Pop(NextWake());
    if (command.has_value()) Handle(*std::move(command));
  }
  TakeCommands();
  FinishAll(FinishReason::kCancelled, absl::UnavailableError("the server is shutting down"), true);
}

void Coordinator::TakeCommands() {
  std::vector<Command> commands;
  commands_.DrainInto(commands);
  for (Command& command : commands) Handle(std::move(command));
}

void Coordinator::Handle(Command command) {
  if (const CancelCommand* cancel = std::get_if<CancelCommand>(&command)) {
    Finish(cancel->id, FinishReason::kCancelled, absl::CancelledError("the request was cancelled"));
    return;
  }
  auto request = std::get<std::unique_ptr<Request>>(std::move(command));
  const RequestId id = request->id();
  waiting_.push_back(id);
  requests_[id] = std::move(request);
}

// When the loop must turn again though no command comes.
SteadyTime Coordinator::NextWake() const {
  const SteadyTime now = Now();
  SteadyTime wake = now + kIdleTurn;
  for (const auto& [id, request] : requests_) wake = std::min(wake, request->spec().deadline);
  const bool paused = std::any_of(state_.running.begin(), state_.running.end(),
                                  [](const auto& sequence) { return sequence->paused; });
  return paused ? std::min(wake, now + kPausedTurn) : wake;
}

void Coordinator::ExpireDeadlines() {
  const SteadyTime now = Now();
  std::vector<RequestId> expired;
  for (const auto& [id, request] : requests_) {
    if (request->spec().deadline <= now) expired.push_back(id);
  }
  for (const RequestId id : expired) Finish(id, FinishReason::kDeadline, DeadlineStatus());
}

void Coordinator::UpdatePaused() {
  std::vector<RequestId> stalled;
  const double limit = std::chrono::duration<double>(options_.slow_reader_timeout).count();
  for (const auto& sequence : state_.running) {
    Request& request = *requests_.at(sequence->id);
    const bool has_room = request.sink().HasRoom();
    sequence->paused = !has_room;
    if (request.StalledSeconds(has_room) > limit) stalled.push_back(sequence->id);
  }
  for (const RequestId id : stalled) {
    Finish(id, FinishReason::kError,
           absl::ResourceExhaustedError(absl::StrCat("the reader took nothing for ", limit,
                                                     " s while results waited; read faster")));
  }
}

void Coordinator::AdmitWaiting() {
  while (!waiting_.empty() && static_cast<int>(state_.running.size()) < options_.max_running &&
         TryAdmit(*requests_.at(waiting_.front()))) {
    waiting_.pop_front();
    --waiting_count_;
  }
  for (size_t i = 0; i < waiting_.size(); ++i) {
    requests_.at(waiting_[i])->ReportQueued(static_cast<int>(i));
  }
}

// Takes every page that the request can ever need, so that nothing can run out later.
bool Coordinator::TryAdmit(Request& request) {
  std::vector<int32_t> free_pages;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    free_pages.push_back(ranks_.pool(rank).allocator().free_count());
  }
  const int64_t tokens = request.prompt_tokens() + request.spec().sampling.max_tokens;
  const std::optional<RingChoice> choice = ChooseRing(tokens, free_pages, options_.limits);
  if (!choice.has_value()) return false;

  auto sequence = std::make_unique<Sequence>();
  std::vector<PageRef> pages;
  for (size_t index = 0; index < choice->ring.size(); ++index) {
    PageAllocator& allocator = ranks_.pool(choice->ring[index]).allocator();
    auto taken = allocator.AllocateMany(choice->pages[index], request.id());
    ANNULUS_CHECK(taken.ok()) << taken.status().ToString();
    std::vector<int32_t>& spare = sequence->spare.emplace_back();
    for (PageRef& page : *taken) {
      spare.push_back(page.id());
      pages.push_back(std::move(page));
    }
  }
  std::vector<int> homes(ranks_.size(), 0);
  for (const auto& other : state_.running) ++homes[other->home];
  sequence->id = request.id();
  sequence->tokens = request.spec().prompt;
  sequence->prompt_length = static_cast<int32_t>(request.spec().prompt.size());
  sequence->ring = choice->ring;
  sequence->home = *std::min_element(choice->ring.begin(), choice->ring.end(),
                                     [&](int a, int b) { return homes[a] < homes[b]; });
  sequence->groups.resize(options_.limits.group_windows.size());
  auto setup = std::make_shared<SamplingSetup>();
  setup->params = request.spec().sampling;
  if (setup->params.repetition_penalty != 1) setup->prompt = request.spec().prompt;
  setup->end_of_text_ids = end_of_text_ids_;
  setup->vocabulary = vocabulary_;
  sequence->setup = std::move(setup);
  request.Admit(sequence.get(), std::move(pages));
  metrics_.request_queue_time.Observe(request.timings().queue);
  state_.running.push_back(std::move(sequence));
  return true;
}

bool Coordinator::RunStep() {
  auto plan = std::make_shared<const StepPlan>(PlanStep(state_, options_.limits, options_.modes));
  if (plan->items.empty() && plan->ended.empty()) return false;
  Publish(true);
  absl::StatusOr<std::vector<RankResult>> results = ranks_.Run(plan);
  if (!results.ok()) {
    FinishAll(FinishReason::kError, results.status(), !ranks_.healthy());
    state_.ended.clear();
    return ranks_.healthy();
  }
  CommitStep(*plan, options_.limits, state_);
  RecordRing(*plan, *results);
  UseResults(*plan, *results);
  return true;
}

void Coordinator::UseResults(const StepPlan& plan, const std::vector<RankResult>& results) {
  for (const PlanItem& item : plan.items) {
    Request& request = *requests_.at(item.sequence);
    const Sequence& sequence = *request.sequence();
    request.CountStep(item.mode);
    const int32_t prompt_rows =
        std::min(item.end, sequence.prompt_length) - std::min(item.begin, sequence.prompt_length);
    if (prompt_rows == 0) continue;
    metrics_.prompt_tokens.Add(prompt_rows);
    request.ReportProgress();
  }
  for (const RankResult& result : results) {
    for (const SampledToken& token : result.tokens) UseToken(token);
  }
}

void Coordinator::UseToken(const SampledToken& token) {
  Request& request = *requests_.at(token.sequence);
  if (!token.status.ok()) {
    Finish(token.sequence, FinishReason::kError, token.status);
    return;
  }
  request.sequence()->tokens.push_back(token.token);
  const Request::TokenOutcome outcome = request.AddToken(token);
  metrics_.generation_tokens.Increment();
  if (outcome.gap_seconds.has_value()) {
    metrics_.inter_token_latency.Observe(*outcome.gap_seconds);
  } else {
    metrics_.time_to_first_token.Observe(request.timings().time_to_first_token);
    metrics_.request_prefill_time.Observe(request.timings().prefill);
  }
  if (outcome.finished.has_value()) {
    Finish(token.sequence, *outcome.finished, absl::OkStatus());
  }
}

void Coordinator::RecordRing(const StepPlan& plan, const std::vector<RankResult>& results) {
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const RingCounters& ring = results[rank].ring;
    RankMetrics& metrics = metrics_.ranks[rank];
    metrics.compute_seconds.Add(ring.compute_seconds);
    metrics.exposed_wait_seconds.Add(ring.wait_seconds);
    metrics.send_seconds.Add(ring.send_seconds);
    metrics.pass_kv_bytes.Add(static_cast<double>(ring.bytes_pass_kv));
    metrics.pass_q_bytes.Add(static_cast<double>(ring.bytes_pass_q));
  }
  metrics_.attention_density.Set(1);  // every policy so far is dense
  for (const PlanItem& item : plan.items) {
    if (requests_.at(item.sequence)->sequence()->ring.size() < 2) continue;
    (item.mode == RingMode::kPassKv ? metrics_.mode_pass_kv : metrics_.mode_pass_q).Increment();
  }
}

void Coordinator::Finish(RequestId id, FinishReason reason, absl::Status status) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  std::unique_ptr<Request> request = std::move(found->second);
  requests_.erase(found);
  const bool ran = request->sequence() != nullptr;
  if (ran) {
    const auto running = std::find_if(state_.running.begin(), state_.running.end(),
                                      [id](const auto& sequence) { return sequence->id == id; });
    request->Finish(reason, std::move(status));
    state_.running.erase(running);
    state_.ended.push_back(id);
  } else {
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), id));
    --waiting_count_;
    request->Finish(reason, std::move(status));
  }
  metrics_.CountFinished(reason);
  metrics_.e2e_request_latency.Observe(request->timings().total);
  metrics_.request_prompt_tokens.Observe(static_cast<double>(request->prompt_tokens()));
  metrics_.request_generation_tokens.Observe(static_cast<double>(request->completion_tokens()));
  if (request->completion_tokens() > 0) {
    metrics_.request_decode_time.Observe(request->timings().decode);
  }
}

void Coordinator::FinishAll(FinishReason reason, const absl::Status& status, bool waiting_too) {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) {
    if (waiting_too || request->sequence() != nullptr) ids.push_back(id);
  }
  for (const RequestId id : ids) Finish(id, reason, status);
}

void Coordinator::Publish(bool busy) {
  Snapshot next;
  next.running = static_cast<int>(state_.running.size());
  next.waiting = static_cast<int>(waiting_.size());
  next.healthy = ranks_.healthy();
  next.last_turn = Now();
  next.busy = busy;
  int64_t held = 0;
  int64_t total = 0;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const PageAllocator& allocator = ranks_.pool(rank).allocator();
    next.pages_held.push_back(allocator.held_count());
    next.pages_total.push_back(allocator.page_count());
    held += allocator.held_count();
    total += allocator.page_count();
  }
  metrics_.requests_running.Set(next.running);
  metrics_.requests_waiting.Set(next.waiting);
  metrics_.kv_cache_usage.Set(total > 0 ? static_cast<double>(held) / total : 0);
  std::lock_guard lock(snapshot_mutex_);
  snapshot_ = std::move(next);
}

}  // namespace annulus
