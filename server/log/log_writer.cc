#include "server/log/log_writer.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace annulus::server {
namespace {

constexpr int kPollMs = 100;

// Writes a line. Returns false if the descriptor fails, or if `give_up` returns true.
bool WriteAll(int descriptor, const std::string& line, const std::function<bool()>& give_up) {
  for (size_t done = 0; done < line.size();) {
    if (give_up()) return false;
    const ssize_t size = write(descriptor, line.data() + done, line.size() - done);
    if (size > 0) {
      done += static_cast<size_t>(size);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {  // somebody made it non-blocking
      pollfd target{descriptor, POLLOUT, 0};
      poll(&target, 1, kPollMs);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

struct LogWriter::State {
  State(int descriptor, std::function<std::string(uint64_t)> gap_line)
      : descriptor(descriptor), gap_line(std::move(gap_line)) {}

  void Loop();
  bool Abandoned() {
    std::lock_guard lock(mutex);
    return abandoned;
  }

  const int descriptor;
  const std::function<std::string(uint64_t)> gap_line;
  std::mutex mutex;
  std::condition_variable wake;   // wakes the thread
  std::condition_variable moved;  // `written` has grown, or the thread has ended
  std::deque<std::string> queue;
  size_t queued_bytes = 0;
  uint64_t posted = 0;   // lines that entered the queue
  uint64_t written = 0;  // of these, lines written or lost
  uint64_t dropped = 0;
  uint64_t gap = 0;  // lines dropped because the queue was full, not yet reported
  bool stopping = false;
  bool abandoned = false;  // nobody waits for the thread any more
  bool ended = false;
};

void LogWriter::State::Loop() {
  std::unique_lock lock(mutex);
  for (;;) {
    wake.wait(lock, [this] { return stopping || !queue.empty(); });
    if (queue.empty() || abandoned) break;
    // Lines were dropped when the queue was full, so the gap comes after all of these lines.
    std::deque<std::string> lines = std::exchange(queue, {});
    const uint64_t count = lines.size();
    queued_bytes = 0;
    const uint64_t missing = std::exchange(gap, 0);
    lock.unlock();
    if (missing > 0) lines.push_back(gap_line(missing));
    uint64_t lost = 0;
    for (const std::string& line : lines) {
      lost += WriteAll(descriptor, line, [this] { return Abandoned(); }) ? 0 : 1;
    }
    lock.lock();
    written += count;
    dropped += lost;
    moved.notify_all();
  }
  ended = true;
  moved.notify_all();
}

LogWriter::LogWriter(int descriptor, std::function<std::string(uint64_t)> gap_line)
    : state_(std::make_shared<State>(descriptor, std::move(gap_line))) {
  // Block all signals on this thread, because it may hang.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_] { state->Loop(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LogWriter::~LogWriter() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->wake.notify_all();
  state_->moved.wait_for(lock, kLongestFarewell, [this] { return state_->ended; });
  state_->abandoned = true;
}

void LogWriter::Post(std::string line) {
  std::lock_guard lock(state_->mutex);
  if (state_->queued_bytes + line.size() > kMostQueuedBytes) {
    ++state_->dropped;
    ++state_->gap;
    return;
  }
  state_->queued_bytes += line.size();
  state_->queue.push_back(std::move(line));
  ++state_->posted;
  state_->wake.notify_all();
}

bool LogWriter::Flush(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  return state_->moved.wait_for(
      lock, limit, [this, target = state_->posted] { return state_->written >= target; });
}

uint64_t LogWriter::dropped() const {
  std::lock_guard lock(state_->mutex);
  return state_->dropped;
}

}  // namespace annulus::server
