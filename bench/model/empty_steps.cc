#include "bench/model/empty_steps.h"

#include <chrono>
#include <memory>
#include <vector>

#include "bench/report/statistics.h"
#include "engine/base/clock.h"
#include "engine/state/step_plan.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {

absl::StatusOr<double> EmptyStepSeconds(RankPort& ranks) {
  constexpr int kWarmUp = 20;
  constexpr int kSteps = 500;
  const auto plan = std::make_shared<const StepPlan>();
  std::vector<double> seconds;
  for (int step = 0; step < kWarmUp + kSteps; ++step) {
    const SteadyTime start = std::chrono::steady_clock::now();
    ANNULUS_RETURN_IF_ERROR(ranks.Run(plan).status());
    if (step < kWarmUp) continue;
    seconds.push_back(SecondsBetween(start, std::chrono::steady_clock::now()));
  }
  return Median(seconds);
}

}  // namespace annulus::bench
