#ifndef ANNULUS_TESTS_SUPPORT_PROMPT_PLAN_H_
#define ANNULUS_TESTS_SUPPORT_PROMPT_PLAN_H_

#include <cstdint>
#include <memory>

#include "engine/runner/rank_model.h"
#include "engine/state/step_plan.h"

namespace annulus::testing {

// A step with the whole prompt of a sequence that has a page of each cache group on each rank, and
// whose last row gives logits. Sequences 1, 2, .. have pages of their own.
inline std::shared_ptr<const StepPlan> PromptPlan(const RankModel& model, int ranks,
                                                  int32_t sequence = 1) {
  const int32_t page = model.page_shape.page_tokens;
  const auto groups = static_cast<int32_t>(model.groups.size());
  StepPlan plan;
  SequenceUpdate& update = plan.updates.emplace_back();
  update.sequence = static_cast<SequenceId>(sequence);
  update.version = 1;
  update.terms.emplace().version = 1;
  update.tables.resize(model.groups.size());
  PlanItem& item = plan.items.emplace_back();
  item.sequence = update.sequence;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    update.terms->ring.push_back(rank);
    for (int32_t group = 0; group < groups; ++group) {
      update.tables[group].append.push_back({rank, (sequence - 1) * groups + group, rank * page});
    }
    item.runs.push_back({rank, rank * page, page});
  }
  item.end = ranks * page;
  for (int32_t i = 0; i < item.end; ++i) item.tokens.push_back(33 + (7 * i + sequence) % 90);
  item.logits_positions = {item.end - 1};
  return std::make_shared<const StepPlan>(plan);
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_PROMPT_PLAN_H_
