#include "client/cli/interrupt.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "client/failure.h"

namespace annulus::client {

InterruptHandler::InterruptHandler(Cancellation& cancellation) {
  termios terminal;
  if (tcgetattr(STDIN_FILENO, &terminal) == 0) terminal_ = terminal;
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this, &cancellation] { Watch(cancellation); });
}

InterruptHandler::~InterruptHandler() {
  eventfd_write(stop_fd_, 1);
  thread_.join();
  close(signal_fd_);
  close(stop_fd_);
}

void InterruptHandler::Watch(Cancellation& cancellation) {
  pollfd descriptors[] = {{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  while (poll(descriptors, 2, -1) >= 0 || errno == EINTR) {
    if (descriptors[1].revents != 0) return;
    if (descriptors[0].revents == 0) continue;
    signalfd_siginfo info;
    if (read(signal_fd_, &info, sizeof(info)) != sizeof(info)) return;
    if (!cancellation.Cancel()) Leave();
  }
}

void InterruptHandler::Leave() {
  // Only the foreground process group may change the terminal: the kernel would stop any other.
  if (terminal_.has_value() && tcgetpgrp(STDIN_FILENO) == getpgrp()) {
    tcsetattr(STDIN_FILENO, TCSANOW, &*terminal_);
  }
  _exit(kExitInterrupted);
}

}  // namespace annulus::client
