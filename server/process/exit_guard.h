#ifndef ANNULUS_SERVER_PROCESS_EXIT_GUARD_H_
#define ANNULUS_SERVER_PROCESS_EXIT_GUARD_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "server/log/log.h"

namespace annulus::server {

// Bounds the time that the process takes to stop, even if a thread is stuck in a client's work, a
// driver or a library. Thread-safe.
class ExitGuard {
 public:
  // How long the last log line may take.
  static constexpr std::chrono::milliseconds kLastWords{500};

  // `log` must outlive the guard.
  explicit ExitGuard(const Logger& log) : log_(log) {}
  // The process has stopped in time: disarms the guard.
  ~ExitGuard();
  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;

  // Starts the countdown. If the guard still exists after `limit`, it logs `stop_cut_short` with
  // the thing that is being waited for, and ends the process within kLastWords. The exit status is
  // 0, because by then every client has its answer or an error. Call it once.
  void Arm(std::chrono::milliseconds limit);

  // Sets what the process waits for from now on. A thread of the guard may call `what` until the
  // next WaitingFor returns.
  void WaitingFor(std::function<std::string()> what);

 private:
  void Wait(std::chrono::milliseconds limit);

  const Logger& log_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::function<std::string()> what_ = [] { return "nothing"; };
  std::thread thread_;  // started by Arm
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_PROCESS_EXIT_GUARD_H_
