#ifndef ANNULUS_TESTS_SUPPORT_COLLECTING_SINK_H_
#define ANNULUS_TESTS_SUPPORT_COLLECTING_SINK_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/api.h"

namespace annulus::testing {

// A sink that keeps everything. Thread-safe.
class CollectingSink : public TokenSink {
 public:
  void OnQueued(int position) override {
    std::lock_guard lock(mutex_);
    queued_.push_back(position);
  }
  void OnProgress(const PromptProgress& progress) override {
    std::lock_guard lock(mutex_);
    progress_.push_back(progress);
    changed_.notify_all();
  }
  void OnDelta(Delta delta) override {
    std::lock_guard lock(mutex_);
    text_ += delta.text;
    ids_.insert(ids_.end(), delta.token_ids.begin(), delta.token_ids.end());
    logprobs_.insert(logprobs_.end(), delta.logprobs.begin(), delta.logprobs.end());
    prompt_logprobs_.insert(prompt_logprobs_.end(), delta.prompt_logprobs.begin(),
                            delta.prompt_logprobs.end());
    evidence_.insert(evidence_.end(), delta.evidence.begin(), delta.evidence.end());
    if (ids_.size() >= full_after_) has_room_ = false;
    changed_.notify_all();
  }
  void OnDone(Completion completion) override {
    std::lock_guard lock(mutex_);
    ++done_calls_;
    completion_ = std::move(completion);
    changed_.notify_all();
  }
  bool HasRoom() const override { return has_room_; }

  // Also ends what set_full_after asked for.
  void set_has_room(bool has_room) {
    std::lock_guard lock(mutex_);
    full_after_ = SIZE_MAX;
    has_room_ = has_room;
  }
  // There is no room any more once so many tokens have come.
  void set_full_after(size_t tokens) {
    std::lock_guard lock(mutex_);
    full_after_ = tokens;
  }

  // Waits for OnDone, at most `seconds`; nothing when it did not come.
  std::optional<Completion> Wait(double seconds = 60) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                      [this] { return completion_.has_value(); });
    return completion_;
  }
  // Waits until the prompt is at least `tokens` along.
  bool WaitProgress(int64_t tokens, double seconds = 60) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] {
      return !progress_.empty() && progress_.back().processed >= tokens;
    });
  }
  // Waits until at least `count` tokens have come.
  bool WaitTokens(size_t count, double seconds = 60) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                             [&] { return ids_.size() >= count; });
  }

  std::string text() const {
    std::lock_guard lock(mutex_);
    return text_;
  }
  std::vector<int32_t> ids() const {
    std::lock_guard lock(mutex_);
    return ids_;
  }
  std::vector<TokenLogprob> logprobs() const {
    std::lock_guard lock(mutex_);
    return logprobs_;
  }
  std::vector<TokenLogprob> prompt_logprobs() const {
    std::lock_guard lock(mutex_);
    return prompt_logprobs_;
  }
  // Of all deltas.
  std::vector<SentenceEvidence> evidence() const {
    std::lock_guard lock(mutex_);
    return evidence_;
  }
  std::vector<PromptProgress> progress() const {
    std::lock_guard lock(mutex_);
    return progress_;
  }
  std::vector<int> queued() const {
    std::lock_guard lock(mutex_);
    return queued_;
  }
  int done_calls() const {
    std::lock_guard lock(mutex_);
    return done_calls_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  std::vector<int32_t> ids_;
  std::vector<TokenLogprob> logprobs_;
  std::vector<TokenLogprob> prompt_logprobs_;
  std::vector<SentenceEvidence> evidence_;
  std::vector<PromptProgress> progress_;
  std::vector<int> queued_;
  std::optional<Completion> completion_;
  int done_calls_ = 0;
  size_t full_after_ = SIZE_MAX;
  std::atomic<bool> has_room_{true};
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_COLLECTING_SINK_H_
