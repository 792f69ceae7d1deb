#include "server/process/signal_thread.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "kernels/base/check.h"

namespace annulus::server {
namespace {

sigset_t Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
  return set;
}

}  // namespace

SignalThread::SignalThread(std::function<void(int)> on_stop, std::function<void(int)> on_other)
    : on_stop_(std::move(on_stop)), on_other_(std::move(on_other)) {
  const sigset_t set = Signals();
  ANNULUS_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0) << "cannot block signals";
  signals_ = signalfd(-1, &set, SFD_CLOEXEC);
  stop_ = eventfd(0, EFD_CLOEXEC);
  ANNULUS_CHECK(signals_ >= 0 && stop_ >= 0) << "cannot open signal descriptors: " << errno;
  thread_ = std::thread([this] { Loop(); });
}

SignalThread::~SignalThread() {
  const uint64_t one = 1;
  ANNULUS_CHECK(write(stop_, &one, sizeof(one)) == sizeof(one)) << "cannot wake the signal thread";
  thread_.join();
  close(signals_);
  close(stop_);
}

void SignalThread::Loop() {
  bool first = true;
  for (;;) {
    pollfd descriptors[] = {{signals_, POLLIN, 0}, {stop_, POLLIN, 0}};
    if (poll(descriptors, 2, -1) < 0) continue;  // only EINTR can happen
    if (descriptors[1].revents != 0) return;
    signalfd_siginfo info;
    if (read(signals_, &info, sizeof(info)) != sizeof(info)) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal != SIGTERM && signal != SIGINT) {
      on_other_(signal);
      continue;
    }
    if (!first) _exit(128 + signal);
    first = false;
    on_stop_(signal);
  }
}

}  // namespace annulus::server
