#ifndef ANNULUS_SERVER_TRACES_SPAN_QUEUE_H_
#define ANNULUS_SERVER_TRACES_SPAN_QUEUE_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "server/traces/span.h"

namespace annulus::server {

// Sends spans to a collector on a thread of its own, so that no call waits for it. At most kMost
// spans wait, for as long as the collector is away; what comes then is dropped and counted.
// Thread-safe.
class SpanQueue {
 public:
  static constexpr size_t kMost = 2'048;
  static constexpr size_t kMostAtOnce = 512;

  struct Options {
    std::chrono::milliseconds gather{1'000};       // how long spans wait for others to go with
    std::chrono::milliseconds first_pause{1'000};  // after a failure; doubles with each further one
    std::chrono::milliseconds longest_pause{30'000};
  };
  // Sends at most kMostAtOnce spans, and takes `most` for it at most.
  using Send =
      std::function<absl::Status(const std::vector<Span>& spans, std::chrono::milliseconds most)>;
  struct Counts {
    uint64_t sent = 0;
    uint64_t dropped = 0;
  };

  // `cancel` ends a running `send` early; the destructor calls it.
  SpanQueue(Options options, Send send, std::function<void()> cancel);
  // If the last try went well, takes a second at most to send what waits. Drops the rest.
  ~SpanQueue();
  SpanQueue(const SpanQueue&) = delete;
  SpanQueue& operator=(const SpanQueue&) = delete;

  // Never blocks.
  void Add(std::vector<Span> spans);

  Counts counts() const;
  // Why the last try failed; OK if it did not.
  absl::Status state() const;

 private:
  void Loop();
  // These require mutex_ to be held by `lock`.
  bool AwaitLocked(std::unique_lock<std::mutex>& lock);
  void SendLocked(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds most);

  const Options options_;
  const Send send_;
  const std::function<void()> cancel_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable wake_;
  std::deque<Span> waiting_;
  Counts counts_;
  absl::Status state_;
  std::chrono::milliseconds pause_{0};  // before the next try
  bool stopping_ = false;
  std::thread thread_;  // last member, because it uses all of the above
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_TRACES_SPAN_QUEUE_H_
