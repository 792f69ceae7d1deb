#ifndef ANNULUS_BENCH_MODEL_BENCH_SINK_H_
#define ANNULUS_BENCH_MODEL_BENCH_SINK_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "engine/api.h"

namespace annulus {

// Follows one request. Thread-safe.
class BenchSink final : public TokenSink {
 public:
  void OnQueued(int) override {}
  void OnProgress(const PromptProgress& progress) override {
    std::lock_guard lock(mutex_);
    processed_ = progress.processed;
  }
  void OnDelta(Delta delta) override {
    std::lock_guard lock(mutex_);
    generated_ += static_cast<int64_t>(delta.token_ids.size());
  }
  void OnDone(Completion completion) override {
    std::lock_guard lock(mutex_);
    completion_ = std::move(completion);
    done_.notify_all();
  }
  bool HasRoom() const override { return true; }

  // The end of the request, if it comes in `wait`.
  std::optional<Completion> WaitFor(std::chrono::milliseconds wait) {
    std::unique_lock lock(mutex_);
    done_.wait_for(lock, wait, [this] { return completion_.has_value(); });
    return completion_;
  }
  int64_t processed() const {
    std::lock_guard lock(mutex_);
    return processed_;
  }
  int64_t generated() const {
    std::lock_guard lock(mutex_);
    return generated_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable done_;
  int64_t processed_ = 0;
  int64_t generated_ = 0;
  std::optional<Completion> completion_;
};

}  // namespace annulus

#endif  // ANNULUS_BENCH_MODEL_BENCH_SINK_H_
