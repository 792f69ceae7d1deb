#include "engine/runner/rank_thread.h"

#include <utility>

#include "kernels/base/check.h"

namespace annulus {

RankThread::RankThread(const RankParts& parts)
    : executor_(parts), thread_([this, stream = parts.stream] {
        stream->BindCaller();
        Loop();
      }) {}

RankThread::~RankThread() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RankThread::Start(std::shared_ptr<const StepPlan> plan) {
  {
    std::lock_guard lock(mutex_);
    ANNULUS_CHECK(plan_ == nullptr && !result_.has_value()) << "a step is still running";
    plan_ = std::move(plan);
  }
  changed_.notify_all();
}

std::optional<RankResult> RankThread::Wait(SteadyTime deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [this] { return result_.has_value(); });
  return std::exchange(result_, std::nullopt);
}

void RankThread::Reset() { executor_.Reset(); }

void RankThread::Loop() {
  while (true) {
    std::shared_ptr<const StepPlan> plan;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || plan_ != nullptr; });
      if (stop_) return;
      plan = plan_;
    }
    RankResult result = executor_.Execute(*plan);
    {
      std::lock_guard lock(mutex_);
      plan_ = nullptr;
      result_ = std::move(result);
    }
    changed_.notify_all();
  }
}

}  // namespace annulus
