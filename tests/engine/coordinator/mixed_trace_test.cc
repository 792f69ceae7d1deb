// Seeded traces that mix all that the loop decides about: priorities, tenants and their clients,
// deadlines, cancels, preemptions, prompts with a beginning in common, guessed tokens, and chunks
// suspended between layers. Over simulated ranks whose steps take time on a virtual clock.
//
// All of a trace happens in the loop's thread: requests come, and are cancelled, while a step
// begins, or when the last one that ran has ended. So a seed is always the same trace.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/coordinator/coordinator.h"
#include "engine/scheduler/answer_length.h"
#include "engine/text/tokenizer.h"
#include "tests/support/manual_clock.h"
#include "tests/support/plain_options.h"
#include "tests/support/simulated_ranks.h"
#include "tests/support/thinned.h"

namespace annulus::testing {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int32_t kTracePage = 16;
constexpr int kTraceLayers = 8;
constexpr int kSharedTokens = 32;  // that prompts may begin with, like others
// A page of a prompt takes longer than the budget, so beside streams it is suspended.
constexpr std::chrono::milliseconds kTraceBudget{20};
constexpr double kStepSeconds = 1e-3;
constexpr double kPromptRowSeconds = 1.5e-3;
constexpr double kSampledRowSeconds = 1e-4;

// A request, in seconds of the trace.
struct TraceJob {
  RequestSpec spec;
  double arrives = 0;
  double deadline = kNever;   // after it has come
  double wanted_by = kNever;  // likewise
  double leaves = kNever;     // when its client cancels it
  // What becomes of it:
  SteadyTime submitted{};
  SteadyTime due = SteadyTime::max();
  SteadyTime ended{};
  bool cancelled = false;
  std::vector<int32_t> ids;
  double last_tokens = 0;  // after it has come
  int64_t gaps = 0;        // between its tokens
  int64_t stalls = 0;      // of them, those longer than the budget
  int dones = 0;           // calls of OnDone
  Completion done;
};

struct TraceShape {
  int ranks = 1;
  int32_t pages = 0;  // of each rank
  std::vector<int32_t> windows = {0};
  int max_running = 0;
  bool ranks_share_machine = false;
  int room = 0;  // tokens of prompt and answer that fit in any case
};

TraceShape MakeShape(std::mt19937& random) {
  TraceShape shape;
  shape.ranks = 1 + static_cast<int>(random() % 2);
  shape.pages = 10 + static_cast<int32_t>(random() % 6);
  shape.room = (shape.pages - 1) * shape.ranks * kTracePage;
  if (random() % 4 == 0) {  // twice the pages for the same tokens
    shape.windows = {0, 40};
    shape.pages *= 2;
  }
  shape.max_running = 2 + static_cast<int>(random() % 6);
  shape.ranks_share_machine = random() % 2 == 0;
  return shape;
}

// Of at most `most` tokens. Its letters are in the order of the alphabet, as those of answers are,
// so guesses are right but where a Q breaks the order.
std::vector<int32_t> MakePrompt(std::mt19937& random, int most) {
  std::vector<int32_t> prompt;
  const auto document = static_cast<int32_t>(random() % 3);
  for (int32_t i = 0; i < kSharedTokens; ++i) prompt.push_back('a' + (document + i) % 26);
  const int own = 1 + static_cast<int>(random() % static_cast<uint32_t>(most - kSharedTokens));
  const auto first = static_cast<int32_t>(random() % 26);
  for (int32_t i = 0; i < own; ++i) prompt.push_back(i % 4 == 3 ? 'Q' : 'a' + (first + i) % 26);
  return prompt;
}

// First so many short answers that the next ones are expected to be short too: they are admitted
// with few pages, and grow.
std::vector<TraceJob> MakeJobs(std::mt19937& random, const TraceShape& shape) {
  constexpr int kShort = AnswerLength::kLeastAnswers;
  constexpr int kOthers = 7;
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const TenantId tenants[] = {TenantId(), TenantId::FromName("a").value(),
                              TenantId::FromName("b").value()};
  std::vector<TraceJob> jobs(kShort + kOthers);
  for (int i = 0; i < kShort + kOthers; ++i) {
    TraceJob& job = jobs[static_cast<size_t>(i)];
    RequestSpec& spec = job.spec;
    spec.sampling.seed = 1;
    if (i < kShort) {
      spec.prompt = {i, 's', 's', 's'};
      spec.sampling.max_tokens = 4;
      continue;
    }
    const int half = shape.room / 2;
    job.arrives = uniform(0.05, 0.8);
    spec.prompt = MakePrompt(random, half);
    spec.shared_prefixes = {kSharedTokens};
    spec.sampling.max_tokens = 1 + static_cast<int>(random() % static_cast<uint32_t>(half));
    spec.tenant = tenants[random() % 3];
    spec.client = std::string(1, static_cast<char>('x' + random() % 2));
    spec.priority = static_cast<int32_t>(random() % 5) - 2;
    if (random() % 2 == 0) spec.speculation = Speculation::kNgram;
    spec.ignore_cache = random() % 8 == 0;
    if (random() % 5 == 0) job.deadline = uniform(0.05, 1);
    if (random() % 5 == 0) job.wanted_by = uniform(0.05, 1);
    if (random() % 6 == 0) job.leaves = job.arrives + uniform(0, 0.5);
  }
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const TraceJob& a, const TraceJob& b) { return a.arrives < b.arrives; });
  return jobs;
}

class MixedTrace {
 public:
  explicit MixedTrace(uint32_t seed)
      : random_(seed),
        shape_(MakeShape(random_)),
        jobs_(MakeJobs(random_, shape_)),
        ranks_(SimulatedRanksOptions{.ranks = shape_.ranks,
                                     .pages = shape_.pages,
                                     .page_tokens = kTracePage,
                                     .group_windows = shape_.windows,
                                     .layers = kTraceLayers,
                                     .on_start = [this](const StepPlan& plan) { OnStart(plan); }}),
        metrics_(shape_.ranks, ModelInfo()) {
    CoordinatorOptions options;
    options.engine = PlainOptions();
    options.limits = SimulatedLimits(shape_.ranks, kTracePage, shape_.windows);
    options.limits.layers = kTraceLayers;
    options.limits.suspended_rows_per_rank = options.limits.prefill_rows_per_rank;
    options.modes.mode = RingMode::kPassKv;
    options.engine.admission = AdmissionMode::kExpected;
    options.engine.max_running = shape_.max_running;
    options.engine.max_waiting = 64;
    options.engine.stall_budget = kTraceBudget;
    options.ranks_share_machine = shape_.ranks_share_machine;
    options.identity = "simulated";
    coordinator_ = std::make_unique<Coordinator>(options, ranks_, metrics_, clock_,
                                                 std::vector<int32_t>{256}, 257);
  }

  // Returns whether all requests have ended, and the loop has nothing to do.
  bool Run() {
    Submit(next_++);  // the first step brings the others
    std::unique_lock lock(mutex_);
    const bool ended =
        changed_.wait_for(lock, std::chrono::seconds(60), [this] { return all_ended_; });
    lock.unlock();
    return ended && clock_.WaitForWaiters(1);
  }

  // After Run.
  const std::vector<TraceJob>& jobs() const { return jobs_; }
  const TraceShape& shape() const { return shape_; }
  const EngineMetrics& metrics() const { return metrics_; }
  Coordinator::Snapshot Look() const { return coordinator_->snapshot(); }
  size_t known_to_ranks() const { return ranks_.known(); }
  int64_t prompt_rows() const { return prompt_rows_; }  // computed, but for sampled ones
  int unbalanced() const { return unbalanced_; }  // steps before which the pages did not add up
  int crowded() const { return crowded_; }        // steps with more requests than may run
  int refused() const { return refused_; }        // requests

 private:
  class Sink final : public TokenSink {
   public:
    Sink(MixedTrace& trace, size_t job) : trace_(trace), job_(job) {}
    void OnQueued(int) override {}
    void OnProgress(const PromptProgress&) override {}
    void OnDelta(Delta delta) override { trace_.OnDelta(trace_.jobs_[job_], delta); }
    void OnDone(Completion done) override { trace_.OnDone(trace_.jobs_[job_], std::move(done)); }
    bool HasRoom() const override { return true; }

   private:
    MixedTrace& trace_;
    const size_t job_;
  };

  static SteadyTime::duration Duration(double seconds) {
    return std::chrono::duration_cast<SteadyTime::duration>(std::chrono::duration<double>(seconds));
  }
  SteadyTime At(double seconds) const { return start_ + Duration(seconds); }

  void Submit(size_t index) {
    TraceJob& job = jobs_[index];
    job.submitted = clock_.Now();
    RequestSpec spec = job.spec;
    if (job.deadline < kNever) spec.deadline = job.due = job.submitted + Duration(job.deadline);
    if (job.wanted_by < kNever) spec.wanted_by = job.submitted + Duration(job.wanted_by);
    ++active_;
    const absl::Status accepted = coordinator_->Submit(std::make_unique<Request>(
        index + 1, std::move(spec), std::make_shared<Sink>(*this, index), *tokenizer_, clock_));
    if (!accepted.ok()) ++refused_;
  }

  void SubmitDue() {
    while (next_ < jobs_.size() && At(jobs_[next_].arrives) <= clock_.Now()) Submit(next_++);
  }

  void CancelDue() {
    for (size_t i = 0; i < next_; ++i) {
      TraceJob& job = jobs_[i];
      if (job.leaves == kNever || job.cancelled || job.dones > 0) continue;
      if (At(job.leaves) > clock_.Now()) continue;
      job.cancelled = true;
      coordinator_->Cancel(i + 1);
    }
  }

  void OnStart(const StepPlan& plan) {
    if (plan.items.empty()) return;  // the ranks only forget who has ended
    clock_.Advance(Duration(SecondsOf(plan)));
    for (const PlanItem& item : plan.items) {
      if (!item.sampled && EndsItsChunks(plan)) prompt_rows_ += item.end - item.begin;
    }
    const Coordinator::Snapshot now = coordinator_->snapshot();
    const bool balanced =
        std::all_of(now.pages.begin(), now.pages.end(), [this](const PageCounts& rank) {
          return rank.total() == shape_.pages && rank.held() >= 0 && rank.cached >= 0 &&
                 rank.free >= 0;
        });
    if (!balanced) ++unbalanced_;
    if (now.running > shape_.max_running) ++crowded_;
    SubmitDue();
    CancelDue();
  }

  // Within a few percent; the last layer takes no time, as StepPacer assumes.
  double SecondsOf(const StepPlan& plan) {
    double seconds = kStepSeconds;
    for (const PlanItem& item : plan.items) {
      seconds += (item.sampled ? kSampledRowSeconds : kPromptRowSeconds) * (item.end - item.begin);
    }
    if (plan.stretch.has_value()) {
      constexpr int kLast = kTraceLayers - 1;
      seconds *= static_cast<double>(std::min(plan.stretch->end_layer, kLast) -
                                     std::min(plan.stretch->first_layer, kLast)) /
                 kLast;
    }
    return seconds * std::exp(std::normal_distribution<double>(0, 0.02)(random_));
  }

  void OnDelta(TraceJob& job, const Delta& delta) {
    if (delta.token_ids.empty()) return;  // the rest of the text
    const double now = SecondsBetween(job.submitted, clock_.Now());
    if (!job.ids.empty()) {
      ++job.gaps;
      if (now - job.last_tokens > std::chrono::duration<double>(kTraceBudget).count()) {
        ++job.stalls;
      }
    }
    job.last_tokens = now;
    job.ids.insert(job.ids.end(), delta.token_ids.begin(), delta.token_ids.end());
  }

  void OnDone(TraceJob& job, Completion done) {
    job.ended = clock_.Now();
    job.done = std::move(done);
    ++job.dones;
    if (--active_ == 0 && next_ < jobs_.size()) {
      const SteadyTime next = At(jobs_[next_].arrives);
      if (next > clock_.Now()) clock_.Advance(next - clock_.Now());
      SubmitDue();
    }
    if (++ended_ < jobs_.size()) return;
    std::lock_guard lock(mutex_);
    all_ended_ = true;
    changed_.notify_all();
  }

  std::mt19937 random_;
  const TraceShape shape_;
  std::vector<TraceJob> jobs_;
  ManualClock clock_;
  const SteadyTime start_ = clock_.Now();
  size_t next_ = 0;  // job to submit
  int active_ = 0;   // submitted and not ended
  size_t ended_ = 0;
  int64_t prompt_rows_ = 0;
  int unbalanced_ = 0;
  int crowded_ = 0;
  int refused_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool all_ended_ = false;
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  SimulatedRanks ranks_;
  EngineMetrics metrics_;
  std::unique_ptr<Coordinator> coordinator_;  // last: it ends before what it uses
};

// Each token is the one of its position, and comes once, whatever happened to the request.
void CheckJob(const TraceJob& job) {
  ASSERT_EQ(job.dones, 1);
  const auto prompt = static_cast<int32_t>(job.spec.prompt.size());
  for (size_t i = 0; i < job.ids.size(); ++i) {
    ASSERT_EQ(job.ids[i], SimulatedRanks::TokenAt(prompt + static_cast<int32_t>(i))) << i;
  }
  // No stall is missing in what the client is told.
  EXPECT_EQ(job.done.timings.stalls, job.stalls);
  switch (job.done.status.code()) {
    case absl::StatusCode::kOk:
      EXPECT_EQ(std::ssize(job.ids), job.spec.sampling.max_tokens);
      break;
    case absl::StatusCode::kCancelled:
      EXPECT_TRUE(job.cancelled);
      break;
    case absl::StatusCode::kDeadlineExceeded:
      EXPECT_GE(job.ended, job.due);
      break;
    default:
      ADD_FAILURE() << job.done.status;
  }
}

// Sums over all traces, to see that they mix what they should.
struct TraceSums {
  int64_t preemptions = 0;
  int64_t accepted = 0;
  int64_t cached = 0;
  int64_t cancelled = 0;
  int64_t late = 0;
  int64_t gaps = 0;
  int64_t stalls = 0;
  double stretches = 0;
};

void CheckTrace(const MixedTrace& trace, TraceSums& sums) {
  int64_t rows = 0;  // of prompts, all of which may be read, and again after a preemption
  int64_t stalls = 0;
  for (const TraceJob& job : trace.jobs()) {
    SCOPED_TRACE(::testing::Message() << "request " << &job - trace.jobs().data() + 1);
    ASSERT_NO_FATAL_FAILURE(CheckJob(job));
    const Completion& done = job.done;
    const auto prompt = std::ssize(job.spec.prompt);
    rows += prompt + done.timings.preemptions * (prompt + job.spec.sampling.max_tokens);
    stalls += job.stalls;
    sums.gaps += job.gaps;
    sums.preemptions += done.timings.preemptions;
    sums.accepted += done.usage.accepted_tokens;
    sums.cached += done.usage.cached_tokens;
    sums.cancelled += done.status.code() == absl::StatusCode::kCancelled ? 1 : 0;
    sums.late += done.status.code() == absl::StatusCode::kDeadlineExceeded ? 1 : 0;
  }
  sums.stalls += stalls;
  sums.stretches += trace.metrics().chunk_stretches.value();
  EXPECT_EQ(trace.metrics().stall_violations.value(), static_cast<double>(stalls));
  EXPECT_LE(trace.prompt_rows(), rows);
  EXPECT_EQ(trace.unbalanced(), 0);
  EXPECT_EQ(trace.crowded(), 0);
  EXPECT_EQ(trace.refused(), 0);
  for (const PageCounts& rank : trace.Look().pages) {
    EXPECT_EQ(rank.held(), 0);
    EXPECT_EQ(rank.cached + rank.free, trace.shape().pages);
  }
  EXPECT_EQ(trace.known_to_ranks(), 0u);
}

// Nobody starves: every request ends by itself, by its client or by its deadline. Every token is
// right, every stall is counted, and no prompt row is computed twice but after a preemption. Before
// each step the pages of each rank add up, and in the end none is held.
TEST(MixedTrace, EveryRequestEndsAndTheBooksBalance) {
  TraceSums sums;
  const std::vector<uint32_t> seeds = ThinnedIfSanitized(SeedsFrom(1, 200), 15);
  for (const uint32_t seed : seeds) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    MixedTrace trace(seed);
    ASSERT_TRUE(trace.Run()) << "somebody waits for ever";
    CheckTrace(trace, sums);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(sums.preemptions, 0);
  EXPECT_GT(sums.accepted, 0);
  EXPECT_GT(sums.cached, 0);
  EXPECT_GT(sums.cancelled, 0);
  EXPECT_GT(sums.late, 0);
  EXPECT_GT(sums.stretches, 0);
  // Most waits keep the budget, though each trace has to learn how long its steps take.
  EXPECT_LT(sums.stalls, sums.gaps / 5) << "of " << sums.gaps << " gaps";
}

}  // namespace
}  // namespace annulus::testing
