#include "engine/workers/worker_steps.h"

#include <memory>
#include <string>
#include <vector>

#include "engine/codec/status_message.h"

namespace annulus {

void WorkerSteps::BeginEpoch(uint64_t epoch) {
  epoch_ = epoch;
  begun_ = 0;
  running_.clear();
  taken_ = 0;
  failed_ = false;
}

absl::Status WorkerSteps::Start(const wire::Run& run) {
  if (run.step() != ++begun_ || running_.size() == 2) return NotDue("a step that is not due");
  if (failed_) return absl::OkStatus();
  absl::StatusOr<StepPlan> plan = DecodePlan(run.plan(), limits_);
  if (!plan.ok()) {
    SayFailed(running_.empty() ? begun_ : running_.front(), plan.status());
    return absl::OkStatus();
  }
  running_.push_back(begun_);
  return ranks_.Start(std::make_shared<const StepPlan>(*std::move(plan)));
}

absl::Status WorkerSteps::SayResults() {
  const absl::StatusOr<std::vector<RankResult>> results = ranks_.Results();
  ++taken_;
  const uint64_t step = running_.front();
  running_.pop_front();
  if (!results.ok()) {
    SayFailed(step, results.status());
    return ranks_.state() == RanksState::kUp ? absl::OkStatus() : results.status();
  }
  wire::FromWorker message;
  wire::StepResult& said = *message.mutable_result();
  said.set_epoch(epoch_);
  said.set_step(step);
  for (const RankResult& result : *results) {
    absl::StatusOr<std::string> bytes = EncodeResult(result, limits_);
    if (!bytes.ok()) {
      SayFailed(step, bytes.status());
      return absl::OkStatus();
    }
    said.add_results(*std::move(bytes));
  }
  say_(message);
  return absl::OkStatus();
}

void WorkerSteps::SayFailed(uint64_t step, const absl::Status& why) {
  wire::FromWorker message;
  message.mutable_result()->set_epoch(epoch_);
  message.mutable_result()->set_step(step);
  *message.mutable_result()->mutable_status() = codec::ToMessage(why);
  say_(message);
  Fail();
}

void WorkerSteps::Fail() {
  failed_ = true;
  running_.clear();
}

}  // namespace annulus
