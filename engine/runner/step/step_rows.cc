#include "engine/runner/step/step_rows.h"

namespace annulus {

StepRows::StepRows(const StepPlan& plan, const RankState& state) {
  for (const PlanItem& item : plan.items) {
    item_first.push_back(count());
    for (const RowRun& run : item.runs) {
      if (run.rank != state.parts.rank) continue;
      for (int32_t p = run.first_position; p < run.first_position + run.count; ++p) {
        positions.push_back(p);
        const int32_t token = item.tokens[p - item.begin];
        tokens.push_back(token == kLastSampled ? *state.sequences.at(item.sequence).last_sampled
                                               : token);
      }
    }
    if (NeedsLastLayer(item)) active = count();
  }
}

}  // namespace annulus
