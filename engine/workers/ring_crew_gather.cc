// The part of RingCrew that waits for workers and decides whom it takes.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/try_to.h"
#include "engine/workers/ring_crew.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kMostNameBytes = 128;

// A later ring, of a coordinator that begins again, may need the worker.
absl::Status NotNeeded() { return absl::UnavailableError("the ring has all its ranks"); }

}  // namespace

absl::Status RingCrew::Gather(WorkerSource& source) {
  source.Start(*this);
  const absl::Status all = AwaitMissing(source);
  source.Stop(all.ok() ? NotNeeded() : all);
  if (all.ok()) source.Report("");
  return all;
}

absl::Status RingCrew::AwaitMissing(WorkerSource& source) {
  std::string told;
  while (true) {
    std::vector<std::unique_ptr<Member>> gone;  // destroyed without the lock
    std::string missing;
    {
      std::unique_lock lock(mutex_);
      const SteadyTime until = RefuseTheSilent();
      for (auto& member : members_) {
        if (member->state == Member::kClosed) gone.push_back(std::move(member));
      }
      std::erase(members_, nullptr);
      if (!stopped_.ok()) return stopped_;
      missing = MissingText();
      if (missing.empty()) {
        Settle();
        return absl::OkStatus();
      }
      if (missing == told && gone.empty()) {
        options_.clock->WaitUntil(until, lock, changed_, [&] {
          return !stopped_.ok() || MissingText() != told ||
                 std::any_of(members_.begin(), members_.end(),
                             [](const auto& member) { return member->state == Member::kClosed; });
        });
        continue;
      }
    }
    if (missing != told) source.Report(told = missing);
  }
}

// Returns when to look again.
SteadyTime RingCrew::RefuseTheSilent() {
  const SteadyTime now = options_.clock->Now();
  SteadyTime next = now + kLookAround;
  for (const auto& member : members_) {
    if (member->state != Member::kNew) continue;
    const SteadyTime deadline = member->heard + options_.hello_timeout;
    if (deadline > now) {
      next = std::min(next, deadline);
    } else {
      Refuse(*member, absl::DeadlineExceededError(absl::StrCat("it did not say Hello within ",
                                                               TimeText(options_.hello_timeout))));
    }
  }
  return next;
}

// All ranks have a worker: which one is said here, by the order of names.
void RingCrew::Settle() {
  gathered_ = true;
  for (const auto& member : members_) {
    if (member->state == Member::kAccepted) workers_.push_back(member.get());
    if (member->state == Member::kNew) {
      Refuse(*member, NotNeeded());
    }
  }
  std::sort(workers_.begin(), workers_.end(),
            [](const Member* a, const Member* b) { return a->hello.name() < b->hello.name(); });
  int next = options_.first_rank;
  for (Member* worker : workers_) {
    worker->first_rank = next;
    next += worker->hello.ranks();
  }
}

int RingCrew::Missing() const {
  int missing = options_.ranks - options_.first_rank;
  for (const auto& member : members_) {
    if (member->state == Member::kAccepted) missing -= member->hello.ranks();
  }
  return missing;
}

std::string RingCrew::MissingText() const {
  const int missing = Missing();
  if (missing == 0) return "";
  return absl::StrCat("of ", options_.ranks, " ranks ", missing, missing == 1 ? " is" : " are",
                      " missing", refusal_);
}

void RingCrew::OnWorker(std::unique_ptr<WorkerLink> link) {
  std::lock_guard lock(mutex_);
  // Without memory the link is dropped, which closes it: the worker dials again.
  TryTo([&] {
    members_.push_back(std::make_unique<Member>(this, std::move(link)));
    Member& member = *members_.back();
    member.link->Start(member);
    if (gathered_) Refuse(member, NotNeeded());
  });
  changed_.notify_all();
}

void RingCrew::OnStopped(const absl::Status& why) {
  std::lock_guard lock(mutex_);
  stopped_ = why.ok() ? absl::CancelledError("no more workers can come") : why;
  changed_.notify_all();
}

void RingCrew::Refuse(Member& member, const absl::Status& why) {
  const std::string& name = member.hello.name();
  refusal_ = absl::StrCat("; refused ", name.empty() ? "" : absl::StrCat("worker \"", name, "\" "),
                          "at ", member.link->peer(), ": ", why.message());
  member.state = Member::kRefused;
  member.link->Close(why);
  changed_.notify_all();
}

absl::Status RingCrew::TakeHello(Member& member, const wire::Hello& hello) {
  if (member.state != Member::kNew) return WrongMessage("a second Hello");
  if (hello.protocol() != kWorkerProtocol) {
    return absl::FailedPreconditionError(
        absl::StrCat("the protocol of the worker is ", hello.protocol(), ", of the coordinator ",
                     kWorkerProtocol, "; all processes of a ring run the same build"));
  }
  if (hello.name().empty() || hello.name().size() > kMostNameBytes) {
    return WrongMessage(absl::StrCat("a name of ", hello.name().size(), " bytes; allowed are 1 to ",
                                     kMostNameBytes));
  }
  member.hello = hello;
  ANNULUS_RETURN_IF_ERROR(CheckAgreement(options_.agreement, AgreementOf(hello)));
  for (const auto& other : members_) {
    if (other->state == Member::kAccepted && other->hello.name() == hello.name()) {
      return absl::AlreadyExistsError(absl::StrCat("another worker has the name \"", hello.name(),
                                                   "\": it is at ", other->link->peer()));
    }
  }
  if (hello.ranks() < 1 || hello.ranks() > Missing()) {
    return absl::FailedPreconditionError(absl::StrCat("the worker hosts ", hello.ranks(),
                                                      " ranks, and the ring misses ", Missing(),
                                                      "; set its --local-ranks to at most that"));
  }
  member.state = Member::kAccepted;
  return absl::OkStatus();
}

}  // namespace annulus
