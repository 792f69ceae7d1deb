// The part of RingCrew that takes links, and watches those who have them.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/try_to.h"
#include "engine/workers/ring_crew.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

MembershipOptions MembershipOf(const RingCrewOptions& options) {
  return {.first_rank = options.first_rank,
          .ranks = options.ranks,
          .silence = options.silence,
          .step_silence = options.step_silence,
          .step_limit = options.step_limit,
          .hello_timeout = options.hello_timeout,
          .forming_timeout = options.forming_timeout,
          .replacement_timeout = options.replacement_timeout};
}

}  // namespace

RingCrew::RingCrew(const RingCrewOptions& options, WorkerSource& source)
    : options_(options), source_(source), membership_(MembershipOf(options)) {}

RingCrew::~RingCrew() {
  source_.Stop(absl::UnavailableError("the coordinator stops"));
  {
    std::lock_guard lock(mutex_);
    stop_ = over_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  std::vector<std::unique_ptr<Member>> members;
  {
    std::lock_guard lock(mutex_);
    members.swap(members_);
    for (const auto& member : members) {
      membership_.Leave(member->id, options_.clock->Now());
      member->link->Close(absl::OkStatus());
    }
  }
  members.clear();  // without the lock: a link waits for its calls
}

absl::Status RingCrew::Gather() {
  watcher_ = std::thread([this] { Watch(); });
  source_.Start(*this);
  std::unique_lock lock(mutex_);
  return Await([this] { return membership_.is_complete(); }, lock);
}

absl::Status RingCrew::Found() {
  std::lock_guard lock(mutex_);
  if (broken_.ok()) membership_.Found();
  return broken_;
}

absl::Status RingCrew::hopeless() const {
  std::lock_guard lock(mutex_);
  return Hopeless();
}

absl::Status RingCrew::Hopeless() const {
  if (membership_.is_founded()) return absl::OkStatus();
  if (!unfit_.ok()) return unfit_;
  const bool lacks = !membership_.is_complete() || membership_.vacant_since().has_value();
  return lacks ? stopped_ : absl::OkStatus();
}

void RingCrew::OnWorker(std::unique_ptr<WorkerLink> link) {
  std::lock_guard lock(mutex_);
  // Without memory the link is dropped, which closes it: the worker dials again.
  TryTo([&] {
    members_.reserve(members_.size() + 1);
    auto member = std::make_unique<Member>(this, std::move(link));
    member->id = membership_.Dial(options_.clock->Now());
    members_.push_back(std::move(member));
    members_.back()->link->Start(*members_.back());
  });
  changed_.notify_all();
}

void RingCrew::OnStopped(const absl::Status& why) {
  std::lock_guard lock(mutex_);
  stopped_ = why.ok() ? absl::CancelledError("no more workers can come") : why;
  changed_.notify_all();
}

// ---- what the ring waits for

std::string RingCrew::AwaitedText() const {
  if (!membership_.is_complete()) {
    const int missing = membership_.Missing();
    return absl::StrCat("of ", options_.ranks, " ranks ", missing, missing == 1 ? " is" : " are",
                        " missing", refusal_);
  }
  std::vector<std::string> vacant;
  std::vector<std::string> taken;
  for (const Membership::Seat& seat : membership_.seats()) {
    const Member* const host = Find(seat.host);
    if (host == nullptr) {
      vacant.push_back(absl::StrCat(RanksText(seat.first_rank, seat.ranks),
                                    " of a worker with --local-ranks ", seat.ranks));
    } else if (membership_.is_founded() && !membership_.IsReady(seat.host)) {
      taken.push_back(absl::StrCat("worker \"", host->hello.name(), "\" to take ",
                                   RanksText(seat.first_rank, seat.ranks)));
    }
  }
  if (vacant.empty() && taken.empty()) return "";
  return absl::StrCat(vacant.empty() ? absl::StrJoin(taken, " and ")
                                     : absl::StrCat("a host for ", absl::StrJoin(vacant, " and ")),
                      lost_.ok() ? "" : ", as ", lost_.message(), refusal_);
}

// ---- on a thread of its own

void RingCrew::Watch() {
  const auto period = BeatPeriodOf(options_.silence);
  std::unique_lock lock(mutex_);
  SteadyTime due = options_.clock->Now();  // to tell of progress
  SteadyTime woken = due;                  // when this should have gone on
  SteadyTime spared = due;                 // until when nobody is judged
  bool judged = true;                      // since the last time that all were spared
  while (!over_) {
    const SteadyTime now = options_.clock->Now();
    // If this process stood still, what workers said meanwhile is yet to be read: they have one
    // more period.
    if (now - woken > period && std::exchange(judged, false)) spared = now + period;
    // Without memory, at the next turn.
    TryTo([&] {
      if (now >= spared) LoseTheLate(now);
      if (due <= now) TellProgress(now);
    });
    if (now >= spared) judged = true;
    if (due <= now) due = now + period;
    if (TendLinks(lock)) {
      woken = options_.clock->Now();
      continue;
    }
    const auto next = [&] {
      const std::optional<SteadyTime> late = membership_.NextLate();
      return late.has_value() && *late > now ? std::min(*late, due) : due;
    };
    woken = next();
    const bool changed = options_.clock->WaitUntil(woken, lock, changed_, [&] {
      return over_ || next() < woken || !news_.empty() || AwaitedText() != told_ ||
             std::any_of(members_.begin(), members_.end(),
                         [](const auto& member) { return member->closed; });
    });
    if (changed) woken = options_.clock->Now();
  }
}

// Releases the lock to destroy links that call no more, and to say what the ring waits for now.
// Returns whether it did.
bool RingCrew::TendLinks(std::unique_lock<std::mutex>& lock) {
  std::vector<std::unique_ptr<Member>> gone;
  std::vector<std::string> news;
  TryTo([&] {
    news_.push_back(AwaitedText());
    for (std::string& awaited : std::exchange(news_, {})) {
      if (awaited != told_) news.push_back(told_ = std::move(awaited));
    }
    gone.reserve(members_.size());
    for (auto& member : members_) {
      if (member->closed) gone.push_back(std::move(member));
    }
    std::erase(members_, nullptr);
  });
  if (gone.empty() && news.empty()) return false;
  lock.unlock();
  gone.clear();
  for (const std::string& awaited : news) source_.Report(awaited);
  lock.lock();
  return true;
}

void RingCrew::LoseTheLate(SteadyTime now) {
  for (const Membership::Late& late : membership_.FindLate(now)) {
    Lose(*Find(late.id), RingLoss::kSilent, late.why);
  }
}

void RingCrew::TellProgress(SteadyTime now) {
  wire::ToWorker message;
  const auto quiet = std::max(SteadyTime::duration(0), now - LastProgress());
  message.mutable_progress()->set_quiet_us(
      std::chrono::duration_cast<std::chrono::microseconds>(quiet).count());
  std::vector<MemberId> all = membership_.Spares();
  const std::vector<MemberId> hosts = membership_.Hosts();
  all.insert(all.end(), hosts.begin(), hosts.end());
  Send(all, message);
}

}  // namespace annulus
