#ifndef ANNULUS_CLIENT_CLI_INTERRUPT_H_
#define ANNULUS_CLIENT_CLI_INTERRUPT_H_

#include <termios.h>

#include <optional>
#include <thread>

#include "client/cancellation.h"

namespace annulus {

// Turns SIGINT (Ctrl-C) into cancellation while it lives. With no call in flight, or at the second
// signal, the process ends at once with exit code 130, and the terminal is as it was when this was
// made, whoever edits a line on it. Make it before any other thread is started:
// it blocks the signal in the calling thread, and threads made later inherit that.
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

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_INTERRUPT_H_
