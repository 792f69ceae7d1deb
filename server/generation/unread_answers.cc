#include "server/generation/unread_answers.h"

namespace annulus::server {

void UnreadAnswers::Begin(Answering& call) {
  const SteadyTime now = std::chrono::steady_clock::now();
  std::lock_guard lock(mutex_);
  waiting_[&call] = now;
}

void UnreadAnswers::End(Answering& call) {
  std::lock_guard lock(mutex_);
  waiting_.erase(&call);
}

void UnreadAnswers::CutOffSince(SteadyTime limit) {
  std::lock_guard lock(mutex_);
  for (auto& [call, since] : waiting_) {
    if (since >= limit) continue;
    since = SteadyTime::max();
    call->CutOff();
  }
}

}  // namespace annulus::server
