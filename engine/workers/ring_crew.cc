#include "engine/workers/ring_crew.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/try_to.h"
#include "engine/codec/status_message.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/status_mark.h"

namespace annulus {
namespace {

// Whether another worker with the same settings may fare better.
bool IsOfTheMoment(const absl::Status& why) {
  return absl::IsUnavailable(why) || absl::IsCancelled(why) || absl::IsAborted(why) ||
         absl::IsDeadlineExceeded(why);
}

}  // namespace

// ---- what becomes of workers

RingCrew::Member* RingCrew::Find(MemberId id) const {
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [id](const auto& member) { return member->id == id; });
  return found == members_.end() ? nullptr : found->get();
}

// The member goes, whatever it was. One who has ranks goes even if there is no memory to say so.
void RingCrew::Lose(Member& member, RingLoss cause, const absl::Status& why) {
  if (membership_.role(member.id) == Membership::Role::kGone) return;
  const Membership::Seat* const found = membership_.SeatOf(member.id);
  const bool serves = membership_.epoch() > 0 && membership_.IsReady(member.id);
  const std::string& name = member.hello.name();
  // Nobody misses one that has yet to come to a ring that does without it.
  if (found == nullptr || (found->left_out && !membership_.IsInEpoch(member.id))) {
    refusal_ =
        absl::StrCat("; refused ", name.empty() ? "" : absl::StrCat("worker \"", name, "\" "),
                     "at ", member.link->peer(), ": ", why.message());
    membership_.Leave(member.id, options_.clock->Now());
    return member.link->Close(why);
  }
  // What it says of itself before it runs is about its settings or machine.
  absl::Status lost = serves ? nameless_ : why;
  TryTo([&] {
    const std::string what =
        absl::StrCat("worker \"", name, "\" at ", member.link->peer(), " with ",
                     RanksText(found->first_rank, found->ranks), " is lost: ");
    lost =
        serves ? absl::UnavailableError(absl::StrCat(what, why.message())) : WithPrefix(what, why);
  });
  membership_.Leave(member.id, options_.clock->Now());
  if (options_.on_loss != nullptr) options_.on_loss(cause);
  const bool unfit = cause == RingLoss::kMessage && !IsOfTheMoment(why);
  if (unfit && !membership_.is_founded() && unfit_.ok()) unfit_ = lost;
  if (lost_.ok()) {
    lost_ = lost;
  } else {
    TryTo([&] { refusal_ = absl::StrCat("; then ", lost.message()); });
  }
  TryTo([&] { member.link->Close(lost); });
  TryTo([&] { Break(lost_); });
  TryTo([&] { Fill(); });
  TryTo([&] { news_.push_back(AwaitedText()); });  // a spare may have its seat before anybody looks
  changed_.notify_all();
}

// Tells those who host ranks from now on which.
void RingCrew::Fill() {
  for (const MemberId id : membership_.Fill(options_.clock->Now())) {
    wire::ToWorker message;
    wire::Assign& assign = *message.mutable_assign();
    assign = options_.assign;
    assign.set_first_rank(membership_.SeatOf(id)->first_rank);
    assign.set_ring_size(options_.ranks);
    assign.set_epoch(membership_.next_epoch());
    Find(id)->link->Send(Encode(message));
  }
  changed_.notify_all();
}

void RingCrew::Break(const absl::Status& why) {
  if (broken_.ok()) {
    broken_ = why;
    AbortHere();
  }
  changed_.notify_all();
}

// The ranks here have no reason to go on.
void RingCrew::AbortHere() {
  if (!aborts_here_ || here_ == nullptr) return;
  here_->Abort(broken_.ok() ? absl::CancelledError("the ring ends") : broken_);
}

void RingCrew::Send(const std::vector<MemberId>& members, const wire::ToWorker& message) {
  const std::string bytes = Encode(message);
  for (const MemberId id : members) Find(id)->link->Send(bytes);
}

// Of what a worker cannot miss: it would wait for ever, or take what comes next for what it may not
// be sent. Needs no memory itself.
void RingCrew::SendOrLose(Member& member, const std::string& bytes) {
  if (!TryTo([&] { member.link->Send(bytes); })) Lose(member, RingLoss::kClosed, unsent_);
}

// ---- what their coordinator does

absl::Status RingCrew::Await(const std::function<bool()>& done,
                             std::unique_lock<std::mutex>& lock) {
  const auto over = [&] { return stop_ || done() || !Hopeless().ok(); };
  while (!options_.clock->WaitUntil(options_.clock->Now() + kLookAround, lock, changed_, over)) {
  }
  ANNULUS_RETURN_IF_ERROR(Hopeless());
  return stop_ ? absl::CancelledError("the ring ends") : absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> RingCrew::Form(uint64_t epoch,
                                                        std::vector<std::string> own) {
  std::unique_lock lock(mutex_);
  forms_here_ = epoch;
  changed_.notify_all();
  ANNULUS_RETURN_IF_ERROR(
      Await([this] { return membership_.CanForm(options_.clock->Now()); }, lock));
  // All that takes memory comes before the epoch begins, which nothing takes back.
  std::vector<std::string> addresses = std::move(own);
  for (const Membership::Seat& seat : membership_.seats()) {
    if (seat.host == 0) {  // it is left out
      addresses.resize(addresses.size() + static_cast<size_t>(seat.ranks));
      continue;
    }
    const Member& worker = *Find(seat.host);
    addresses.insert(addresses.end(), worker.addresses.begin(), worker.addresses.end());
  }
  wire::ToWorker message;
  message.mutable_form()->set_epoch(epoch);
  for (const std::string& address : addresses) message.mutable_form()->add_addresses(address);
  const std::string bytes = Encode(message);
  const std::vector<MemberId> hosts = membership_.Hosts();
  const uint64_t begun = membership_.Form(options_.clock->Now());
  ANNULUS_CHECK(begun == epoch) << "epoch " << epoch << " is formed as " << begun;
  for (const MemberId id : hosts) Find(id)->results.clear();
  broken_ = lost_ = absl::OkStatus();
  refusal_.clear();
  for (const MemberId id : hosts) SendOrLose(*Find(id), bytes);
  return addresses;
}

absl::StatusOr<std::vector<std::optional<RankFacts>>> RingCrew::AwaitReady() {
  std::unique_lock lock(mutex_);
  const auto ready = [this] {
    const std::vector<MemberId> hosts = InEpoch();
    return std::all_of(hosts.begin(), hosts.end(),
                       [this](MemberId id) { return membership_.IsReady(id); });
  };
  ANNULUS_RETURN_IF_ERROR(Await([&] { return !broken_.ok() || ready(); }, lock));
  ANNULUS_RETURN_IF_ERROR(broken_);
  std::vector<std::optional<RankFacts>> facts;
  for (const Membership::Seat& seat : membership_.seats()) {
    if (seat.left_out) {
      facts.resize(facts.size() + static_cast<size_t>(seat.ranks));
    } else {
      const Member& worker = *Find(seat.host);
      facts.insert(facts.end(), worker.facts.begin(), worker.facts.end());
    }
  }
  return facts;
}

int64_t RingCrew::visiting_pages() const {
  std::lock_guard lock(mutex_);
  return visiting_pages_;
}

void RingCrew::Run(const std::string& plan) {
  std::lock_guard lock(mutex_);
  if (membership_.aborted()) return;  // Results will tell
  wire::ToWorker message;
  wire::Run& run = *message.mutable_run();
  run.set_epoch(membership_.epoch());
  begun_ = options_.clock->Now();
  run.set_step(membership_.BeginStep(begun_));
  run.set_plan(plan);
  Send(InEpoch(), message);
}

std::vector<MemberId> RingCrew::InEpoch() const {
  std::vector<MemberId> hosts = membership_.Hosts();
  std::erase_if(hosts, [this](MemberId id) { return !membership_.IsInEpoch(id); });
  return hosts;
}

absl::StatusOr<std::vector<std::optional<std::string>>> RingCrew::AwaitResults() {
  std::unique_lock lock(mutex_);
  const size_t seats = membership_.seats().size();
  for (size_t i = 0; i < seats; ++i) ANNULUS_RETURN_IF_ERROR(AwaitResult(i, lock));
  std::vector<std::optional<std::string>> results;
  for (const Membership::Seat& seat : membership_.seats()) {
    if (seat.left_out) {
      results.resize(results.size() + static_cast<size_t>(seat.ranks));
      continue;
    }
    Member* const worker = Find(seat.host);
    if (worker == nullptr || worker->results.empty()) return broken_;  // lost since
    for (std::string& rank : worker->results.front()) results.emplace_back(std::move(rank));
    worker->results.pop_front();
  }
  return results;
}

absl::Status RingCrew::AwaitResult(size_t seat, std::unique_lock<std::mutex>& lock) {
  if (membership_.seats()[seat].left_out) return absl::OkStatus();
  const auto worker = [&] { return Find(membership_.seats()[seat].host); };
  const auto has_result = [&] { return worker() != nullptr && !worker()->results.empty(); };
  while (!has_result()) {
    ANNULUS_RETURN_IF_ERROR(broken_);
    const SteadyTime deadline = LastProgress() + options_.patience;
    if (deadline <= options_.clock->Now()) {
      Lose(*worker(), RingLoss::kSilent,
           absl::DeadlineExceededError(absl::StrCat("no rank of the ring has made progress for ",
                                                    TimeText(options_.patience),
                                                    ", and its step has not ended")));
    }
    options_.clock->WaitUntil(deadline, lock, changed_,
                              [&] { return has_result() || !broken_.ok(); });
  }
  return absl::OkStatus();
}

absl::Status RingCrew::AwaitLoss() {
  std::unique_lock lock(mutex_);
  const SteadyTime until =
      options_.clock->Now() + options_.silence + BeatPeriodOf(options_.silence);
  options_.clock->WaitUntil(until, lock, changed_, [this] { return stop_ || !lost_.ok(); });
  return lost_;
}

absl::Status RingCrew::Lose(int rank, const absl::Status& why) {
  std::lock_guard lock(mutex_);
  Member* const worker = Find(membership_.SeatOfRank(rank).host);
  if (worker != nullptr) Lose(*worker, RingLoss::kMessage, why);
  return lost_.ok() ? why : lost_;
}

void RingCrew::Close(const absl::Status& why) {
  std::lock_guard lock(mutex_);
  for (const auto& member : members_) member->link->Close(why);
}

void RingCrew::Abort(const absl::Status& why) {
  std::lock_guard lock(mutex_);
  Break(why);
  wire::ToWorker message;
  message.mutable_abort()->set_epoch(membership_.epoch());
  *message.mutable_abort()->mutable_why() = codec::ToMessage(why);
  const std::string bytes = Encode(message);
  for (const MemberId id : membership_.Abort(options_.clock->Now())) SendOrLose(*Find(id), bytes);
}

void RingCrew::Pause(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  const SteadyTime until = options_.clock->Now() + time;
  options_.clock->WaitUntil(until, lock, changed_, [this] { return stop_; });
}

void RingCrew::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    AbortHere();
  }
  changed_.notify_all();
}

void RingCrew::Join(RankSet& ranks) {
  std::lock_guard lock(mutex_);
  here_ = &ranks;
}

void RingCrew::BeginAborts() {
  std::lock_guard lock(mutex_);
  aborts_here_ = true;
  if (stop_ || !broken_.ok()) AbortHere();
}

void RingCrew::EndAborts() {
  std::lock_guard lock(mutex_);
  aborts_here_ = false;
}

// ---- what is

uint64_t RingCrew::epoch() const {
  std::lock_guard lock(mutex_);
  return membership_.epoch();
}

absl::Status RingCrew::broken() const {
  std::lock_guard lock(mutex_);
  return broken_;
}

bool RingCrew::is_up() const {
  std::lock_guard lock(mutex_);
  return broken_.ok() && membership_.is_up();
}

absl::Status RingCrew::lost() const {
  std::lock_guard lock(mutex_);
  return lost_;
}

std::vector<int32_t> RingCrew::TakeLost() {
  std::lock_guard lock(mutex_);
  return membership_.TakeLost();
}

std::optional<SteadyTime> RingCrew::vacant_since() const {
  std::lock_guard lock(mutex_);
  return membership_.vacant_since();
}

bool RingCrew::can_shrink() const {
  std::lock_guard lock(mutex_);
  return membership_.CanShrink();
}

bool RingCrew::is_hosted(int rank) const {
  std::lock_guard lock(mutex_);
  return !membership_.SeatOfRank(rank).left_out;
}

std::string RingCrew::awaited() const {
  std::lock_guard lock(mutex_);
  return AwaitedText();
}

SteadyTime RingCrew::LastProgress() const {
  SteadyTime last = here_ == nullptr ? begun_ : std::max(begun_, here_->last_progress());
  for (const MemberId id : membership_.Hosts()) last = std::max(last, Find(id)->progress);
  return last;
}

SteadyTime RingCrew::last_progress() const {
  std::lock_guard lock(mutex_);
  return LastProgress();
}

}  // namespace annulus
