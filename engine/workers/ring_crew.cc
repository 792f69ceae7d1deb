#include "engine/workers/ring_crew.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/try_to.h"
#include "engine/codec/status_message.h"
#include "kernels/base/check.h"
#include "kernels/base/device_error.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Of what a worker says about its past.
constexpr uint64_t kMostQuietMicroseconds = uint64_t{24} * 60 * 60 * 1'000'000;

// Of a message of whoever does not belong to the ring, since parsing takes many times as much.
constexpr size_t kMostStrangersBytes = size_t{64} << 10;

// Why something failed, by what a worker says. Never OK.
absl::Status FailureOf(const wire::Status& status) {
  const absl::Status failure = codec::FromMessage(status);
  return failure.ok() ? WrongMessage("OK as the reason of a failure") : failure;
}

std::string RanksText(int first, int count) {
  if (count == 1) return absl::StrCat("rank ", first);
  return absl::StrCat("ranks ", first, " to ", first + count - 1);
}

}  // namespace

RingCrew::~RingCrew() {
  std::vector<std::unique_ptr<Member>> members;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    members.swap(members_);
    for (const auto& member : members) member->link->Close(absl::OkStatus());
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  members.clear();  // without the lock: a link waits for its calls
}

// ---- what they say

void RingCrew::OnMessage(Member& member, const std::string& bytes) {
  bool known = false;
  {
    std::lock_guard lock(mutex_);
    known = Holds(member);
  }
  absl::StatusOr<wire::FromWorker> message =
      known || bytes.size() <= kMostStrangersBytes
          ? DecodeFromWorker(bytes)
          : WrongMessage(absl::StrCat(
                bytes.size(),
                " bytes before it belongs to the ring; allowed: ", kMostStrangersBytes));
  std::lock_guard lock(mutex_);
  if (member.lost || member.state == Member::kRefused) return;
  const absl::Status taken = message.ok() ? Take(member, *message) : message.status();
  member.heard = options_.clock->Now();
  if (!taken.ok() && Holds(member)) {
    LoseMember(member, taken);
  } else if (!taken.ok()) {
    Refuse(member, taken);
  }
  changed_.notify_all();
}

absl::Status RingCrew::Take(Member& member, wire::FromWorker& message) {
  if (message.has_hello()) return TakeHello(member, message.hello());
  if (!Holds(member)) return WrongMessage("another message than Hello first");
  switch (message.message_case()) {
    case wire::FromWorker::kReady:
      return TakeReady(member, message.ready());
    case wire::FromWorker::kWireReady:
      return TakeWires(member, message.wire_ready());
    case wire::FromWorker::kResult:
      return TakeResult(member, *message.mutable_result());
    default:
      return TakeBeat(member, message.beat());
  }
}

absl::Status RingCrew::TakeReady(Member& member, const wire::Ready& ready) {
  if (member.ready) return WrongMessage("a second Ready");
  if (ready.has_status()) return FailureOf(ready.status());
  if (ready.ranks_size() != member.hello.ranks() || ready.visiting_pages() < 1) {
    return WrongMessage(absl::StrCat("facts of ", ready.ranks_size(), " ranks with ",
                                     ready.visiting_pages(), " visiting pages"));
  }
  for (const wire::RankFacts& facts : ready.ranks()) {
    ANNULUS_ASSIGN_OR_RETURN(member.facts.emplace_back(), FromMessage(facts));
  }
  visiting_pages_ = std::min(visiting_pages_, ready.visiting_pages());
  member.ready = true;
  return absl::OkStatus();
}

absl::Status RingCrew::TakeWires(Member& member, const wire::WireReady& wires) {
  if (wires.has_status()) return FailureOf(wires.status());
  if (wires.epoch() <= epoch_) return absl::OkStatus();  // it is late
  if (wires.epoch() != epoch_ + 1 || (epoch_ > 0 && !aborted_) ||
      wires.addresses_size() != member.hello.ranks()) {
    return WrongMessage(absl::StrCat(wires.addresses_size(), " wires for epoch ", wires.epoch(),
                                     " in epoch ", epoch_));
  }
  member.wires = wires.epoch();
  member.addresses.assign(wires.addresses().begin(), wires.addresses().end());
  return absl::OkStatus();
}

absl::Status RingCrew::TakeResult(Member& member, wire::StepResult& result) {
  if (result.epoch() < epoch_ || (result.epoch() == epoch_ && aborted_)) return absl::OkStatus();
  if (result.epoch() != epoch_ || result.step() != member.ended + 1 || result.step() > steps_) {
    return WrongMessage(absl::StrCat("results of step ", result.step(), " of epoch ",
                                     result.epoch(), "; awaited is step ", member.ended + 1, " of ",
                                     steps_, " in epoch ", epoch_));
  }
  ++member.ended;
  if (result.has_status()) {
    Break(WithPrefix(absl::StrCat("worker \"", member.hello.name(), "\": "),
                     FailureOf(result.status())));
    return absl::OkStatus();
  }
  if (result.results_size() != member.hello.ranks()) {
    return WrongMessage(absl::StrCat("results of ", result.results_size(), " ranks"));
  }
  member.results.emplace_back(std::make_move_iterator(result.mutable_results()->begin()),
                              std::make_move_iterator(result.mutable_results()->end()));
  return absl::OkStatus();
}

absl::Status RingCrew::TakeBeat(Member& member, const wire::Beat& beat) {
  const auto quiet = std::chrono::microseconds(std::min(beat.quiet_us(), kMostQuietMicroseconds));
  member.progress = std::max(member.progress, options_.clock->Now() - quiet);
  if (here_ != nullptr) here_->NoteProgressElsewhere(member.progress);
  if (beat.ranks_size() == 0) return absl::OkStatus();  // they have no memory yet
  if (beat.ranks_size() != member.hello.ranks()) {
    return WrongMessage(absl::StrCat("statistics of ", beat.ranks_size(), " ranks"));
  }
  member.statistics.clear();
  for (const wire::RankStatistics& rank : beat.ranks()) {
    member.statistics.push_back(FromMessage(rank));
  }
  return absl::OkStatus();
}

void RingCrew::OnClosed(Member& member, const absl::Status& why) {
  std::lock_guard lock(mutex_);
  member.state = Member::kClosed;
  if (Holds(member)) {
    LoseMember(member, why.ok() ? absl::UnavailableError("it closed its link") : why);
  }
  changed_.notify_all();
}

// ---- what becomes of them

bool RingCrew::Holds(const Member& member) const {
  return std::find(workers_.begin(), workers_.end(), &member) != workers_.end();
}

void RingCrew::LoseMember(Member& member, const absl::Status& status) {
  if (std::exchange(member.lost, true)) return;
  const std::string what =
      absl::StrCat("worker \"", member.hello.name(), "\" at ", member.link->peer(), " with ",
                   RanksText(member.first_rank, member.hello.ranks()), " is lost: ");
  // What it says of itself before it runs is about its settings or machine.
  const absl::Status lost = epoch_ == 0 || !member.ready
                                ? WithPrefix(what, status)
                                : absl::UnavailableError(absl::StrCat(what, status.message()));
  if (lost_.ok()) lost_ = lost;
  member.link->Close(lost);
  Break(lost_);
}

void RingCrew::Break(const absl::Status& why) {
  if (broken_.ok()) {
    broken_ = why;
    if (aborts_here_ && here_ != nullptr) here_->Abort(why);
  }
  changed_.notify_all();
}

void RingCrew::SendAll(const wire::ToWorker& message) {
  const std::string bytes = Encode(message);
  for (const Member* worker : workers_) worker->link->Send(bytes);
}

void RingCrew::Watch() {
  const auto period = options_.silence / 8;
  std::unique_lock lock(mutex_);
  SteadyTime due = options_.clock->Now();
  bool spared = false;
  while (!stop_) {
    const SteadyTime now = options_.clock->Now();
    // If this process stood still, what workers said meanwhile is yet to be read: they have one
    // more period.
    spared = !spared && now - due > period;
    // Without memory, at the next turn.
    TryTo([&] {
      if (!spared) LoseTheSilent(now);
      TellProgress(now);
    });
    due = now + period;
    options_.clock->WaitUntil(due, lock, changed_, [&] { return stop_; });
  }
}

void RingCrew::LoseTheSilent(SteadyTime now) {
  for (Member* worker : workers_) {
    if (worker->lost || worker->heard + options_.silence > now) continue;
    LoseMember(*worker, absl::UnavailableError(
                            absl::StrCat("it has said nothing for ", TimeText(options_.silence))));
  }
}

void RingCrew::TellProgress(SteadyTime now) {
  wire::ToWorker message;
  const auto quiet = std::max(SteadyTime::duration(0), now - LastProgress());
  message.mutable_progress()->set_quiet_us(
      std::chrono::duration_cast<std::chrono::microseconds>(quiet).count());
  SendAll(message);
}

// ---- what their coordinator does

void RingCrew::Assign(const wire::Assign& common) {
  std::lock_guard lock(mutex_);
  for (Member* worker : workers_) {
    wire::ToWorker message;
    *message.mutable_assign() = common;
    message.mutable_assign()->set_first_rank(worker->first_rank);
    message.mutable_assign()->set_ring_size(options_.ranks);
    worker->heard = options_.clock->Now();
    worker->link->Send(Encode(message));
  }
  watcher_ = std::thread([this] { Watch(); });
}

// Waits for `done` of all workers.
absl::Status RingCrew::AwaitAll(const char* what, const std::function<bool(const Member&)>& done,
                                std::unique_lock<std::mutex>& lock) {
  const auto is_done = [&](const Member* worker) { return done(*worker); };
  options_.clock->WaitUntil(options_.clock->Now() + options_.forming_timeout, lock, changed_, [&] {
    return !lost_.ok() || std::all_of(workers_.begin(), workers_.end(), is_done);
  });
  for (Member* worker : workers_) {
    if (done(*worker) || !lost_.ok()) continue;
    LoseMember(*worker, absl::DeadlineExceededError(absl::StrCat(
                            "it did not ", what, " within ", TimeText(options_.forming_timeout))));
  }
  return lost_;
}

absl::StatusOr<std::vector<std::string>> RingCrew::Form(uint64_t epoch,
                                                        std::vector<std::string> own) {
  std::unique_lock lock(mutex_);
  ANNULUS_RETURN_IF_ERROR(AwaitAll(
      "open its wires", [epoch](const Member& worker) { return worker.wires == epoch; }, lock));
  std::vector<std::string> addresses = std::move(own);
  for (Member* worker : workers_) {
    addresses.insert(addresses.end(), worker->addresses.begin(), worker->addresses.end());
    worker->ended = 0;
    worker->results.clear();
  }
  epoch_ = epoch;
  aborted_ = false;
  steps_ = 0;
  broken_ = absl::OkStatus();
  wire::ToWorker message;
  message.mutable_form()->set_epoch(epoch);
  for (const std::string& address : addresses) message.mutable_form()->add_addresses(address);
  SendAll(message);
  return addresses;
}

absl::StatusOr<std::vector<RankFacts>> RingCrew::AwaitReady() {
  std::unique_lock lock(mutex_);
  ANNULUS_RETURN_IF_ERROR(AwaitAll(
      "take its memory", [](const Member& worker) { return worker.ready; }, lock));
  std::vector<RankFacts> facts;
  for (const Member* worker : workers_) {
    facts.insert(facts.end(), worker->facts.begin(), worker->facts.end());
  }
  return facts;
}

void RingCrew::Run(const std::string& plan) {
  std::lock_guard lock(mutex_);
  wire::ToWorker message;
  wire::Run& run = *message.mutable_run();
  run.set_epoch(epoch_);
  run.set_step(++steps_);
  run.set_plan(plan);
  begun_ = options_.clock->Now();
  SendAll(message);
}

absl::StatusOr<std::vector<std::string>> RingCrew::AwaitResults() {
  std::unique_lock lock(mutex_);
  for (Member* worker : workers_) ANNULUS_RETURN_IF_ERROR(AwaitResult(*worker, lock));
  std::vector<std::string> results;
  for (Member* worker : workers_) {
    for (std::string& rank : worker->results.front()) results.push_back(std::move(rank));
    worker->results.pop_front();
  }
  return results;
}

absl::Status RingCrew::AwaitResult(Member& worker, std::unique_lock<std::mutex>& lock) {
  while (worker.results.empty()) {
    ANNULUS_RETURN_IF_ERROR(broken_);
    const SteadyTime deadline = LastProgress() + options_.patience;
    if (deadline <= options_.clock->Now()) {
      LoseMember(worker,
                 absl::DeadlineExceededError(absl::StrCat(
                     "no rank of the ring has made progress for ", TimeText(options_.patience),
                     ", and its step has not "
                     "ended")));
    }
    options_.clock->WaitUntil(deadline, lock, changed_,
                              [&] { return !worker.results.empty() || !broken_.ok(); });
  }
  return absl::OkStatus();
}

RingCrew::Member& RingCrew::WorkerOf(int rank) const {
  const auto found = std::find_if(workers_.begin(), workers_.end(), [rank](const Member* worker) {
    return rank < worker->first_rank + worker->hello.ranks();
  });
  ANNULUS_CHECK(found != workers_.end()) << "no worker hosts rank " << rank;
  return **found;
}

absl::Status RingCrew::Lose(int rank, const absl::Status& why) {
  std::lock_guard lock(mutex_);
  LoseMember(WorkerOf(rank), why);
  return lost_;
}

void RingCrew::Close(const absl::Status& why) {
  std::lock_guard lock(mutex_);
  for (const auto& member : members_) member->link->Close(why);
}

void RingCrew::Abort(const absl::Status& why) {
  std::lock_guard lock(mutex_);
  aborted_ = true;
  Break(why);
  wire::ToWorker message;
  message.mutable_abort()->set_epoch(epoch_);
  *message.mutable_abort()->mutable_why() = codec::ToMessage(why);
  SendAll(message);
}

void RingCrew::Join(RankSet& ranks) {
  std::lock_guard lock(mutex_);
  here_ = &ranks;
}

void RingCrew::BeginAborts() {
  std::lock_guard lock(mutex_);
  aborts_here_ = true;
  if (here_ != nullptr && !broken_.ok()) here_->Abort(broken_);
}

void RingCrew::EndAborts() {
  std::lock_guard lock(mutex_);
  aborts_here_ = false;
}

absl::Status RingCrew::broken() const {
  std::lock_guard lock(mutex_);
  return broken_;
}

absl::Status RingCrew::lost() const {
  std::lock_guard lock(mutex_);
  return lost_;
}

std::vector<int32_t> RingCrew::lost_ranks() const {
  std::lock_guard lock(mutex_);
  std::vector<int32_t> ranks;
  for (const Member* worker : workers_) {
    for (int i = 0; worker->lost && i < worker->hello.ranks(); ++i) {
      ranks.push_back(worker->first_rank + i);
    }
  }
  return ranks;
}

SteadyTime RingCrew::LastProgress() const {
  SteadyTime last = here_ == nullptr ? begun_ : std::max(begun_, here_->last_progress());
  for (const Member* worker : workers_) last = std::max(last, worker->progress);
  return last;
}

SteadyTime RingCrew::last_progress() const {
  std::lock_guard lock(mutex_);
  return LastProgress();
}

RankStatistics RingCrew::Statistics(int rank) const {
  std::lock_guard lock(mutex_);
  const Member& worker = WorkerOf(rank);
  return worker.statistics.empty() ? RankStatistics() : worker.statistics[rank - worker.first_rank];
}

}  // namespace annulus
