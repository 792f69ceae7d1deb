#ifndef ANNULUS_SERVER_SIGNAL_THREAD_H_
#define ANNULUS_SERVER_SIGNAL_THREAD_H_

#include <functional>
#include <thread>

namespace annulus {

// Takes SIGTERM and SIGINT on a thread, where anything may be done, instead of in a handler. The
// first signal calls `on_first` with its number; the second ends the process at once with 128 plus
// its number. Construct it before any other thread, which then inherit the blocked signals.
class SignalThread {
 public:
  explicit SignalThread(std::function<void(int)> on_first);
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  void Loop();

  const std::function<void(int)> on_first_;
  int signals_;  // descriptor that signals arrive on
  int stop_;     // descriptor that the destructor writes to
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_SIGNAL_THREAD_H_
