#include "engine/coordinator/coordinator.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "engine/pages/request_pages.h"
#include "kernels/base/check.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// The longest sleep without work, and the pace of looking at readers that are behind.
constexpr std::chrono::milliseconds kIdleTurn{1000};
constexpr std::chrono::milliseconds kPausedTurn{5};

absl::Status DeadlineStatus() {
  return absl::DeadlineExceededError(
      "the request's deadline passed before its answer was complete; allow more time, or ask for "
      "less");
}

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options, RankPort& ranks, EngineMetrics& metrics,
                         const Clock& clock, std::vector<int32_t> end_of_text_ids,
                         int32_t vocabulary)
    : options_(options),
      automatic_(options.automatic, options.modes.geometry),
      ranks_(ranks),
      metrics_(metrics),
      clock_(clock),
      end_of_text_ids_(std::move(end_of_text_ids)),
      vocabulary_(vocabulary),
      account_(options.modes.geometry.heads, options.modes.geometry.page.kv_heads, ranks.patterns(),
               metrics),
      commands_(options.max_waiting + 2, clock),
      plans_(clock),
      serving_(options.stall_budget, options.limits, options.max_running, metrics),
      pages_(ranks.page_counts(), options.limits.group_windows, ranks.page_hooks()),
      prefixes_(options.identity, options.limits, options.ropes, pages_),
      pins_({options.max_pinned, options.max_pinned_by_tenant, options.limits.page_tokens,
             options.limits.group_windows},
            pages_, prefixes_.index()) {
  state_.running.reserve(options.max_running);  // a request that is admitted finds its place
  if (!options.tiers.empty()) {
    tier_ = std::make_unique<PageTier>(
        options.tiers,
        PageTier::Options{.identity = options.identity,
                          .other_identities = options.other_identities,
                          .verify = options.verify,
                          .comparer = options.comparer,
                          .wake = [this] { commands_.TryPush(nullptr); }},
        options.limits, ranks, clock, pages_, prefixes_);
  }
  Publish(false);
  thread_ = std::thread([this] { Loop(); });
}

Coordinator::~Coordinator() {
  commands_.Close();  // first: a request that is accepted is then always drained
  stop_ = true;
  thread_.join();
  tier_.reset();
  for (const PageOwner owner : lost_) pages_.Release(owner);
}

absl::Status Coordinator::Submit(std::unique_ptr<Request> request) {
  const RequestId id = request->id();
  const int ahead = waiting_count_.fetch_add(1);
  // Also if memory runs out on the way: a request that never enters the queue must not count in it.
  absl::Cleanup not_accepted = [this] { --waiting_count_; };
  if (ahead < options_.max_waiting) {
    // The loop may be in the middle of a step, so tell the caller now that the request waits.
    if (busy_) request->ReportQueued(ahead);
    std::lock_guard lock(alive_mutex_);
    alive_.insert(id);
    absl::Cleanup not_alive = [this, id] { alive_.erase(id); };
    if (commands_.TryPush(std::move(request))) {
      std::move(not_alive).Cancel();
      std::move(not_accepted).Cancel();
      return absl::OkStatus();
    }
  }
  return RefuseForQueue();
}

absl::Status Coordinator::CheckQueue() {
  return waiting_count_ < options_.max_waiting ? absl::OkStatus() : RefuseForQueue();
}

// Thread-safe. Counts a refusal and returns its error.
absl::Status Coordinator::RefuseForQueue() {
  metrics_.CountRejection(AdmissionRejection::kQueueFull);
  return RetryError(absl::StrCat("the queue is full: the server lets at most ",
                                 options_.max_waiting, " requests wait; try again later"),
                    RetryAfter(turnover_seconds_, waiting_count_));
}

void Coordinator::Cancel(RequestId id) {
  {
    std::lock_guard lock(alive_mutex_);
    if (!alive_.contains(id) || !cancels_.insert(id).second) return;
  }
  commands_.TryPush(nullptr);  // only to wake the loop; a full queue means that it is awake
}

Coordinator::Snapshot Coordinator::Look() const {
  std::lock_guard lock(snapshot_mutex_);
  return snapshot_;
}

void Coordinator::Loop() {
  while (!stop_) {
    TakeCommands();
    if (tier_ != nullptr && tier_->Turn()) serving_.NoteRoom();
    TendDocuments();
    ExpireDeadlines();
    LookAtReaders();
    // If the ranks are down, no step will free pages for requests that wait: end all requests now.
    if (ranks_.state() != RanksState::kUp && !requests_.empty()) {
      FailStep(absl::UnavailableError("the ranks have stopped because an earlier step failed"));
    }
    GrowRunning();
    BeginChecks();
    AdmitWaiting();
    const bool more_plans = plans_.AnswerOne([this](const auto& spec) { return PlanNow(spec); });
    const bool worked = RunStep();
    Publish(worked);
    if (worked || more_plans) continue;
    auto request = commands_.Pop(NextWake());
    if (request.has_value()) Enqueue(*std::move(request));
  }
  plans_.Close();
  DropStepBehind();
  TakeCommands();
  FinishAll(FinishReason::kCancelled,
            absl::UnavailableError("the server is shutting down; try again when it is back"), true);
}

void Coordinator::TakeCommands() {
  // Cancels are read first and applied last: each belongs to a request that is in the queue by now.
  std::set<RequestId> cancels;
  {
    std::lock_guard lock(alive_mutex_);
    cancels.swap(cancels_);
  }
  std::vector<std::unique_ptr<Request>> requests;
  commands_.DrainInto(requests);
  for (auto& request : requests) Enqueue(std::move(request));
  for (const RequestId id : cancels) {
    Finish(id, FinishReason::kCancelled, absl::CancelledError("the request was cancelled"));
  }
}

void Coordinator::Enqueue(std::unique_ptr<Request> request) {
  if (request == nullptr) return;
  const RequestId id = request->id();
  const auto place = [&] {
    Request& taken = *request;
    requests_.emplace(id, std::move(request));
    absl::Cleanup undo = [&] { requests_.extract(id).mapped().swap(request); };
    waiting_.push_back(taken.id());
    std::move(undo).Cancel();
    return absl::OkStatus();
  };
  if (absl::Status placed = Guarded(place, NoMemoryError); !placed.ok()) {
    --waiting_count_;
    {
      std::lock_guard lock(alive_mutex_);
      alive_.erase(id);
      cancels_.erase(id);
    }
    request->Finish(FinishReason::kError, std::move(placed));
    return;
  }
  serving_.NoteArrival();
}

// When the loop must turn again even if no command comes.
SteadyTime Coordinator::NextWake() const {
  const SteadyTime now = clock_.Now();
  if (!waiting_.empty() && !lacks_pages_ && serving_.PassIsDue(now)) return now;
  SteadyTime wake = std::min(now + kIdleTurn, pins_.NextExpiry());
  for (const auto& [id, request] : requests_) wake = std::min(wake, request->spec().deadline);
  if (tier_ != nullptr) wake = std::min(wake, tier_->NextDue());
  const bool paused = std::any_of(state_.running.begin(), state_.running.end(),
                                  [](const auto& sequence) { return sequence->paused; }) ||
                      std::any_of(waiting_.begin(), waiting_.end(), [this](RequestId id) {
                        return requests_.at(id)->has_begun();  // its reader may be behind
                      });
  return paused ? std::min(wake, now + kPausedTurn) : wake;
}

void Coordinator::ExpireDeadlines() {
  const SteadyTime now = clock_.Now();
  std::vector<RequestId> expired;
  for (const auto& [id, request] : requests_) {
    if (request->spec().deadline <= now) expired.push_back(id);
  }
  for (const RequestId id : expired) Finish(id, FinishReason::kDeadline, DeadlineStatus());
}

void Coordinator::LookAtReaders() {
  std::vector<std::pair<RequestId, absl::Status>> slow;
  const double limit = std::chrono::duration<double>(options_.slow_reader_timeout).count();
  const auto look = [&](RequestId id) {
    Request& request = *requests_.at(id);
    const bool has_room = request.sink().HasRoom();
    absl::Status pace = request.LookAtReader(has_room, limit);
    if (!pace.ok()) slow.emplace_back(id, std::move(pace));
    return has_room;
  };
  UpdatePaused(state_, look, options_.max_running);
  for (const RequestId id : waiting_) {
    if (requests_.at(id)->has_begun()) look(id);
  }
  for (auto& [id, status] : slow) Finish(id, FinishReason::kError, std::move(status));
}

void Coordinator::Finish(RequestId id, FinishReason reason, absl::Status status) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  std::unique_ptr<Request> request = std::move(found->second);
  requests_.erase(found);
  if (checks_.contains(id)) {
    return EndCheck(std::move(request), reason == FinishReason::kPrefilled);
  }
  if (reason == FinishReason::kPrefilled) {
    status = Guarded([&] { return KeepPrefilled(*request); }, NoMemoryError);
    if (!status.ok()) reason = FinishReason::kError;
  }
  serving_.NoteEnd(id, clock_.Now());
  turnover_seconds_ = serving_.turnover_seconds();
  room_kept_.Forget(id);
  ForgetCommon(*request);
  if (tier_ != nullptr) tier_->Forget(id);
  {
    std::lock_guard lock(alive_mutex_);
    alive_.erase(id);
    cancels_.erase(id);
  }
  const bool ran = request->sequence() != nullptr;
  if (ran) {
    const bool read = reason == FinishReason::kStop || reason == FinishReason::kLength ||
                      reason == FinishReason::kPrefilled;
    if (read) LearnCosts(*request);
    request->Finish(reason, std::move(status));
    RecordFinished(*request, reason);
    const bool unfinished = reason == FinishReason::kCancelled || reason == FinishReason::kDeadline;
    if (unfinished && !stop_ && ranks_.state() != RanksState::kLost) {
      const auto keep = [&] {
        prefixes_.KeepUnfinished(*request->sequence(), *request);
        return absl::OkStatus();
      };
      // Without memory for it, the prompt is computed again if it is sent again.
      Guarded(keep, NoMemoryError).IgnoreError();
    }
    Leave(*request);
  } else {
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), id));
    --waiting_count_;
    request->Finish(reason, std::move(status));
    RecordFinished(*request, reason);
  }
}

// Ends a request that ran: frees its pages and removes its sequence.
void Coordinator::Leave(const Request& request) {
  const RequestId id = request.id();
  ReleasePages(id, request.sequence()->owner);
  state_.running.erase(std::find_if(state_.running.begin(), state_.running.end(),
                                    [id](const auto& sequence) { return sequence->id == id; }));
  state_.ended.push_back(id);
}

void Coordinator::ReleasePages(SequenceId id, PageOwner owner) {
  if (step_.has_value()) {
    left_.push_back({id, owner});
  } else if (ranks_.state() == RanksState::kLost) {
    lost_.push_back(owner);  // a rank that did not come back may still touch the pages
  } else {
    pages_.Release(owner);
  }
}

// Call when the ranks have no step.
void Coordinator::ReleaseLeft() {
  if (left_.empty()) return;
  for (const Left& each : std::exchange(left_, {})) ReleasePages(each.id, each.owner);
  serving_.NoteRoom();
}

void Coordinator::RecordFinished(const Request& request, FinishReason reason) {
  metrics_.CountFinished(reason);
  metrics_.e2e_request_latency.Observe(request.timings().total);
  metrics_.request_prompt_tokens.Observe(static_cast<double>(request.prompt_tokens()));
  if (request.has_begun()) RecordServed(request);
  metrics_.request_max_num_generation_tokens.Observe(request.spec().sampling.max_tokens);
  metrics_.request_generation_tokens.Observe(static_cast<double>(request.completion_tokens()));
  if (reason == FinishReason::kStop || reason == FinishReason::kLength) {
    serving_.CountAnswer(request.completion_tokens());
  }
  if (request.completion_tokens() > 0) {
    metrics_.request_decode_time.Observe(request.timings().decode);
  }
  // One token has no gap, which would count as a very short one.
  if (request.completion_tokens() > 1) {
    metrics_.request_longest_gap.Observe(request.timings().longest_gap);
  }
}

// Of a request that had its turn.
void Coordinator::RecordServed(const Request& request) {
  const Timings& timings = request.timings();
  metrics_.request_inference_time.Observe(timings.total - timings.queue);
  metrics_.request_ring_wait.Observe(timings.ring_wait);
  metrics_.request_host_time.Observe(timings.host);
  metrics_.request_cached_tokens.Observe(static_cast<double>(request.cached_tokens()));
  metrics_.request_stalls.Observe(static_cast<double>(timings.stalls));
  metrics_.request_preemptions.Observe(static_cast<double>(timings.preemptions));
  if (request.drafted_tokens() > 0) {
    metrics_.request_accepted_tokens.Observe(static_cast<double>(request.accepted_tokens()));
  }
}

// Updates what `auto` expects of later requests.
void Coordinator::LearnCosts(Request& request) {
  const AttentionAssignment* const attention = request.sequence()->attention.get();
  if (attention != nullptr && !attention->rules.empty()) return;
  const auto learn = [&] {
    automatic_.Learn(attention != nullptr ? attention->policy : AttentionPolicy(),
                     request.prompt_tokens(), request.cached_tokens(), request.attention_report());
    return absl::OkStatus();
  };
  // Without memory for it, it expects what it did before.
  Guarded(learn, NoMemoryError).IgnoreError();
}

void Coordinator::FinishAll(FinishReason reason, const absl::Status& status, bool waiting_too) {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) {
    if (waiting_too || request->sequence() != nullptr) ids.push_back(id);
  }
  for (const RequestId id : ids) Finish(id, reason, status);
}

int64_t Coordinator::RequestBytes() const {
  int64_t bytes = prefixes_.bytes() + (tier_ == nullptr ? 0 : tier_->bytes());
  for (const RequestId id : waiting_) bytes += WaitingBytes(requests_.at(id)->tokens_to_read());
  for (const auto& sequence : state_.running) {
    bytes += RunningBytes(*sequence, options_.limits.page_tokens) +
             requests_.at(sequence->id)->lookup_bytes();
  }
  return bytes;
}

void Coordinator::Publish(bool busy) {
  busy_ = busy || !waiting_.empty();
  Snapshot now;
  // Checks of pages run as requests do, and are nobody's.
  now.running = static_cast<int>(state_.running.size() - checks_.size());
  now.waiting = static_cast<int>(waiting_.size());
  now.healthy = ranks_.state() == RanksState::kUp;
  now.last_turn = clock_.Now();
  now.busy = busy;
  now.stall_budget_seconds = serving_.stall_seconds();
  now.smallest_chunk_seconds = serving_.smallest_chunk_seconds();
  int64_t used = 0;
  int64_t reserved = 0;
  int64_t total = 0;
  for (int rank = 0; rank < pages_.ranks(); ++rank) {
    now.pages.push_back(pages_.counts(rank));
    now.pages_most.push_back(pages_.high_water(rank));
    used += now.pages[rank].in_use();
    reserved += now.pages[rank].reserved;
    total += now.pages[rank].total();
  }
  request_bytes_most_ = std::max(request_bytes_most_, RequestBytes());
  now.request_bytes_most = request_bytes_most_;
  metrics_.requests_running.Set(now.running);
  metrics_.requests_parked.Set(static_cast<double>(state_.running.size()) - CountActive(state_));
  metrics_.requests_waiting.Set(now.waiting);
  metrics_.kv_cache_usage.Set(total > 0 ? static_cast<double>(used) / total : 0);
  metrics_.kv_cache_reserved.Set(total > 0 ? static_cast<double>(reserved) / total : 0);
  std::lock_guard lock(snapshot_mutex_);
  snapshot_ = std::move(now);
}

}  // namespace annulus
