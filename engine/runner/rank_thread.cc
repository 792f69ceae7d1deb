#include "engine/runner/rank_thread.h"

#include <utility>

#include "kernels/base/check.h"

namespace annulus {

RankThread::RankThread(const RankParts& parts, std::function<void(bool ok)> on_end)
    : clock_(parts.heartbeat->clock()),
      executor_(parts),
      on_end_(std::move(on_end)),
      thread_([this, stream = parts.stream] {
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
    ANNULUS_CHECK(plan_ == nullptr && !results_[1].has_value()) << "a step is still running";
    plan_ = std::move(plan);
  }
  changed_.notify_all();
}

std::optional<RankResult> RankThread::Wait(SteadyTime deadline) {
  std::unique_lock lock(mutex_);
  clock_.WaitUntil(deadline, lock, changed_, [this] { return results_[0].has_value(); });
  return std::exchange(results_[0], std::exchange(results_[1], std::nullopt));
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
    }
    on_end_(result.status.ok());
    {
      std::lock_guard lock(mutex_);
      results_[results_[0].has_value() ? 1 : 0] = std::move(result);
    }
    changed_.notify_all();
  }
}

}  // namespace annulus
