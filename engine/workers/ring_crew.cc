#include "engine/workers/ring_crew.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/codec/status_message.h"
#include "kernels/base/check.h"
#include "kernels/base/status_mark.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Of what a worker says about its past.
constexpr uint64_t kMostQuietMicroseconds = uint64_t{24} * 60 * 60 * 1'000'000;

// Of a message of whoever does not belong to the ring, since parsing takes many times as much.
constexpr size_t kMostStrangersBytes = size_t{64} << 10;

constexpr size_t kMostNameBytes = 128;

// Why something failed, by what a worker says. Never OK.
absl::Status FailureOf(const wire::Status& status) {
  const absl::Status failure = codec::FromMessage(status);
  return failure.ok() ? WrongMessage("OK as the reason of a failure") : failure;
}

// Whether another worker with the same settings may fare better.
bool IsOfTheMoment(const absl::Status& why) {
  return absl::IsUnavailable(why) || absl::IsCancelled(why) || absl::IsAborted(why) ||
         absl::IsDeadlineExceeded(why);
}

}  // namespace

// ---- what they say

void RingCrew::OnMessage(Member& member, const std::string& bytes) {
  bool known = false;
  {
    std::lock_guard lock(mutex_);
    known = membership_.Beat(member.id).ok();
  }
  absl::StatusOr<wire::FromWorker> message =
      known || bytes.size() <= kMostStrangersBytes
          ? DecodeFromWorker(bytes)
          : WrongMessage(absl::StrCat(
                bytes.size(),
                " bytes before it belongs to the ring; allowed: ", kMostStrangersBytes));
  std::lock_guard lock(mutex_);
  if (membership_.role(member.id) == Membership::Role::kGone) return;
  membership_.Hear(member.id, options_.clock->Now());
  const absl::Status taken = message.ok() ? Take(member, *message) : message.status();
  if (!taken.ok()) Lose(member, RingLoss::kMessage, taken);
  changed_.notify_all();
}

absl::Status RingCrew::Take(Member& member, wire::FromWorker& message) {
  if (message.has_hello()) return TakeHello(member, message.hello());
  ANNULUS_RETURN_IF_ERROR(membership_.Beat(member.id));
  switch (message.message_case()) {
    case wire::FromWorker::kReady:
      return TakeReady(member, message.ready());
    case wire::FromWorker::kWireReady:
      return TakeWires(member, message.wire_ready());
    case wire::FromWorker::kResult:
      return TakeResult(member, *message.mutable_result());
    case wire::FromWorker::kProbed:
      return TakeProbed(member, message.probed());
    default:
      return TakeBeat(member, message.beat());
  }
}

absl::Status RingCrew::TakeHello(Member& member, const wire::Hello& hello) {
  if (member.hello.protocol() != 0) return WrongMessage("a second Hello");
  member.hello = hello;
  if (hello.protocol() != kWorkerProtocol) {
    return absl::FailedPreconditionError(
        absl::StrCat("the protocol of the worker is ", hello.protocol(), ", of the coordinator ",
                     kWorkerProtocol, "; all processes of a ring run the same build"));
  }
  if (hello.name().empty() || hello.name().size() > kMostNameBytes) {
    return WrongMessage(absl::StrCat("a name of ", hello.name().size(), " bytes; allowed are 1 to ",
                                     kMostNameBytes));
  }
  ANNULUS_RETURN_IF_ERROR(CheckAgreement(options_.agreement, AgreementOf(hello)));
  const absl::Status welcome = membership_.Hello(member.id, hello.name(), hello.ranks());
  if (absl::IsAlreadyExists(welcome)) return NameTaken(member, welcome);
  ANNULUS_RETURN_IF_ERROR(welcome);
  Fill();
  if (!membership_.is_complete() || membership_.SeatOf(member.id) != nullptr) {
    return absl::OkStatus();
  }
  wire::ToWorker spare;
  spare.mutable_spare();
  member.link->Send(Encode(spare));
  return absl::OkStatus();
}

// With where the other one is.
absl::Status RingCrew::NameTaken(const Member& member, const absl::Status& why) const {
  for (const auto& other : members_) {
    if (other.get() == &member || other->hello.name() != member.hello.name()) continue;
    if (!membership_.Beat(other->id).ok()) continue;
    return {why.code(), absl::StrCat(why.message(), ": it is at ", other->link->peer())};
  }
  return why;
}

absl::Status RingCrew::TakeReady(Member& member, const wire::Ready& ready) {
  if (ready.has_status()) return FailureOf(ready.status());
  if (ready.ranks_size() != member.hello.ranks() || ready.visiting_pages() < 1) {
    return WrongMessage(absl::StrCat("facts of ", ready.ranks_size(), " ranks with ",
                                     ready.visiting_pages(), " visiting pages"));
  }
  if (membership_.is_founded() && ready.visiting_pages() < visiting_pages_) {
    return absl::InternalError(absl::StrCat("it has room for ", ready.visiting_pages(),
                                            " visiting pages; the ring needs ", visiting_pages_));
  }
  ANNULUS_RETURN_IF_ERROR(membership_.Ready(member.id));
  for (const wire::RankFacts& facts : ready.ranks()) {
    ANNULUS_ASSIGN_OR_RETURN(member.facts.emplace_back(), FromMessage(facts));
  }
  visiting_pages_ = std::min(visiting_pages_, ready.visiting_pages());
  return absl::OkStatus();
}

absl::Status RingCrew::TakeWires(Member& member, const wire::WireReady& wires) {
  if (wires.has_status()) return FailureOf(wires.status());
  ANNULUS_ASSIGN_OR_RETURN(const bool due, membership_.Wires(member.id, wires.epoch()));
  if (!due) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(CheckAddresses(wires, member.hello.ranks()));
  member.addresses.assign(wires.addresses().begin(), wires.addresses().end());
  return absl::OkStatus();
}

absl::Status RingCrew::TakeResult(Member& member, wire::StepResult& result) {
  ANNULUS_ASSIGN_OR_RETURN(const bool due,
                           membership_.Result(member.id, result.epoch(), result.step()));
  if (!due) return absl::OkStatus();
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
  if (here_ != nullptr && membership_.IsInEpoch(member.id)) {
    here_->NoteProgressElsewhere(member.progress);
  }
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
  member.closed = true;
  if (membership_.role(member.id) == Membership::Role::kHost) {
    Lose(member, RingLoss::kClosed, why.ok() ? absl::UnavailableError("it closed its link") : why);
  } else {
    membership_.Leave(member.id, options_.clock->Now());
  }
  changed_.notify_all();
}

// ---- what becomes of them

RingCrew::Member* RingCrew::Find(MemberId id) const {
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [id](const auto& member) { return member->id == id; });
  return found == members_.end() ? nullptr : found->get();
}

// The member goes, whatever it was.
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
  const std::string what = absl::StrCat("worker \"", name, "\" at ", member.link->peer(), " with ",
                                        RanksText(found->first_rank, found->ranks), " is lost: ");
  // What it says of itself before it runs is about its settings or machine.
  const absl::Status lost =
      serves ? absl::UnavailableError(absl::StrCat(what, why.message())) : WithPrefix(what, why);
  membership_.Leave(member.id, options_.clock->Now());
  if (options_.on_loss != nullptr) options_.on_loss(cause);
  const bool unfit = cause == RingLoss::kMessage && !IsOfTheMoment(why);
  if (unfit && !membership_.is_founded() && unfit_.ok()) unfit_ = lost;
  if (lost_.ok()) {
    lost_ = lost;
  } else {
    refusal_ = absl::StrCat("; then ", lost.message());
  }
  member.link->Close(lost);
  Break(lost_);
  Fill();
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
  ANNULUS_RETURN_IF_ERROR(
      Await([this] { return membership_.CanForm(options_.clock->Now()); }, lock));
  const uint64_t begun = membership_.Form(options_.clock->Now());
  ANNULUS_CHECK(begun == epoch) << "epoch " << epoch << " is formed as " << begun;
  std::vector<std::string> addresses = std::move(own);
  for (const Membership::Seat& seat : membership_.seats()) {
    if (seat.left_out) {
      addresses.resize(addresses.size() + static_cast<size_t>(seat.ranks));
      continue;
    }
    Member& worker = *Find(seat.host);
    addresses.insert(addresses.end(), worker.addresses.begin(), worker.addresses.end());
    worker.results.clear();
  }
  broken_ = lost_ = absl::OkStatus();
  refusal_.clear();
  wire::ToWorker message;
  message.mutable_form()->set_epoch(epoch);
  for (const std::string& address : addresses) message.mutable_form()->add_addresses(address);
  Send(membership_.Hosts(), message);
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
  run.set_step(membership_.BeginStep());
  run.set_plan(plan);
  begun_ = options_.clock->Now();
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
  const SteadyTime until = options_.clock->Now() + options_.silence + options_.silence / 8;
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
  Send(membership_.Abort(options_.clock->Now()), message);
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
