#include "server/process/exit_guard.h"

#include <unistd.h>

#include <future>
#include <utility>

#include "absl/strings/str_cat.h"

namespace annulus::server {

ExitGuard::~ExitGuard() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ExitGuard::Arm(std::chrono::milliseconds limit) {
  thread_ = std::thread([this, limit] { Wait(limit); });
}

void ExitGuard::WaitingFor(std::function<std::string()> what) {
  std::lock_guard lock(mutex_);
  what_ = std::move(what);
}

void ExitGuard::Wait(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, limit, [&] { return over_; })) return;
  // what_ and the log may hang too, so call them on another thread. Keep the lock held, so that
  // what_ does not change.
  std::promise<void> said;
  std::thread([&] {
    log_.Warning("stop_cut_short",
                 {{"after_seconds", absl::StrCat(static_cast<double>(limit.count()) / 1000)},
                  {"waiting_for", what_()}});
    log_.Flush(kLastWords);
    said.set_value();
  }).detach();
  said.get_future().wait_for(kLastWords);
  _exit(0);
}

}  // namespace annulus::server
