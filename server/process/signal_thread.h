#ifndef ANNULUS_SERVER_PROCESS_SIGNAL_THREAD_H_
#define ANNULUS_SERVER_PROCESS_SIGNAL_THREAD_H_

#include <functional>
#include <thread>

namespace annulus::server {

// Receives signals on a thread instead of in a handler, so that the callbacks may do anything. The
// first SIGTERM or SIGINT calls `on_stop` with its number; the second one ends the process at once
// with exit status 128 plus its number. SIGHUP, SIGUSR1 and SIGUSR2, which would end the process by
// default, only call `on_other`. Construct it before other threads, because they must inherit the
// blocked signals.
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
  int signals_;  // signalfd
  int stop_;     // eventfd that the destructor writes to
  std::thread thread_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_PROCESS_SIGNAL_THREAD_H_
