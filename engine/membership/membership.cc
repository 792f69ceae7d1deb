#include "engine/membership/membership.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr SteadyTime kNever = SteadyTime::max();

std::string TimeText(std::chrono::milliseconds time) { return absl::StrCat(time.count(), " ms"); }

// Those of its ranks that are in a step cannot go on alone.
bool IsWaiting(const Membership::Work& work) {
  return work.running > 0 && work.waiting == work.running;
}

}  // namespace

absl::Status WrongMessage(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("it sent ", what));
}

const Membership::Member* Membership::Find(MemberId id) const {
  const auto found = members_.find(id);
  return found == members_.end() ? nullptr : &found->second;
}

absl::StatusOr<Membership::Member*> Membership::FindHost(MemberId id, const char* what) {
  Member* const member = Find(id);
  if (member != nullptr && member->role == Role::kHost) return member;
  return WrongMessage(absl::StrCat(what, " before it has ranks"));
}

// ---- what happened

MemberId Membership::Dial(SteadyTime now) {
  members_[++last_].heard = now;
  return last_;
}

void Membership::Hear(MemberId id, SteadyTime now) {
  if (Member* const member = Find(id); member != nullptr) member->heard = now;
}

absl::Status Membership::Hello(MemberId id, const std::string& name, int ranks) {
  Member* const member = Find(id);
  ANNULUS_CHECK(member != nullptr) << "member " << id << " is gone";
  if (member->role != Role::kStranger) return WrongMessage("a second Hello");
  for (const auto& [other, one] : members_) {
    if (one.role != Role::kStranger && one.name == name) {
      return absl::AlreadyExistsError(absl::StrCat("another worker has the name \"", name, "\""));
    }
  }
  if (is_complete()) {
    const auto fits = [ranks](const Seat& seat) { return seat.ranks == ranks; };
    if (std::none_of(seats_.begin(), seats_.end(), fits)) {
      std::set<int> sizes;
      for (const Seat& seat : seats_) sizes.insert(seat.ranks);
      return absl::FailedPreconditionError(absl::StrCat(
          "the worker hosts ", ranks, " ranks, but a spare takes the place of one worker, and ",
          "those of this ring host ", absl::StrJoin(sizes, " or "), "; set its --local-ranks so"));
    }
  } else if (ranks < 1 || ranks > Missing()) {
    return absl::FailedPreconditionError(absl::StrCat("the worker hosts ", ranks,
                                                      " ranks, and the ring misses ", Missing(),
                                                      "; set its --local-ranks to at most that"));
  }
  member->role = Role::kSpare;
  member->name = name;
  member->ranks = ranks;
  return absl::OkStatus();
}

absl::Status Membership::Beat(MemberId id) const {
  const Role known = role(id);
  if (known == Role::kSpare || known == Role::kHost) return absl::OkStatus();
  return WrongMessage("another message than Hello first");
}

// Its results are awaited.
bool Membership::OwesStep(const Member& member) const {
  return member.role == Role::kHost && !aborted_ && member.joined == epoch_ &&
         member.ended < steps_;
}

// Whoever takes a seat while the epoch that lost it has yet to be aborted may be ready for the
// next.
bool Membership::AwaitsWires(const Member& member) const {
  return (aborted_ || member.joined != epoch_) && member.wires <= epoch_;
}

// It takes its memory in the epoch that it has opened wires for, which may wait for others.
bool Membership::AwaitsMemory(const Member& member) const {
  return !member.ready && !aborted_ && member.joined == epoch_;
}

absl::StatusOr<bool> Membership::Advance(MemberId id, const Work& work, SteadyTime now) {
  ANNULUS_RETURN_IF_ERROR(Beat(id));
  Member& member = *Find(id);
  if (work.running < 0 || work.running > member.ranks || work.waiting < 0 ||
      work.waiting > work.running) {
    return WrongMessage(absl::StrCat("that of ", member.ranks, " ranks ", work.running,
                                     " are in a step, and ", work.waiting, " of these wait"));
  }
  if (work.advances < member.work.advances) {
    return WrongMessage(absl::StrCat("that its ranks have made progress ", work.advances,
                                     " times, after ", member.work.advances, " times"));
  }
  const bool advanced = work.advances > member.work.advances;
  member.work = work;
  if (advanced || IsWaiting(work)) member.advanced = now;
  return advanced;
}

absl::StatusOr<bool> Membership::Wires(MemberId id, uint64_t epoch) {
  ANNULUS_ASSIGN_OR_RETURN(Member* const member, FindHost(id, "wires"));
  if (epoch <= epoch_) return false;
  if (epoch != epoch_ + 1 || !AwaitsWires(*member)) {
    return WrongMessage(absl::StrCat("wires for epoch ", epoch, " in epoch ", epoch_));
  }
  member->wires = epoch;
  return true;
}

absl::Status Membership::Ready(MemberId id) {
  ANNULUS_ASSIGN_OR_RETURN(Member* const member, FindHost(id, "Ready"));
  if (member->ready) return WrongMessage("a second Ready");
  member->ready = true;
  NoteWhole();
  return absl::OkStatus();
}

absl::StatusOr<bool> Membership::Result(MemberId id, uint64_t epoch, uint64_t step,
                                        SteadyTime now) {
  ANNULUS_ASSIGN_OR_RETURN(Member* const member, FindHost(id, "results"));
  if (epoch < epoch_ || (epoch == epoch_ && aborted_)) return false;
  if (epoch != epoch_ || member->joined != epoch_ || step != member->ended + 1 || step > steps_) {
    return WrongMessage(absl::StrCat("results of step ", step, " of epoch ", epoch,
                                     "; awaited is step ", member->ended + 1, " of ", steps_,
                                     " in epoch ", epoch_));
  }
  ++member->ended;
  member->advanced = member->owing = now;
  return true;
}

void Membership::Leave(MemberId id, SteadyTime now) {
  for (Seat& seat : seats_) {
    if (seat.host != id) continue;
    seat.host = 0;
    LoseRanks(seat);
    if (!seat.left_out && !lacks_since_.has_value()) lacks_since_ = now;
  }
  members_.erase(id);
}

// ---- what follows

// Whoever waits for others is not at fault. Whoever does not let go of a step that was aborted is.
SteadyTime Membership::ProgressDue(const Member& member) const {
  const bool runs = member.work.running > 0 || OwesStep(member);
  const bool due = member.role == Role::kHost && runs && !IsWaiting(member.work);
  return due ? member.advanced + options_.step_silence : kNever;
}

// Whoever waits to the end has as long again: the one that it waits for is lost before.
SteadyTime Membership::EndDue(const Member& member) const {
  if (!OwesStep(member)) return kNever;
  return member.owing + (IsWaiting(member.work) ? 2 : 1) * options_.step_limit;
}

// What is awaited of it first, and until when.
SteadyTime Membership::DeadlineOf(const Member& member) const {
  if (member.role == Role::kStranger) return member.heard + options_.hello_timeout;
  const SteadyTime due =
      std::min({member.heard + options_.silence, ProgressDue(member), EndDue(member)});
  const bool forms = member.role == Role::kHost && (AwaitsWires(member) || AwaitsMemory(member));
  return forms ? std::min(due, member.asked + options_.forming_timeout) : due;
}

absl::Status Membership::WhyLate(const Member& member, SteadyTime now) const {
  if (member.role == Role::kStranger) {
    return absl::DeadlineExceededError(
        absl::StrCat("it did not say Hello within ", TimeText(options_.hello_timeout)));
  }
  if (member.heard + options_.silence <= now) {
    return absl::UnavailableError(
        absl::StrCat("it has said nothing for ", TimeText(options_.silence)));
  }
  if (ProgressDue(member) <= now) {
    return absl::DeadlineExceededError(
        absl::StrCat("it says that it is alive, and its step has made no progress for ",
                     TimeText(options_.step_silence)));
  }
  if (EndDue(member) <= now) {
    return absl::DeadlineExceededError(
        absl::StrCat("its step has not ended within ", TimeText(options_.step_limit)));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("it did not ", AwaitsWires(member) ? "open its wires" : "take its memory",
                   " within ", TimeText(options_.forming_timeout)));
}

std::vector<Membership::Late> Membership::FindLate(SteadyTime now) const {
  std::vector<Late> late;
  for (const auto& [id, member] : members_) {
    if (DeadlineOf(member) <= now) late.push_back({id, WhyLate(member, now)});
  }
  return late;
}

std::optional<SteadyTime> Membership::NextLate() const {
  std::optional<SteadyTime> next;
  for (const auto& [id, member] : members_) {
    const SteadyTime deadline = DeadlineOf(member);
    next = std::min(next.value_or(deadline), deadline);
  }
  return next;
}

int Membership::Missing() const {
  int missing = options_.ranks - options_.first_rank;
  for (const auto& [id, member] : members_) {
    if (member.role != Role::kStranger) missing -= member.ranks;
  }
  return missing;
}

void Membership::CutSeats() {
  std::map<std::string, int> ranks;  // by name
  for (const auto& [id, member] : members_) {
    if (member.role == Role::kSpare) ranks[member.name] = member.ranks;
  }
  int next = options_.first_rank;
  for (const auto& [name, count] : ranks) {
    seats_.push_back({next, count});
    next += count;
  }
  lost_.assign(static_cast<size_t>(options_.ranks), false);
}

std::vector<MemberId> Membership::Fill(SteadyTime now) {
  if (!is_complete() && Missing() > 0) return {};
  std::vector<MemberId> spares = Spares();
  if (!is_complete()) {
    CutSeats();
    std::sort(spares.begin(), spares.end(),
              [this](MemberId a, MemberId b) { return members_.at(a).name < members_.at(b).name; });
  }
  std::vector<MemberId> hosts;
  for (Seat& seat : seats_) {
    const auto fits = [&](MemberId id) {
      const Member& member = members_.at(id);
      return member.role == Role::kSpare && member.ranks == seat.ranks;
    };
    const auto found = std::find_if(spares.begin(), spares.end(), fits);
    if (seat.host != 0 || found == spares.end()) continue;
    Member& member = members_.at(*found);
    seat.host = *found;
    member.role = Role::kHost;
    member.heard = member.asked = now;
    hosts.push_back(*found);
  }
  return hosts;
}

bool Membership::CanShrink() const {
  if (!founded_) return false;
  return options_.first_rank > 0 ||
         std::any_of(seats_.begin(), seats_.end(), [](const Seat& seat) { return seat.host != 0; });
}

bool Membership::MayLeaveOut(const Seat& seat, SteadyTime now) const {
  if (seat.host != 0 || !CanShrink()) return false;
  return seat.left_out || *lacks_since_ + options_.replacement_timeout <= now;
}

bool Membership::CanForm(SteadyTime now) const {
  return is_complete() && aborted_ &&
         std::all_of(seats_.begin(), seats_.end(), [&](const Seat& seat) {
           if (seat.host == 0) return MayLeaveOut(seat, now);
           return members_.at(seat.host).wires == epoch_ + 1;
         });
}

uint64_t Membership::Form(SteadyTime now) {
  ANNULUS_CHECK(CanForm(now)) << "somebody is missing";
  ++epoch_;
  aborted_ = false;
  steps_ = 0;
  for (Seat& seat : seats_) {
    if (std::exchange(seat.left_out, seat.host == 0) != seat.left_out) LoseRanks(seat);
    if (seat.left_out) continue;
    Member& host = members_.at(seat.host);
    host.joined = epoch_;
    host.ended = 0;
    host.asked = now;
  }
  NoteWhole();
  return epoch_;
}

uint64_t Membership::BeginStep(SteadyTime now) {
  for (auto& [id, member] : members_) {
    if (IsInEpoch(id) && member.ended == steps_) member.advanced = member.owing = now;
  }
  return ++steps_;
}

void Membership::Found() {
  if (founded_) return;
  ANNULUS_CHECK(is_up()) << "the ring does not serve";
  founded_ = true;
}

std::vector<MemberId> Membership::Abort(SteadyTime now) {
  std::vector<MemberId> told;
  told.reserve(seats_.size());  // without memory nothing has happened
  if (std::exchange(aborted_, true)) return {};
  for (const Seat& seat : seats_) {
    if (seat.host == 0 || !IsInEpoch(seat.host)) continue;
    members_.at(seat.host).asked = now;
    told.push_back(seat.host);
  }
  return told;
}

std::vector<int32_t> Membership::TakeLost() {
  std::vector<int32_t> ranks;
  for (size_t rank = 0; rank < lost_.size(); ++rank) {
    if (lost_[rank]) ranks.push_back(static_cast<int32_t>(rank));
  }
  lost_.assign(lost_.size(), false);
  return ranks;
}

// ---- what is

// Whether all seats that are not left out have hosts that serve in this epoch, and nobody has taken
// one that is.
bool Membership::IsWhole() const {
  return is_complete() && !aborted_ &&
         std::all_of(seats_.begin(), seats_.end(), [this](const Seat& seat) {
           if (seat.host == 0) return seat.left_out;
           return IsInEpoch(seat.host) && IsReady(seat.host);
         });
}

void Membership::NoteWhole() {
  if (IsWhole()) lacks_since_.reset();
}

void Membership::LoseRanks(const Seat& seat) {
  if (!founded_) return;
  for (int i = 0; i < seat.ranks; ++i) lost_[static_cast<size_t>(seat.first_rank + i)] = true;
}

bool Membership::is_up() const {
  return IsWhole() && std::none_of(lost_.begin(), lost_.end(), [](bool lost) { return lost; });
}

std::optional<SteadyTime> Membership::vacant_since() const {
  const auto vacant = [](const Seat& seat) { return seat.host == 0 && !seat.left_out; };
  if (std::none_of(seats_.begin(), seats_.end(), vacant)) return std::nullopt;
  return lacks_since_;
}

bool Membership::IsInEpoch(MemberId id) const {
  const Member* const member = Find(id);
  return member != nullptr && epoch_ > 0 && member->joined == epoch_;
}

bool Membership::IsReady(MemberId id) const {
  const Member* const member = Find(id);
  return member != nullptr && member->ready;
}

bool Membership::MayRunStep(MemberId id) const {
  return IsInEpoch(id) && Find(id)->wires <= epoch_;
}

Membership::Role Membership::role(MemberId id) const {
  const Member* const member = Find(id);
  return member == nullptr ? Role::kGone : member->role;
}

const Membership::Seat* Membership::SeatOf(MemberId id) const {
  const auto found = std::find_if(seats_.begin(), seats_.end(),
                                  [id](const Seat& seat) { return seat.host == id; });
  return id == 0 || found == seats_.end() ? nullptr : &*found;
}

const Membership::Seat& Membership::SeatOfRank(int rank) const {
  const auto found = std::find_if(seats_.begin(), seats_.end(), [rank](const Seat& seat) {
    return rank < seat.first_rank + seat.ranks;
  });
  ANNULUS_CHECK(found != seats_.end()) << "no worker hosts rank " << rank;
  return *found;
}

std::vector<MemberId> Membership::Hosts() const {
  std::vector<MemberId> hosts;
  for (const Seat& seat : seats_) {
    if (seat.host != 0) hosts.push_back(seat.host);
  }
  return hosts;
}

std::vector<MemberId> Membership::Spares() const {
  std::vector<MemberId> spares;
  for (const auto& [id, member] : members_) {
    if (member.role == Role::kSpare) spares.push_back(id);
  }
  return spares;
}

}  // namespace annulus
