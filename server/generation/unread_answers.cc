#include "server/generation/unread_answers.h"

#include <algorithm>

namespace annulus::server {

void UnreadAnswers::Begin(Answering& call) {
  const SteadyTime now = std::chrono::steady_clock::now();
  Wait wait{.since = now};
  if (call.ClientIsGone()) wait.gone = now;
  std::lock_guard lock(mutex_);
  waiting_[&call] = wait;
}

void UnreadAnswers::End(Answering& call) {
  std::lock_guard lock(mutex_);
  waiting_.erase(&call);
}

void UnreadAnswers::CutOffSince(SteadyTime limit, SteadyTime now) {
  std::lock_guard lock(mutex_);
  for (auto& [call, wait] : waiting_) {
    if (wait.since >= limit) continue;
    wait.since = SteadyTime::max();
    if (!wait.gone.has_value()) wait.gone = now;
    call->CutOff();
  }
}

bool UnreadAnswers::HasStuck(SteadyTime now) const {
  std::lock_guard lock(mutex_);
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& entry) {
    return entry.second.gone.has_value() && now - *entry.second.gone >= kStuck;
  });
}

}  // namespace annulus::server
