#ifndef ANNULUS_BENCH_MODEL_BENCH_SINK_H_
#define ANNULUS_BENCH_MODEL_BENCH_SINK_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/api.h"

namespace annulus::bench {

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
    ids_.insert(ids_.end(), delta.token_ids.begin(), delta.token_ids.end());
  }
  void OnDone(Completion completion) override {
    std::lock_guard lock(mutex_);
    completion_ = std::move(completion);
    done_.notify_all();
  }
  bool HasRoom() const override { return true; }

  // Waits up to `wait` for the end of the request; nullopt if it has not ended.
  std::optional<Completion> WaitFor(std::chrono::milliseconds wait) {
    std::unique_lock lock(mutex_);
    done_.wait_for(lock, wait, [this] { return completion_.has_value(); });
    return completion_;
  }
  int64_t processed() const {
    std::lock_guard lock(mutex_);
    return processed_;
  }
  // The ids generated so far.
  std::vector<int32_t> ids() const {
    std::lock_guard lock(mutex_);
    return ids_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable done_;
  int64_t processed_ = 0;
  std::vector<int32_t> ids_;
  std::optional<Completion> completion_;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_BENCH_SINK_H_
