// How RingCrew has workers copy pages between their ranks and the shelves beside these.

#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/codec/status_message.h"
#include "engine/workers/ring_crew.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/status_mark.h"

namespace annulus {

absl::Status RingCrew::TakeCopied(Member& member, const wire::PageCopied& copied) {
  const auto found = member.copies.find(copied.ticket());
  if (found == member.copies.end() || found->second.has_value()) {
    return WrongMessage(absl::StrCat("copy ", copied.ticket(), " of a page, which is not due"));
  }
  if (!copied.has_status()) {
    found->second.emplace(copied.same());
    return absl::OkStatus();
  }
  const absl::Status failure = codec::FromMessage(copied.status());
  if (failure.ok()) return WrongMessage("OK as the reason of a failure");
  found->second.emplace(
      WithPrefix(absl::StrCat("worker \"", member.hello.name(), "\": "), failure));
  return absl::OkStatus();
}

absl::Status RingCrew::AwaitAborted(int rank) {
  std::unique_lock lock(mutex_);
  return AwaitAborted(rank, lock);
}

absl::Status RingCrew::AwaitAborted(int rank, std::unique_lock<std::mutex>& lock) {
  // A broken epoch will be aborted; if there is no memory for it now, some time later.
  const auto ended = [&] {
    if (!membership_.aborted() && broken_.ok()) return true;
    if (rank < options_.first_rank) return forms_here_ > membership_.epoch();
    return !membership_.MayRunStep(membership_.SeatOfRank(rank).host);
  };
  const auto over = [&] { return stop_ || stop_copies_ || ended(); };
  if (options_.clock->WaitUntil(options_.clock->Now() + options_.patience, lock, changed_, over)) {
    return ended() ? absl::OkStatus() : absl::CancelledError("the ring ends");
  }
  return absl::UnavailableError(absl::StrCat("rank ", rank, " has not ended a step within ",
                                             TimeText(options_.patience), " after it was aborted"));
}

void RingCrew::StopCopies() {
  {
    std::lock_guard lock(mutex_);
    stop_copies_ = true;
  }
  changed_.notify_all();
}

absl::StatusOr<bool> RingCrew::Copy(const PageCopy& copy) {
  std::unique_lock lock(mutex_);
  ANNULUS_RETURN_IF_ERROR(AwaitAborted(copy.page.rank, lock));
  const MemberId id = membership_.SeatOfRank(copy.page.rank).host;
  if (stop_ || stop_copies_) return absl::CancelledError("the ring ends");
  if (Find(id) == nullptr || !membership_.IsReady(id)) {
    return absl::UnavailableError(absl::StrCat("no worker has rank ", copy.page.rank, " now"));
  }
  // All that takes memory comes before the worker is asked: from then on it may write the page
  // until it has answered, or is lost.
  const uint64_t ticket = ++copies_;
  wire::ToWorker message;
  *message.mutable_copy() = ToMessage(copy, ticket);
  const std::string bytes = Encode(message);
  const absl::Status late = absl::DeadlineExceededError(
      absl::StrCat("it has not copied a page within ", TimeText(options_.patience)));
  Find(id)->copies[ticket];
  SendOrLose(*Find(id), bytes);
  const auto lost = [&] {
    return Find(id) == nullptr || membership_.role(id) == Membership::Role::kGone;
  };
  const auto over = [&] {
    return stop_ || stop_copies_ || lost() || Find(id)->copies.at(ticket).has_value();
  };
  if (!options_.clock->WaitUntil(options_.clock->Now() + options_.patience, lock, changed_, over)) {
    Lose(*Find(id), RingLoss::kSilent, late);
  }
  if (lost()) {
    return absl::UnavailableError(
        absl::StrCat("the worker with rank ", copy.page.rank, " is lost"));
  }
  const auto answer = Find(id)->copies.find(ticket);
  // It stays due: the worker may still say what became of it.
  if (!answer->second.has_value()) return absl::CancelledError("the ring ends");
  const absl::Status failure = answer->second->status();
  const bool same = failure.ok() && **answer->second;
  Find(id)->copies.erase(answer);
  ANNULUS_RETURN_IF_ERROR(failure);
  return same;
}

}  // namespace annulus
