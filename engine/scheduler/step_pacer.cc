#include "engine/scheduler/step_pacer.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace annulus {
namespace {

// No step takes longer, also if streams might wait longer or there are none: soon enough for a
// cancel and for progress twice a second. Unless the streams alone take longer.
constexpr double kStepSeconds = 0.5;
// A stretch ends earlier, for requests that may arrive. More stretches cost little: a chunk reads
// the weights once.
constexpr double kStretchAloneSeconds = 0.15;
// Of a chunk that begins while there are no streams: how long it may take.
constexpr double kChunkAloneSeconds = 2;

constexpr double kRounding = 1e-9;  // of sums of the seconds of layers that are alike

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
  int64_t scored = plan.page_tokens;
  if (costs.has_seen_scores()) scored = std::max(scored, kMostScoredRows);
  StepWork work = rest;
  std::vector<PrefillTurn> turns;
  for (const PromptState& prompt : prompts) {
    const ChunkEnds ends(prompt, plan);
    const auto fits = [&](int32_t end) {
      StepWork all = work;
      all += WorkTo(prompt, end, plan);
      return costs.Predict(all) <= limits.seconds;
    };
    const int64_t most = prompt.attention.scored ? std::min(rows, scored) : rows;
    int32_t end = ends.Within(std::min<int64_t>(most, prompt.prompt_length - prompt.computed));
    if (timed && !fits(end)) {
      int64_t low = 0;  // rows that fit
      for (int64_t high = end - prompt.computed; high - low > 1;) {
        const int64_t middle = (low + high) / 2;
        (fits(static_cast<int32_t>(prompt.computed + middle)) ? low : high) = middle;
      }
      end = ends.Within(low);
    }
    if (end == prompt.computed) {
      // Those behind it need no room among the rows that are scored.
      if (prompt.attention.scored && scored < plan.page_tokens) continue;
      break;
    }
    turns.push_back({prompt.sequence, end});
    rows -= end - prompt.computed;
    if (prompt.attention.scored) scored -= end - prompt.computed;
    if (rows <= 0) break;
    work += WorkTo(prompt, end, plan);
  }
  return turns;
}

StepPacer::StepPacer(double stall_seconds, const PlanLimits& plan)
    : stall_(stall_seconds), plan_(plan), costs_(plan.pairs_in_rows) {
  std::vector<LayerCost> layers = plan.layer_costs;
  LayerCost all;
  for (const LayerCost& layer : layers) all = {all.row + layer.row, all.pair + layer.pair};
  if (all.row <= 0 || std::ssize(layers) != plan.layers) {
    const int alike = std::max(plan.layers - 1, 1);
    layers.assign(static_cast<size_t>(alike), {1, 1});
    layers.resize(static_cast<size_t>(plan.layers));
    all = {1.0 * alike, 1.0 * alike};
  }
  LayerCost sum;
  for (const LayerCost& layer : layers) {
    before_.push_back(sum);
    sum.row += layer.row / all.row;
    sum.pair += all.pair > 0 ? layer.pair / all.pair : layer.row / all.row;
  }
  before_.push_back(sum);
  for (size_t i = 1; i < before_.size(); ++i) {
    longest_ = std::max(
        {longest_, before_[i].row - before_[i - 1].row, before_[i].pair - before_[i - 1].pair});
  }
}

StepPacer::Room StepPacer::RoomBeside(std::span<const StreamRows> streams) const {
  Room room;
  room.streams = !streams.empty();
  room.rest.amount[StepWork::kStep] = 1;
  for (const StreamRows& stream : streams) {
    room.rest += SampledWork(stream.position, stream.position + stream.rows);
  }
  if (stall_ <= 0) return room;
  room.limits.seconds = WithMargin(room.streams ? StallBeside(room) : kStepSeconds);
  room.limits.most_rows = std::max<int64_t>(2 * tried_[room.streams ? 1 : 0], plan_.page_tokens);
  return room;
}

// How long streams may wait.
double StepPacer::StallBeside(const Room& room) const {
  return std::min(stall_, std::max(kStepSeconds, 2 * costs_.Predict(room.rest)));
}

StepPacer::Room StepPacer::RoomFor(const PromptState& prompt,
                                   std::span<const StreamRows> streams) const {
  Room room = RoomBeside(streams);
  // Capacity of a step, regardless of time.
  const int64_t fullest = int64_t{plan_.prefill_rows_per_rank} * prompt.degree;
  room.limits.most_rows =
      room.limits.most_rows > 0 ? std::min(room.limits.most_rows, fullest) : fullest;
  return room;
}

StepChoice StepPacer::Next(std::span<const PromptState> prompts,
                           std::span<const StreamRows> streams, bool after_stretch) const {
  if (prompts.empty() || (after_stretch && !streams.empty())) return {};
  const Room room = RoomBeside(streams);
  const auto suspended =
      std::find_if(prompts.begin(), prompts.end(),
                   [](const PromptState& prompt) { return prompt.suspended_end > 0; });
  StepChoice choice;
  if (suspended != prompts.end()) {
    choice.turns = TurnsAhead({prompts.begin(), suspended}, *suspended, room);
    if (choice.turns.empty()) {
      choice.stretch = Stretched(*suspended, suspended->suspended_end, room);
    }
    return choice;
  }
  const PromptState& first = prompts.front();
  if (!costs_.has_seen(first.attention.kind) && CanSuspend(room)) {
    choice.stretch = {first.sequence, ChunkEnds(first, plan_).Smallest(), 1};
    return choice;
  }
  choice.turns = SolveQuantum(prompts, room.rest, costs_, room.limits, plan_);
  bool ends = false;  // whether a step would complete a prompt besides others
  for (const PromptState& prompt : prompts) {
    const PrefillTurn whole{prompt.sequence, prompt.prompt_length};
    ends = ends || (choice.turns.size() > 1 && std::find(choice.turns.begin(), choice.turns.end(),
                                                         whole) != choice.turns.end());
  }
  if (!choice.turns.empty() && !ends && GainsIfSuspended(first, choice.turns[0].end, room)) {
    choice.turns.clear();
  }
  if (!choice.turns.empty()) return choice;
  if (MaySuspend(first, room)) {
    choice.stretch = Stretched(first, SuspendedEnd(first, room), room);
  } else {
    choice.turns = {{first.sequence, ChunkEnds(first, plan_).Smallest()}};
  }
  return choice;
}

// The first of those before the suspended chunk's prompt that fits into a step and need not wait,
// and who fits with it.
std::vector<PrefillTurn> StepPacer::TurnsAhead(std::span<const PromptState> ahead,
                                               const PromptState& suspended,
                                               const Room& room) const {
  for (size_t i = 0; i < ahead.size(); ++i) {
    auto turns = SolveQuantum(ahead.subspan(i), room.rest, costs_, room.limits, plan_);
    if (turns.empty()) continue;
    if (room.streams || !GainsByWaiting(ahead[i], turns[0].end, suspended, room)) return turns;
  }
  return {};
}

// Whether a prompt that is to be read in steps like the next one, up to `end`, is done sooner if it
// waits for the suspended chunk, and then has large chunks of its own.
bool StepPacer::GainsByWaiting(const PromptState& prompt, int32_t end, const PromptState& suspended,
                               const Room& room) const {
  const double rows = prompt.prompt_length - prompt.computed;
  const double steps = rows / (end - prompt.computed);
  const double chunks = rows / (SuspendedEnd(prompt, room) - prompt.computed);
  const StepWork work = ChunkWork(suspended, suspended.suspended_end);
  const double wait = costs_.Predict(PartOf(work, suspended.layers_done, plan_.layers));
  return (std::ceil(steps) - std::ceil(chunks)) * StepSeconds() > wait;
}

// How long a stretch may take. Where the streams alone need most of the budget, or more, prompts
// still get a quarter of the time.
double StepPacer::StretchSeconds(const Room& room) const {
  if (!room.streams) return WithMargin(kStretchAloneSeconds);
  const double beside = costs_.Predict(room.rest);
  return std::max(room.limits.seconds - beside, beside / 3);
}

bool StepPacer::CanSuspend(const Room& room) const {
  return plan_.suspended_rows_per_rank >= plan_.page_tokens && plan_.layers > 1 &&
         room.limits.seconds > 0;
}

// Whether a chunk of the prompt is suspended if not even a page fits into the step. If the
// page takes no longer than a stretch may, it goes with the streams: weights are read once for
// both.
bool StepPacer::MaySuspend(const PromptState& prompt, const Room& room) const {
  if (!CanSuspend(room)) return false;
  if (!room.streams) return true;
  const int32_t page = ChunkEnds(prompt, plan_).Smallest();
  return costs_.Predict(WorkTo(prompt, page, plan_)) > StretchSeconds(room);
}

// Whether a prompt that is read alone is better suspended than read up to `end` in a step, into
// which that fits. It is if the chunk gets more rows so, since every chunk reads all weights, and
// small ones multiply slower; and if it has the same rows and takes longer than a stretch.
bool StepPacer::GainsIfSuspended(const PromptState& prompt, int32_t end, const Room& room) const {
  if (room.streams || !CanSuspend(room)) return false;
  const int32_t suspended = SuspendedEnd(prompt, room);
  if (end != suspended) return end < suspended;
  StepWork work = WorkTo(prompt, end, plan_);
  work += room.rest;
  return costs_.Predict(work) > StretchSeconds(room);
}

// The end of the largest chunk of which a layer fits into a stretch beside streams, or beside those
// that may come, and which takes no longer than such a chunk may; at least a page. How many rows
// were tried before matters little: the layers of later stretches are chosen by what the first
// took.
int32_t StepPacer::SuspendedEnd(const PromptState& prompt, const Room& room) const {
  Room beside = room;
  beside.streams = true;
  beside.limits.seconds = WithMargin(StallBeside(beside));
  const double stretch = StretchSeconds(beside);
  QuantumLimits limits;
  limits.seconds = room.streams ? kMostStretches * stretch : WithMargin(kChunkAloneSeconds);
  limits.most_rows = std::min(std::max(room.limits.most_rows, 2 * tried_[0]),
                              int64_t{plan_.suspended_rows_per_rank} * prompt.degree);
  StepWork step;
  step.amount[StepWork::kStep] = 1;
  auto turns = SolveQuantum({&prompt, 1}, step, costs_, limits, plan_);
  if (!turns.empty() && LongestLayer(ChunkWork(prompt, turns[0].end)) > stretch) {
    limits.seconds = std::min(limits.seconds, stretch / longest_);
    limits.most_rows = std::min(limits.most_rows, ScoredWithin(prompt, stretch));
    turns = SolveQuantum({&prompt, 1}, step, costs_, limits, plan_);
  }
  return turns.empty() ? ChunkEnds(prompt, plan_).Smallest() : turns[0].end;
}

// How many rows of the prompt can be scored in this time, all of them at once.
int64_t StepPacer::ScoredWithin(const PromptState& prompt, double seconds) const {
  if (!prompt.attention.scored) return std::numeric_limits<int32_t>::max();
  StepWork row;
  row.amount[StepWork::kScored] = 1;
  const double each = costs_.Predict(row);
  return each > 0 ? static_cast<int64_t>(std::clamp(seconds / each, 1.0, 1e9)) : kMostScoredRows;
}

StepWork StepPacer::ChunkWork(const PromptState& prompt, int32_t end) const {
  StepWork work = WorkTo(prompt, end, plan_);
  work.amount[StepWork::kStep] = 1;
  return work;
}

// The first end of which the layers from `first` on take as long as `wanted`, or else the last one
// with which they take no longer than `most`; at least one layer.
int StepPacer::Cut(const StepWork& work, int first, double wanted, double most) const {
  const auto seconds = [&](int end) { return costs_.Predict(PartOf(work, first, end)); };
  int end = first + 1;
  while (end < plan_.layers && seconds(end) < wanted && seconds(end + 1) <= most) ++end;
  // Layers that take no time go with the others.
  return PartOf(work, end, plan_.layers).amount[StepWork::kStep] > 0 ? end : plan_.layers;
}

// How many stretches a chunk needs from this layer on.
int StepPacer::StretchesFrom(const StepWork& work, int first, double most) const {
  int stretches = 0;
  for (int layer = first; layer < plan_.layers; ++stretches) layer = Cut(work, layer, most, most);
  return stretches;
}

// As many layers as fit into a stretch, at least one; what is left is cut evenly.
StretchTurn StepPacer::Stretched(const PromptState& prompt, int32_t end, const Room& room) const {
  const StepWork work = ChunkWork(prompt, end);
  const int first = prompt.layers_done;
  const double most = StretchSeconds(room) * (1 + kRounding);
  const int stretches = StretchesFrom(work, first, most);
  if (stretches == 1) return {prompt.sequence, end, plan_.layers};
  const double left = costs_.Predict(PartOf(work, first, plan_.layers));
  return {prompt.sequence, end, Cut(work, first, left / stretches * (1 - kRounding), most)};
}

// Every layer reads its weights and works on its rows; pairs are those of layers with full
// attention. Scores come behind the last layer.
StepWork StepPacer::PartOf(const StepWork& work, int first, int end) const {
  const LayerCost& begin = before_[static_cast<size_t>(first)];
  const LayerCost& after = before_[static_cast<size_t>(end)];
  StepWork part = work;
  for (int i = 0; i < StepWork::kFeatures; ++i) {
    const bool pairs = i >= StepWork::kDensePairs && i <= StepWork::kContentPairs;
    part.amount[i] *= pairs ? after.pair - begin.pair : after.row - begin.row;
  }
  part.amount[StepWork::kScored] = end == plan_.layers ? work.amount[StepWork::kScored] : 0;
  return part;
}

double StepPacer::LongestLayer(const StepWork& work) const {
  double longest = 0;
  for (int layer = 0; layer < plan_.layers; ++layer) {
    longest = std::max(longest, costs_.Predict(PartOf(work, layer, layer + 1)));
  }
  return longest;
}

double StepPacer::SecondsBeside(PromptState prompt, std::span<const StreamRows> streams) const {
  if (costs_.steps() == 0) return 0;
  const Room room = RoomFor(prompt, streams);
  const int64_t begin = prompt.computed;
  const int64_t end = prompt.prompt_length;
  double seconds = 0;
  for (int look = 1; look <= kLooks && prompt.computed < end; ++look) {
    const int64_t until = begin + (end - begin) * look / kLooks;
    const Pace pace = PaceOf(prompt, room);
    const int64_t rows = pace.end - prompt.computed;
    // Steps of about this size up to there, each at the depth of the middle one.
    const int64_t steps = std::max<int64_t>(1, (until - prompt.computed + rows / 2) / rows);
    const int64_t after = std::min(end, prompt.computed + steps * rows);
    StepWork work = PromptWork(prompt.computed, static_cast<int32_t>(after), prompt.attention,
                               prompt.degree, plan_);
    for (int64_t step = 0; step < steps; ++step) work += pace.beside;
    if (after == end) work.amount[StepWork::kSampled] += 1;
    seconds += costs_.Predict(work);
    prompt.computed = static_cast<int32_t>(after);
  }
  return seconds;
}

// The prompt's next chunk as Next would choose it, with no other prompt there.
StepPacer::Pace StepPacer::PaceOf(const PromptState& prompt, const Room& room) const {
  const auto turns = SolveQuantum({&prompt, 1}, room.rest, costs_, room.limits, plan_);
  if (!turns.empty() && !GainsIfSuspended(prompt, turns[0].end, room)) {
    return {turns[0].end, room.rest};
  }
  if (!MaySuspend(prompt, room)) return {ChunkEnds(prompt, plan_).Smallest(), room.rest};
  Pace pace;
  pace.end = SuspendedEnd(prompt, room);
  pace.beside.amount[StepWork::kStep] = 1;
  if (!room.streams) return pace;
  const double most = StretchSeconds(room) * (1 + kRounding);
  const int stretches = StretchesFrom(ChunkWork(prompt, pace.end), 0, most);
  for (int i = 0; i < stretches; ++i) pace.beside += room.rest;
  return pace;
}

void StepPacer::Took(const StepPlan& plan, std::span<const RowAttention> attention, int streams,
                     double seconds) {
  StepWork work = WorkOf(plan, attention, plan_.ranks);
  const auto rows = static_cast<int64_t>(work.amount[StepWork::kRows]);
  if (plan.stretch.has_value()) {
    work = PartOf(work, plan.stretch->first_layer, plan.stretch->end_layer);
  }
  if (work.amount[StepWork::kStep] > 0) costs_.Learn(work, seconds);
  int64_t& tried = tried_[streams > 0 ? 1 : 0];
  tried = std::max(tried, rows);
  for (const PlanItem& item : plan.items) {
    if (item.sampled) continue;
    StepWork smallest = EvenWork(item.end, item.end + plan_.page_tokens, AttentionClass::kDense);
    smallest.amount[StepWork::kFullest] *= plan_.ranks;  // a page lies on one of them
    smallest.amount[StepWork::kStep] = 1;
    smallest_ =
        plan_.suspended_rows_per_rank > 0 ? LongestLayer(smallest) : costs_.Predict(smallest);
  }
}

double StepPacer::PromptSeconds(const PromptState& prompt, int32_t begin, int32_t end) const {
  if (costs_.steps() == 0) return (end - begin) * kSecondsOfARow;
  return costs_.Predict(PromptWork(begin, end, prompt.attention, prompt.degree, plan_));
}

double StepPacer::PromptSeconds(const PromptState& prompt, int32_t begin, int32_t end,
                                const Stretch& layers) const {
  if (costs_.steps() == 0) return (end - begin) * kSecondsOfARow * StepPart(layers);
  const StepWork work = PromptWork(begin, end, prompt.attention, prompt.degree, plan_);
  return costs_.Predict(PartOf(work, layers.first_layer, layers.end_layer));
}

double StepPacer::StepPart(const Stretch& layers) const {
  StepWork step;
  step.amount[StepWork::kStep] = 1;
  return PartOf(step, layers.first_layer, layers.end_layer).amount[StepWork::kStep];
}

double StepPacer::StepSeconds() const {
  StepWork step;
  step.amount[StepWork::kStep] = 1;
  return costs_.Predict(step);
}

double StepPacer::StepSecondsLeft(const PromptState& prompt,
                                  std::span<const StreamRows> streams) const {
  if (prompt.computed >= prompt.prompt_length) return 0;
  const int32_t end = PaceOf(prompt, RoomFor(prompt, streams)).end;
  const double chunk = PromptSeconds(prompt, prompt.computed, end);
  if (chunk <= 0) return 0;
  return StepSeconds() * PromptSeconds(prompt, prompt.computed, prompt.prompt_length) / chunk;
}

}  // namespace annulus
