#ifndef ANNULUS_SERVER_SIGNAL_THREAD_H_
#define ANNULUS_SERVER_SIGNAL_THREAD_H_

#include <functional>
#include <thread>

namespace annulus {

// Takes signals on a thread, where anything may be done, instead of in a handler. SIGTERM and
// SIGINT stop: the first one calls `on_stop` with its number, the second ends the process at once
// with 128 plus its number. SIGHUP, SIGUSR1 and SIGUSR2, which would end a process by default, call
// `on_other` and nothing else. Construct it before other threads, which then inherit the blocked
// signals.
class SignalThread {
 public:
  SignalThread(std::function<void(int)> on_stop, std::function<void(int)> on_other);
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  void Loop();

  const std::function<void(int)> on_stop_;
  const std::function<void(int)> on_other_;
  int signals_;  // descriptor that signals arrive on
  int stop_;     // descriptor that the destructor writes to
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_SIGNAL_THREAD_H_
