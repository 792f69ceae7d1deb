// Answers go on once ranks are lost that nobody takes, if room is kept for the loss of so many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "engine/coordinator/coordinator.h"
#include "engine/scheduler/trial_ring.h"
#include "engine/text/tokenizer.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/plain_options.h"
#include "tests/support/simulated_ranks.h"

namespace annulus::testing {
namespace {

constexpr int32_t kPage = 16;
constexpr int kPages = 20;  // of each rank

// A ring of two to six ranks that loses, with one step or with two, all ranks whose loss it
// tolerates.
class LossyRing {
 public:
  explicit LossyRing(uint64_t seed)
      : random_(seed),
        size_(2 + Draw(4)),
        tolerated_(1 + Draw(size_ - 2)),
        limits_(SimulatedLimits(size_, kPage, Windows())),
        ranks_({.ranks = size_,
                .pages = kPages,
                .page_tokens = kPage,
                .group_windows = limits_.group_windows}),
        metrics_(size_, ModelInfo()) {
    LoseLater();
    CoordinatorOptions options;
    options.engine = PlainOptions();
    options.engine.max_running = 8;
    if (Draw(2) == 0) options.engine.admission = AdmissionMode::kExpected;
    options.limits = limits_;
    options.tolerated_ranks = tolerated_;
    options.modes.mode = RingMode::kPassKv;
    options.identity = "simulated";
    coordinator_ = std::make_unique<Coordinator>(options, ranks_, metrics_, Clock::Real(),
                                                 std::vector<int32_t>{256}, 257);
  }

  // Submits requests that fit once the ranks are lost, which is what Engine::Validate accepts.
  void Submit(int count) {
    const TrialRing left(limits_,
                         std::vector<int32_t>(static_cast<size_t>(size_ - tolerated_), kPages));
    while (count > 0) {
      RequestSpec spec;
      spec.prompt.assign(static_cast<size_t>(Draw(1) * kPage * Draw(6)), 'x');  // some begin alike
      spec.prompt.insert(spec.prompt.end(), static_cast<size_t>(1 + Draw(30 + 250 * Draw(1))),
                         static_cast<int32_t>('a' + sinks_.size() % 20));
      spec.sampling.max_tokens = 1 + Draw(60);
      spec.sampling.seed = 1;
      if (!left.Fits(Demand(spec, kPage))) continue;
      --count;
      const auto prompt = static_cast<int32_t>(spec.prompt.size());
      std::vector<int32_t>& answer = answers_.emplace_back();
      for (int32_t t = 0; t < spec.sampling.max_tokens; ++t) {
        answer.push_back(SimulatedRanks::TokenAt(prompt + t));
      }
      sinks_.push_back(std::make_shared<CollectingSink>());
      ASSERT_EQ(coordinator_->Submit(std::make_unique<Request>(
                    sinks_.size(), std::move(spec), sinks_.back(), *tokenizer_, Clock::Real())),
                absl::OkStatus());
    }
  }

  // Returns how many answers went on after a loss.
  int64_t ExpectAnswers() {
    int64_t recovered = 0;
    for (size_t i = 0; i < sinks_.size(); ++i) {
      const auto done = sinks_[i]->Wait();
      if (!done.has_value()) {
        ADD_FAILURE() << "request " << i << " has no end";
        continue;
      }
      EXPECT_EQ(done->status, absl::OkStatus()) << "request " << i;
      EXPECT_EQ(sinks_[i]->ids(), answers_[i]) << "request " << i;
      recovered += done->timings.recovered > 0 ? 1 : 0;
    }
    return recovered;
  }

 private:
  // From 0 to `most`.
  int Draw(int most) { return static_cast<int>(random_() % static_cast<uint64_t>(most + 1)); }
  std::vector<int32_t> Windows() {
    return Draw(1) == 0 ? std::vector<int32_t>{0} : std::vector<int32_t>{0, 40};
  }
  void LoseLater() {
    std::vector<int32_t> lost(static_cast<size_t>(size_));
    std::iota(lost.begin(), lost.end(), 0);
    std::shuffle(lost.begin(), lost.end(), random_);
    lost.resize(static_cast<size_t>(tolerated_));
    ranks_.LeaveOut(lost);  // which counts once they are lost
    const auto later = lost.begin() + 1 + Draw(tolerated_ - 1);
    const int first_step = Draw(12);
    const int second_step = first_step + 1 + Draw(12);
    ranks_.FailWhen([first = std::vector<int32_t>(lost.begin(), later),
                     second = std::vector<int32_t>(later, lost.end()), first_step, second_step,
                     step = 0](const StepPlan&) mutable -> std::optional<std::vector<int32_t>> {
      const int now = step++;
      if (now == first_step) return first;
      if (now == second_step && !second.empty()) return second;
      return std::nullopt;
    });
  }

  std::mt19937_64 random_;
  const int size_;
  const int tolerated_;
  const PlanLimits limits_;
  SimulatedRanks ranks_;
  EngineMetrics metrics_;
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  std::vector<std::shared_ptr<CollectingSink>> sinks_;
  std::vector<std::vector<int32_t>> answers_;
  std::unique_ptr<Coordinator> coordinator_;
};

TEST(ToleratedLoss, NoAnswerEndsForWantOfPages) {
  int64_t recovered = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    LossyRing ring(seed);
    ring.Submit(12);
    recovered += ring.ExpectAnswers();
    ring.Submit(4);  // on what is left
    ring.ExpectAnswers();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(recovered, 60) << "hardly any loss was met";
}

}  // namespace
}  // namespace annulus::testing
