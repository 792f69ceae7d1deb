#include "client/cli/ask/ask_many.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "client/failure.h"

namespace annulus::client {
namespace {

constexpr int kTries = 6;
constexpr std::chrono::milliseconds kShortestWait{20};
constexpr std::chrono::milliseconds kLongestWait{30000};
constexpr std::chrono::milliseconds kTick{200};

constexpr std::chrono::milliseconds kBackSoon{1000};

class Pool {
 public:
  Pool(Session& session, const std::vector<v1::GenerationSpec>& requests,
       const AskManyOptions& options)
      : session_(session),
        requests_(requests),
        options_(options),
        first_answers_(!options.first_alone),
        reached_(options.served_before),
        read_(options.tokens.size(), 0),
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
    // Pass on the answers that were complete before the stop: they are paid for.
    for (Asked& asked : ended_) {
      if (!status.ok() && asked.generation.status.ok()) take(std::move(asked));
    }
    session_.progress().Clear();
    return status;
  }

 private:
  // Observes one try of a request: records that the server has taken it, and when its answer
  // begins.
  class Serving : public GenerationObserver {
   public:
    Serving(Pool& pool, size_t index) : pool_(pool), index_(index) {}
    ~Serving() override {
      const std::lock_guard lock(pool_.mutex_);
      if (served_) --pool_.served_;
      pool_.changed_.notify_all();
    }
    void OnQueued(const v1::Queued& /*queued*/) override { Note(false); }
    void OnProgress(const v1::PromptProgress& progress) override {
      Note(false);
      if (progress.total() > 0) {
        pool_.NoteRead(index_, static_cast<double>(progress.processed()) /
                                   static_cast<double>(progress.total()));
      }
    }
    void OnDelta(const v1::Delta& /*delta*/) override { Note(true); }
    bool served() const { return served_; }

   private:
    void Note(bool answers) {
      if (served_ && (answers_ || !answers)) return;
      const std::lock_guard lock(pool_.mutex_);
      if (!served_) ++pool_.served_;
      served_ = true;
      answers_ = answers;
      pool_.reached_ = true;
      pool_.first_answers_ = pool_.first_answers_ || answers;
      pool_.changed_.notify_all();
    }

    Pool& pool_;
    const size_t index_;
    bool served_ = false;
    bool answers_ = false;
  };

  void Work() {
    for (;;) {
      size_t index;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopped_ || next_ == 0 || first_answers_; });
        if (stopped_ || next_ == requests_.size()) return;
        index = next_++;
      }
      Asked asked{index, Try(index)};
      const std::lock_guard lock(mutex_);
      first_answers_ = true;  // in case the first request ended without an answer
      if (!read_.empty()) read_[index] = options_.tokens[index];
      ended_.push_back(std::move(asked));
      changed_.notify_all();
    }
  }

  // `share` of the prompt of request `index` is read.
  void NoteRead(size_t index, double share) {
    const std::lock_guard lock(mutex_);
    if (read_.empty()) return;
    read_[index] = std::llround(share * static_cast<double>(options_.tokens[index]));
  }

  // How long to wait before the next try after this status; nullopt: do not retry.
  std::optional<std::chrono::milliseconds> BackAfter(const grpc::Status& status) {
    const auto told = RetryDelay(status);
    if (told.has_value()) return std::clamp(*told, kShortestWait, kLongestWait);
    const std::lock_guard lock(mutex_);
    const bool lost = reached_ && status.error_code() == grpc::StatusCode::UNAVAILABLE;
    return lost ? std::optional(kBackSoon) : std::nullopt;
  }

  Generation Try(size_t index) {
    for (int tried = 0;;) {
      std::optional<Generation> generation;
      bool was_served = false;
      {
        Serving serving(*this, index);
        generation = StreamGenerate(session_.connection(), requests_[index], serving);
        was_served = serving.served();
      }
      const auto wait = BackAfter(generation->status);
      if (!wait.has_value()) return *std::move(generation);
      std::unique_lock lock(mutex_);
      // Other requests of this pool may hold the places that this one needs. Retry early when one
      // of them ends, and count a try only if none is being served.
      const int served = served_;
      if ((was_served || served == 0) && ++tried == kTries) return *std::move(generation);
      changed_.wait_for(lock, *wait, [&] { return stopped_ || served_ < served; });
      if (stopped_) return *std::move(generation);
    }
  }

  // Passes answers on until all requests have ended, or one failure ends them all.
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
    if (options_.tokens.empty()) {
      sample.unit = ProgressSample::Unit::kItems;
      sample.cached = options_.done_before;
      sample.done = options_.done_before + done;
      sample.total = options_.done_before + static_cast<int64_t>(requests_.size());
    } else {
      const std::lock_guard lock(mutex_);
      sample.done = std::accumulate(read_.begin(), read_.end(), int64_t{0});
      sample.total = std::accumulate(options_.tokens.begin(), options_.tokens.end(), int64_t{0});
    }
    sample.elapsed =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    session_.progress().Show(sample);
  }

  Session& session_;
  const std::vector<v1::GenerationSpec>& requests_;
  const AskManyOptions& options_;
  bool first_answers_;  // the others may start; guarded by mutex_, as are the fields below it
  bool reached_;        // the server has taken at least one request
  std::vector<int64_t> read_;  // with options.tokens, tokens that are read, by request
  const std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t next_ = 0;
  int served_ = 0;  // requests that the server has taken and that have not ended
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

}  // namespace annulus::client
