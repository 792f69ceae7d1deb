// What RingCrew makes of what workers say.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/codec/status_message.h"
#include "engine/workers/ring_crew.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/status_mark.h"

namespace annulus {
namespace {

// Of a message of whoever does not belong to the ring, since parsing takes many times as much.
constexpr size_t kMostStrangersBytes = size_t{64} << 10;

constexpr size_t kMostNameBytes = 128;

// Why something failed, by what a worker says. Never OK.
absl::Status FailureOf(const wire::Status& status) {
  const absl::Status failure = codec::FromMessage(status);
  return failure.ok() ? WrongMessage("OK as the reason of a failure") : failure;
}

}  // namespace

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
    case wire::FromWorker::kCopied:
      return TakeCopied(member, message.copied());
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
  const absl::Status fits = membership_.Hello(member.id, hello.name(), hello.ranks());
  if (absl::IsAlreadyExists(fits)) return NameTaken(member, fits);
  ANNULUS_RETURN_IF_ERROR(fits);
  wire::ToWorker welcome;
  welcome.mutable_welcome()->set_silence_ms(options_.silence.count());
  member.link->Send(Encode(welcome));
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
  ANNULUS_ASSIGN_OR_RETURN(
      const bool due,
      membership_.Result(member.id, result.epoch(), result.step(), options_.clock->Now()));
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
  const SteadyTime now = options_.clock->Now();
  const Membership::Work work = {
      .advances = beat.advances(), .running = beat.running(), .waiting = beat.waiting()};
  ANNULUS_ASSIGN_OR_RETURN(const bool advanced, membership_.Advance(member.id, work, now));
  if (advanced) {
    member.progress = now;
    if (here_ != nullptr) here_->NoteProgressElsewhere(member.progress);
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

}  // namespace annulus
