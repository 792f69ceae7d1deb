#ifndef ANNULUS_CLIENT_CLI_INTERRUPT_H_
#define ANNULUS_CLIENT_CLI_INTERRUPT_H_

#include <termios.h>

#include <optional>
#include <thread>

#include "client/cancellation.h"

namespace annulus::client {

// During its lifetime, turns SIGINT (Ctrl-C) into a cancellation. If no call is in flight, or at
// the second signal, restores the terminal to its state at construction and ends the process with
// exit code 130. Create it before any other thread: it blocks the signal in the calling thread, and
// later threads inherit that.
class InterruptHandler {
 public:
  explicit InterruptHandler(Cancellation& cancellation);
  ~InterruptHandler();
  InterruptHandler(const InterruptHandler&) = delete;
  InterruptHandler& operator=(const InterruptHandler&) = delete;

 private:
  void Watch(Cancellation& cancellation);
  [[noreturn]] void Leave();

  std::optional<termios> terminal_;  // at standard input
  int signal_fd_;
  int stop_fd_;
  std::thread thread_;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_INTERRUPT_H_
