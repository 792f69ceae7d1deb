#include "client/cli/ask_many.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "client/failure.h"

namespace annulus {
namespace {

constexpr int kTries = 6;
constexpr std::chrono::milliseconds kLongestWait{30000};
constexpr std::chrono::milliseconds kTick{200};

class Nobody : public GenerationObserver {
 public:
  void OnQueued(const v1::Queued& /*queued*/) override {}
  void OnProgress(const v1::PromptProgress& /*progress*/) override {}
  void OnDelta(const v1::Delta& /*delta*/) override {}
};

class Pool {
 public:
  Pool(Session& session, const std::vector<v1::GenerationSpec>& requests,
       const AskManyOptions& options)
      : session_(session),
        requests_(requests),
        options_(options),
        start_(std::chrono::steady_clock::now()) {}

  grpc::Status Run(const std::function<bool(Asked)>& take) {
    const size_t count =
        std::min(requests_.size(), static_cast<size_t>(std::max(1, options_.concurrency)));
    std::vector<std::thread> threads;
    for (size_t i = 0; i < count; ++i) threads.emplace_back([this] { Work(); });
    const grpc::Status status = Collect(take);
    Stop();
    const bool interrupted = session_.interrupted();
    session_.CancelCalls();
    for (std::thread& thread : threads) thread.join();
    if (!interrupted) session_.ForgetInterruption();
    // What had ended by itself before the stop was paid for, and is kept.
    for (Asked& asked : ended_) {
      if (!status.ok() && asked.generation.status.ok()) take(std::move(asked));
    }
    session_.progress().Clear();
    return status;
  }

 private:
  void Work() {
    for (;;) {
      size_t index;
      {
        const std::lock_guard lock(mutex_);
        if (stopped_ || next_ == requests_.size()) return;
        index = next_++;
      }
      Asked asked{index, Try(requests_[index])};
      const std::lock_guard lock(mutex_);
      ended_.push_back(std::move(asked));
      changed_.notify_all();
    }
  }

  Generation Try(const v1::GenerationSpec& spec) {
    for (int tried = 1;; ++tried) {
      Nobody nobody;
      Generation generation = StreamGenerate(session_.connection(), spec, nobody);
      const auto wait = RetryDelay(generation.status);
      if (!wait.has_value() || tried == kTries) return generation;
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, std::min(*wait, kLongestWait), [&] { return stopped_; })) {
        return generation;
      }
    }
  }

  // Until all have ended, or one ends all.
  grpc::Status Collect(const std::function<bool(Asked)>& take) {
    for (size_t taken = 0; taken < requests_.size();) {
      Show(static_cast<int64_t>(taken));
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kTick, [&] { return !ended_.empty(); });
      if (session_.interrupted()) return {grpc::StatusCode::CANCELLED, "interrupted"};
      if (ended_.empty()) continue;
      Asked asked = std::move(ended_.front());
      ended_.pop_front();
      lock.unlock();
      const grpc::Status status = asked.generation.status;
      if (IsForAll(status)) return status;
      if (!take(std::move(asked))) return grpc::Status::OK;
      ++taken;
    }
    Show(static_cast<int64_t>(requests_.size()));
    return grpc::Status::OK;
  }

  void Stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

  void Show(int64_t done) {
    ProgressSample sample;
    sample.phase = options_.phase;
    sample.unit = ProgressSample::Unit::kItems;
    sample.cached = options_.done_before;
    sample.done = options_.done_before + done;
    sample.total = options_.done_before + static_cast<int64_t>(requests_.size());
    sample.elapsed =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    session_.progress().Show(sample);
  }

  Session& session_;
  const std::vector<v1::GenerationSpec>& requests_;
  const AskManyOptions& options_;
  const std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t next_ = 0;
  bool stopped_ = false;
  std::deque<Asked> ended_;
};

}  // namespace

bool IsForAll(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNIMPLEMENTED:
      return true;
    default:
      return false;
  }
}

grpc::Status AskMany(Session& session, const std::vector<v1::GenerationSpec>& requests,
                     const AskManyOptions& options, const std::function<bool(Asked)>& take) {
  return Pool(session, requests, options).Run(take);
}

}  // namespace annulus
