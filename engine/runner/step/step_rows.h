#ifndef ANNULUS_ENGINE_RUNNER_STEP_STEP_ROWS_H_
#define ANNULUS_ENGINE_RUNNER_STEP_STEP_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/runner/rank_state.h"
#include "engine/state/step_plan.h"

namespace annulus {

// The rows of a step that one rank computes, item by item in the plan's order: its own rows.
struct StepRows {
  // `state`: of the rank, with the plan's updates applied.
  StepRows(const StepPlan& plan, const RankState& state);

  std::vector<int32_t> tokens;      // [own row]
  std::vector<int32_t> positions;   // [own row]
  std::vector<int64_t> item_first;  // [plan item] first own row
  int64_t active = 0;               // own rows that need the last layer: a prefix

  int64_t count() const { return static_cast<int64_t>(positions.size()); }
  // The own row after those of a plan item.
  int64_t item_end(size_t item) const {
    return item + 1 < item_first.size() ? item_first[item + 1] : count();
  }
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_STEP_STEP_ROWS_H_
