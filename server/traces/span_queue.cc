#include "server/traces/span_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace annulus::server {
namespace {

constexpr std::chrono::milliseconds kPatience{5'000};
constexpr std::chrono::milliseconds kLastPatience{1'000};

}  // namespace

SpanQueue::SpanQueue(Options options, Send send, std::function<void()> cancel)
    : options_(options),
      send_(std::move(send)),
      cancel_(std::move(cancel)),
      thread_([this] { Loop(); }) {}

SpanQueue::~SpanQueue() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  cancel_();
  thread_.join();
}

void SpanQueue::Add(std::vector<Span> spans) {
  std::lock_guard lock(mutex_);
  const size_t taken = std::min(spans.size(), kMost - waiting_.size());
  const auto end = spans.begin() + static_cast<ptrdiff_t>(taken);
  std::move(spans.begin(), end, std::back_inserter(waiting_));
  counts_.dropped += spans.size() - taken;
  if (taken > 0) wake_.notify_all();
}

SpanQueue::Counts SpanQueue::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

absl::Status SpanQueue::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

void SpanQueue::Loop() {
  std::unique_lock lock(mutex_);
  while (AwaitLocked(lock)) SendLocked(lock, kPatience);
  if (!waiting_.empty() && state_.ok()) SendLocked(lock, kLastPatience);
  counts_.dropped += waiting_.size();
}

// Waits until it is time for a try. Returns false once the queue is to stop.
bool SpanQueue::AwaitLocked(std::unique_lock<std::mutex>& lock) {
  wake_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
  const auto enough = [&] { return stopping_ || (state_.ok() && waiting_.size() >= kMostAtOnce); };
  wake_.wait_for(lock, state_.ok() ? options_.gather : pause_, enough);
  return !stopping_;
}

void SpanQueue::SendLocked(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds most) {
  const size_t count = std::min(waiting_.size(), kMostAtOnce);
  std::vector<Span> spans;
  std::move(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(count),
            std::back_inserter(spans));
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(count));
  lock.unlock();
  absl::Status sent = send_(spans, most);
  lock.lock();
  state_ = std::move(sent);
  if (state_.ok()) {
    counts_.sent += count;
    pause_ = std::chrono::milliseconds(0);
    return;
  }
  pause_ =
      pause_.count() == 0 ? options_.first_pause : std::min(2 * pause_, options_.longest_pause);
  // They go first the next time. Newer ones give way: there was room for these before.
  waiting_.insert(waiting_.begin(), std::make_move_iterator(spans.begin()),
                  std::make_move_iterator(spans.end()));
  if (waiting_.size() <= kMost) return;
  counts_.dropped += waiting_.size() - kMost;
  waiting_.resize(kMost);
}

}  // namespace annulus::server
