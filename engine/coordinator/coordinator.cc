#include "engine/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "engine/base/field_error.h"
#include "engine/base/try_to.h"
#include "engine/coordinator/finished_request.h"
#include "engine/scheduler/parking.h"
#include "kernels/base/guarded.h"

namespace annulus {
namespace {

// The longest sleep without work, and the pace of checking readers that are slow, or ranks that
// form their ring anew.
constexpr std::chrono::milliseconds kIdleTurn{1000};
constexpr std::chrono::milliseconds kPausedTurn{5};

absl::Status DeadlineStatus() {
  return absl::DeadlineExceededError(
      "the answer was not complete before the request's deadline; allow more time, or ask for "
      "less");
}

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options, RankPort& ranks, EngineMetrics& metrics,
                         const Clock& clock, std::vector<int32_t> end_of_text_ids,
                         int32_t vocabulary)
    : options_(options),
      ranks_(ranks),
      metrics_(metrics),
      clock_(clock),
      commands_(options.engine.max_waiting, metrics, clock),
      plans_(clock),
      board_(metrics),
      serving_(options.engine.stall_budget.value(), options.limits, options.engine.max_running,
               metrics),
      ledger_(options_, ranks, clock, [this] { commands_.Wake(); }),
      policies_(options_, ledger_.prefixes()),
      needs_(options_, ranks, ledger_, serving_),
      quota_(ranks, options_.limits, ledger_, serving_),
      finder_(options_, ledger_, needs_, quota_),
      sequences_(options_, ledger_, policies_, std::move(end_of_text_ids), vocabulary),
      prefix_waits_(options_, ledger_, clock),
      restore_waits_(options_, ledger_, serving_, needs_, finder_, quota_),
      starter_({options_, ledger_, metrics, policies_, needs_, finder_, sequences_}),
      growth_({options_, ledger_, serving_, needs_, metrics,
               [this](const Request& request) {
                 ForgetWaits(request);
                 commands_.WaitAgain(request.id());
               }}),
      keepers_({options_, ledger_, serving_, policies_, needs_, growth_, clock,
                [this] { commands_.Wake(); }}),
      checks_({options_, ledger_, needs_, finder_, sequences_, clock}),
      answers_({options_, ranks, ledger_, serving_, policies_, needs_, finder_, quota_, clock}),
      recovery_({options_, ledger_, serving_, growth_, checks_, metrics,
                 [this](const Request& request) { ForgetWaits(request); },
                 [this](RequestId id, absl::Status status) {
                   Finish(id, FinishReason::kError, std::move(status));
                 }}),
      account_(options.modes.geometry.heads, options.modes.geometry.page.kv_heads, ranks.patterns(),
               metrics),
      delivery_(ledger_, serving_, metrics) {
  Publish(false);
  thread_ = std::thread([this] { Loop(); });
}

Coordinator::~Coordinator() {
  commands_.Close();  // first: a request that is accepted is then always drained
  stop_ = true;
  thread_.join();
}

absl::Status Coordinator::Submit(std::unique_ptr<Request> request) {
  return commands_.Submit(std::move(request));
}

absl::StatusOr<RequestPlan> Coordinator::Plan(RequestSpec spec, const CancelFlag& cancel) {
  return plans_.Ask(
      std::move(spec), [this] { commands_.Wake(); }, cancel);
}

void Coordinator::Loop() {
  while (!stop_) {
    TakeCommands();
    if (ledger_.tier() != nullptr && ledger_.tier()->Turn()) serving_.NoteRoom();
    for (PageKeeper* const keeper : ledger_.keepers()) keeper->Tend();
    ExpireDeadlines();
    CheckReaders();
    TendRanks();
    // A successor is planned only if nobody needs pages, so the next turn is early enough.
    if (!step_.has_value()) growth_.GrowRunning(clock_.Now());
    checks_.Begin();
    AdmitWaiting();
    const bool more_plans =
        plans_.AnswerOne([this](const auto& spec) { return answers_.Answer(spec); });
    const bool worked = RunStep();
    Publish(worked);
    if (!worked && !more_plans) Enqueue(commands_.Wait(NextWake()));
  }
  plans_.Close();
  DropSuccessor();
  TakeCommands();
  FinishAll(FinishReason::kCancelled,
            absl::UnavailableError("the server is shutting down; try again when it is back"), true);
}

void Coordinator::TakeCommands() {
  CommandQueue::Commands commands = commands_.Take();
  for (auto& request : commands.requests) Enqueue(std::move(request));
  for (const RequestId id : commands.cancels) {
    Finish(id, FinishReason::kCancelled, absl::CancelledError("the request was cancelled"));
  }
}

// `request`: null: there is none.
void Coordinator::Enqueue(std::unique_ptr<Request> request) {
  if (request == nullptr) return;
  const auto add = [&] {
    ledger_.Add(request);
    return absl::OkStatus();
  };
  if (absl::Status added = Guarded(add, NoMemoryError); !added.ok()) {
    commands_.Forget(request->id());
    request->Finish(FinishReason::kError, std::move(added));
    return;
  }
  serving_.NoteArrival();
}

void Coordinator::AdmitWaiting() {
  const SteadyTime now = clock_.Now();
  if (ledger_.any_left()) return;  // more room comes in this very turn
  // Room goes to those that run first.
  if (ledger_.waiting().empty() || growth_.lacks_pages() || !serving_.PassIsDue(now)) return;
  AdmissionPass pass(
      {ledger_, serving_, policies_, keepers_.documents, prefix_waits_, restore_waits_, starter_});
  const AdmissionPass::Outcome outcome = pass.Run(now);
  for (const RequestId id : outcome.begun) commands_.EndWait(id);
  for (const auto& [id, status] : outcome.failed) Finish(id, FinishReason::kError, status);
  for (const RequestId id : outcome.kept) {
    ledger_.request(id).SetAllCached();
    Finish(id, FinishReason::kPrefilled, absl::OkStatus());
  }
}

// When the loop must turn again even if no command comes.
SteadyTime Coordinator::NextWake() const {
  const SteadyTime now = clock_.Now();
  const auto& waiting = ledger_.waiting();
  if (!waiting.empty() && !growth_.lacks_pages() && serving_.PassIsDue(now)) return now;
  SteadyTime wake = now + kIdleTurn;
  for (const PageKeeper* const keeper : ledger_.keepers()) wake = std::min(wake, keeper->NextDue());
  for (const auto& [id, request] : ledger_.requests()) {
    wake = std::min(wake, request->spec().deadline);
  }
  if (ledger_.tier() != nullptr) wake = std::min(wake, ledger_.tier()->NextDue());
  const auto& running = ledger_.state().running;
  const bool paused = std::any_of(running.begin(), running.end(),
                                  [](const auto& sequence) { return sequence->paused; }) ||
                      std::any_of(waiting.begin(), waiting.end(), [this](RequestId id) {
                        return ledger_.request(id).has_begun();  // its reader may be slow
                      });
  const bool mending = ranks_.state() == RanksState::kMending;
  return paused || mending ? std::min(wake, now + kPausedTurn) : wake;
}

void Coordinator::ExpireDeadlines() {
  const SteadyTime now = clock_.Now();
  std::vector<RequestId> expired;
  for (const auto& [id, request] : ledger_.requests()) {
    if (request->spec().deadline <= now) expired.push_back(id);
  }
  for (const RequestId id : expired) Finish(id, FinishReason::kDeadline, DeadlineStatus());
}

// Parks requests whose readers are slow, and ends those whose readers are too slow.
void Coordinator::CheckReaders() {
  std::vector<std::pair<RequestId, absl::Status>> slow;
  const double limit = std::chrono::duration<double>(options_.engine.slow_reader_timeout).count();
  const auto check = [&](RequestId id) {
    Request& request = ledger_.request(id);
    const bool has_room = request.sink().HasRoom();
    absl::Status pace = request.CheckReader(has_room, limit);
    if (!pace.ok()) slow.emplace_back(id, std::move(pace));
    return has_room;
  };
  UpdatePaused(ledger_.state(), check, options_.engine.max_running);
  for (const RequestId id : ledger_.waiting()) {
    if (ledger_.request(id).has_begun()) check(id);
  }
  for (auto& [id, status] : slow) Finish(id, FinishReason::kError, std::move(status));
}

// Ends a request, which waits or runs, or a check. No-op if it is not there.
void Coordinator::Finish(RequestId id, FinishReason reason, absl::Status status) {
  const std::unique_ptr<Request> request = ledger_.Take(id);
  if (request == nullptr) return;
  if (checks_.Has(id)) {
    checks_.End(*request, reason == FinishReason::kPrefilled);
    return serving_.NoteRoom();
  }
  if (reason == FinishReason::kPrefilled) {
    status = Guarded([&] { return keepers_.documents.KeepPrefilled(*request); }, NoMemoryError);
    if (!status.ok()) reason = FinishReason::kError;
  }
  serving_.NoteEnd(id, clock_.Now());
  commands_.set_turnover(serving_.turnover_seconds());
  ForgetWaits(*request);
  commands_.Forget(id);
  if (request->sequence() == nullptr) {
    ledger_.Leave(*request);
    return Report(*request, reason, std::move(status));
  }
  const bool read = reason == FinishReason::kStop || reason == FinishReason::kLength ||
                    reason == FinishReason::kPrefilled;
  if (read) policies_.Learn(*request);
  Report(*request, reason, std::move(status));
  const bool unfinished = reason == FinishReason::kCancelled || reason == FinishReason::kDeadline;
  if (unfinished && !stop_ && ranks_.state() != RanksState::kLost) {
    // Without memory for it, the prompt is computed again if it is sent again.
    TryTo([&] { ledger_.prefixes().KeepUnfinished(*request->sequence(), *request); });
  }
  ledger_.Leave(*request);
}

void Coordinator::FinishAll(FinishReason reason, const absl::Status& status, bool waiting_too) {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : ledger_.requests()) {
    if (waiting_too || request->sequence() != nullptr) ids.push_back(id);
  }
  for (const RequestId id : ids) Finish(id, reason, status);
}

// Tells the request that it has ended, and counts it.
void Coordinator::Report(Request& request, FinishReason reason, absl::Status status) {
  request.Finish(reason, std::move(status));
  CountFinished(request, reason, metrics_);
  if (reason == FinishReason::kStop || reason == FinishReason::kLength) {
    serving_.CountAnswer(request.completion_tokens());
  }
}

// Forgets what others wait for of the request, or it of them: it has ended or is preempted.
void Coordinator::ForgetWaits(const Request& request) {
  finder_.Forget(request.id());
  prefix_waits_.Forget(request);
  if (ledger_.tier() != nullptr) ledger_.tier()->Forget(request.id());
}

void Coordinator::Publish(bool busy) {
  commands_.set_busy(busy || !ledger_.waiting().empty());
  board_.Publish(ledger_, serving_, checks_.count(), ranks_.state() == RanksState::kUp, busy,
                 clock_.Now());
}

}  // namespace annulus
