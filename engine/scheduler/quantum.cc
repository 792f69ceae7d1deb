#include "engine/scheduler/quantum.h"

#include <algorithm>
#include <limits>

namespace annulus {
namespace {

// With no stream to keep waiting, a step may take this: as good as the fastest, and soon enough for
// a cancel, for progress twice a second, and for whoever comes next.
constexpr double kAloneSeconds = 0.5;

// Where nothing is known yet.
constexpr double kSecondsOfARow = 1e-3;

// The chunk ends that a prompt may have, by number: 0 is where it stands.
class ChunkEnds {
 public:
  ChunkEnds(const PromptState& prompt, const PlanLimits& plan)
      : prompt_(prompt), page_(plan.page_tokens), stripe_(RoundTokens(prompt.degree, plan)) {}

  // Of at most `rows` rows; `computed` if not even a page ends there.
  int32_t Within(int64_t rows) const {
    const int64_t most = prompt_.computed + rows;
    if (most >= prompt_.prompt_length) return prompt_.prompt_length;
    const int64_t round = most / stripe_ * stripe_;
    if (round > prompt_.computed) return static_cast<int32_t>(round);
    return static_cast<int32_t>(std::max<int64_t>(most / page_ * page_, prompt_.computed));
  }
  int32_t Smallest() const {
    const int64_t end = (int64_t{prompt_.computed} / page_ + 1) * page_;
    return static_cast<int32_t>(std::min<int64_t>(end, prompt_.prompt_length));
  }

 private:
  const PromptState& prompt_;
  const int64_t page_;
  const int64_t stripe_;
};

StepWork WorkTo(const PromptState& prompt, int32_t end, const PlanLimits& plan) {
  StepWork work = PromptWork(prompt.computed, end, prompt.attention, prompt.degree, plan);
  if (end == prompt.prompt_length) work.amount[StepWork::kSampled] += 1;
  return work;
}

}  // namespace

std::vector<PrefillTurn> SolveQuantum(std::span<const PromptState> prompts, const StepWork& rest,
                                      const StepCostModel& costs, const QuantumLimits& limits,
                                      const PlanLimits& plan) {
  const bool timed = limits.seconds > 0;
  int64_t rows = limits.most_rows > 0 ? limits.most_rows : std::numeric_limits<int32_t>::max();
  StepWork work = rest;
  std::vector<PrefillTurn> turns;
  for (const PromptState& prompt : prompts) {
    const ChunkEnds ends(prompt, plan);
    const auto fits = [&](int32_t end) {
      StepWork all = work;
      all += WorkTo(prompt, end, plan);
      return costs.Predict(all) <= limits.seconds;
    };
    int32_t end = ends.Within(std::min<int64_t>(rows, prompt.prompt_length - prompt.computed));
    if (timed && !fits(end)) {
      int64_t low = 0;  // rows that fit
      for (int64_t high = end - prompt.computed; high - low > 1;) {
        const int64_t middle = (low + high) / 2;
        (fits(static_cast<int32_t>(prompt.computed + middle)) ? low : high) = middle;
      }
      end = ends.Within(low);
    }
    if (end == prompt.computed) {
      if (!turns.empty()) break;
      end = ends.Smallest();
    }
    turns.push_back({prompt.sequence, end});
    rows -= end - prompt.computed;
    if (rows <= 0) break;
    work += WorkTo(prompt, end, plan);
  }
  return turns;
}

std::vector<PrefillTurn> StepPacer::Turns(std::span<const PromptState> prompts,
                                          std::span<const int32_t> streams) const {
  StepWork rest;
  rest.amount[StepWork::kStep] = 1;
  for (const int32_t position : streams) rest += SampledWork(position, position + 1);
  return SolveQuantum(prompts, rest, costs_, LimitsBeside(!streams.empty()), plan_);
}

QuantumLimits StepPacer::LimitsBeside(bool streams) const {
  QuantumLimits limits;
  if (stall_ <= 0) return limits;
  limits.seconds = streams ? stall_ / (1 + costs_.margin()) : std::max(kAloneSeconds, stall_);
  limits.most_rows = std::max<int64_t>(2 * tried_[streams ? 1 : 0], plan_.page_tokens);
  return limits;
}

double StepPacer::SecondsBeside(PromptState prompt, std::span<const int32_t> streams) const {
  if (costs_.steps() == 0) return 0;
  StepWork rest;
  rest.amount[StepWork::kStep] = 1;
  for (const int32_t position : streams) rest += SampledWork(position, position + 1);
  QuantumLimits limits = LimitsBeside(!streams.empty());
  // What a step has room for, whatever the time.
  const int64_t room = int64_t{plan_.prefill_rows_per_rank} * prompt.degree;
  limits.most_rows = limits.most_rows > 0 ? std::min(limits.most_rows, room) : room;
  const int64_t begin = prompt.computed;
  const int64_t end = prompt.prompt_length;
  double seconds = 0;
  for (int look = 1; look <= kLooks && prompt.computed < end; ++look) {
    const int64_t until = begin + (end - begin) * look / kLooks;
    const int32_t chunk = SolveQuantum({&prompt, 1}, rest, costs_, limits, plan_)[0].end;
    const int64_t rows = chunk - prompt.computed;
    // Steps of about this size up to there, each at the depth of the middle one.
    const int64_t steps = std::max<int64_t>(1, (until - prompt.computed + rows / 2) / rows);
    const int64_t after = std::min(end, prompt.computed + steps * rows);
    StepWork work = PromptWork(prompt.computed, static_cast<int32_t>(after), prompt.attention,
                               prompt.degree, plan_);
    for (int64_t step = 0; step < steps; ++step) work += rest;
    if (after == end) work.amount[StepWork::kSampled] += 1;
    seconds += costs_.Predict(work);
    prompt.computed = static_cast<int32_t>(after);
  }
  return seconds;
}

void StepPacer::Took(const StepPlan& plan, std::span<const AttentionClass> attention, int streams,
                     double seconds) {
  const StepWork work = WorkOf(plan, attention, plan_.ranks);
  costs_.Learn(work, seconds);
  const auto rows = static_cast<int64_t>(work.amount[StepWork::kRows]);
  int64_t& tried = tried_[streams > 0 ? 1 : 0];
  tried = std::max(tried, rows);
  for (const PlanItem& item : plan.items) {
    if (item.sampled) continue;
    StepWork smallest = EvenWork(item.end, item.end + plan_.page_tokens, AttentionClass::kDense);
    smallest.amount[StepWork::kStep] = 1;
    smallest_ = costs_.Predict(smallest);
  }
}

double StepPacer::PromptSeconds(const PromptState& prompt, int32_t begin, int32_t end) const {
  if (costs_.steps() == 0) return (end - begin) * kSecondsOfARow;
  return costs_.Predict(PromptWork(begin, end, prompt.attention, prompt.degree, plan_));
}

}  // namespace annulus
