#ifndef ANNULUS_SERVER_EXIT_GUARD_H_
#define ANNULUS_SERVER_EXIT_GUARD_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "server/log.h"

namespace annulus {

// Bounds how long the process takes to stop: a thread that is stuck in a client's work, in a driver
// or in a library must not keep it alive. Thread-safe.
class ExitGuard {
 public:
  // How long the log may take for the last line.
  static constexpr std::chrono::milliseconds kLastWords{500};

  // `log` must outlive the guard.
  explicit ExitGuard(const Logger& log) : log_(log) {}
  // The stop has ended in time.
  ~ExitGuard();
  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;

  // The stop begins. If the guard still lives after `limit`, it logs `stop_cut_short` with what the
  // stop waits for, and within kLastWords ends the process with status 0: all that was promised to
  // clients is done or was refused before. Called once.
  void Arm(std::chrono::milliseconds limit);

  // What the stop waits for from now on. `what` may be called, by the guard's thread, until the
  // next WaitingFor returns.
  void WaitingFor(std::function<std::string()> what);

 private:
  void Wait(std::chrono::milliseconds limit);

  const Logger& log_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::function<std::string()> what_ = [] { return "nothing"; };
  std::thread thread_;  // once armed
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_EXIT_GUARD_H_
