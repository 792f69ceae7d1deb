#include "engine/runner/step_rows.h"

namespace annulus {

StepRows::StepRows(const StepPlan& plan, int rank) {
  for (const PlanItem& item : plan.items) {
    item_first.push_back(count());
    for (const RowRun& run : item.runs) {
      if (run.rank != rank) continue;
      for (int32_t p = run.first_position; p < run.first_position + run.count; ++p) {
        positions.push_back(p);
        tokens.push_back(item.tokens[p - item.begin]);
      }
    }
    if (NeedsLastLayer(item)) active = count();
  }
}

}  // namespace annulus
