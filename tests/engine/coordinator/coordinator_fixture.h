#ifndef ANNULUS_TESTS_ENGINE_COORDINATOR_COORDINATOR_FIXTURE_H_
#define ANNULUS_TESTS_ENGINE_COORDINATOR_COORDINATOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/coordinator/coordinator.h"
#include "engine/text/tokenizer.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/eventually.h"
#include "tests/support/plain_options.h"
#include "tests/support/simulated_ranks.h"

namespace annulus::testing {

// A coordinator over two simulated ranks of 20 pages each, and requests to it.
class CoordinatorFixture : public ::testing::Test {
 protected:
  static constexpr int kRanks = 2;
  static constexpr int32_t kPageTokens = 16;

  ~CoordinatorFixture() override { ranks_.Allow(); }  // whatever a test left held

  void Make(int max_running = 4, int max_waiting = 16, bool ranks_share_machine = false) {
    CoordinatorOptions options;
    options.engine = PlainOptions();
    options.ranks_share_machine = ranks_share_machine;
    options.limits = SimulatedLimits(kRanks, kPageTokens, {0});
    options.modes.mode = RingMode::kPassKv;
    options.engine.max_running = max_running;
    options.engine.max_waiting = max_waiting;
    options.identity = "simulated";
    coordinator_ = std::make_unique<Coordinator>(options, ranks_, metrics_, Clock::Real(),
                                                 std::vector<int32_t>{256}, 257);
  }

  struct Asked {
    RequestId id = 0;
    absl::Status accepted;
    std::shared_ptr<CollectingSink> sink = std::make_shared<CollectingSink>();
  };
  // A prompt of so many tokens, all of them the same.
  static RequestSpec Spec(int tokens, int max_tokens, int32_t token = 'x') {
    RequestSpec spec;
    spec.prompt.assign(static_cast<size_t>(tokens), token);
    spec.sampling.max_tokens = max_tokens;
    return spec;
  }
  // A prompt of `tokens` that no other begins with.
  Asked Ask(int tokens, int max_tokens) {
    RequestSpec spec = Spec(tokens, max_tokens);
    spec.prompt[0] = static_cast<int32_t>(next_id_ % 256);
    return Ask(std::move(spec));
  }
  Asked Ask(std::vector<int32_t> prompt, int max_tokens) {
    RequestSpec spec;
    spec.prompt = std::move(prompt);
    spec.sampling.max_tokens = max_tokens;
    return Ask(std::move(spec));
  }
  Asked Ask(RequestSpec spec) {
    Asked asked;
    asked.id = next_id_++;
    spec.sampling.seed = 1;
    asked.accepted = coordinator_->Submit(std::make_unique<Request>(
        asked.id, std::move(spec), asked.sink, *tokenizer_, Clock::Real()));
    return asked;
  }

  static std::string Outcome(const Asked& asked) {
    const auto done = asked.sink->Wait();
    if (!done.has_value()) return "no end";
    if (done->status.ok()) return "";
    return done->status.ToString();
  }

  // As the loop's last turn saw it.
  int64_t HeldNow() const {
    int64_t held = 0;
    for (const PageCounts& rank : coordinator_->snapshot().pages) held += rank.held();
    return held;
  }
  // Pages that requests hold, once all have ended and the loop has turned again.
  int64_t PagesHeld() {
    int64_t held = 0;
    Eventually([&] {
      held = HeldNow();
      return held == 0;
    });
    return held;
  }

  // What the ranks were told of the sequence; nothing if it has not begun.
  std::optional<SequenceTerms> TermsOf(RequestId id) const {
    for (const StepPlan& plan : ranks_.plans()) {
      for (const SequenceUpdate& update : plan.updates) {
        if (update.sequence == id && update.terms.has_value()) return update.terms;
      }
    }
    return std::nullopt;
  }

  // [step of ranks_.plans()] that has rows of the sequence.
  std::vector<size_t> StepsOf(RequestId id) const {
    std::vector<size_t> steps;
    const std::vector<StepPlan> plans = ranks_.plans();
    for (size_t i = 0; i < plans.size(); ++i) {
      if (std::any_of(plans[i].items.begin(), plans[i].items.end(),
                      [&](const PlanItem& item) { return item.sequence == id; })) {
        steps.push_back(i);
      }
    }
    return steps;
  }

  SimulatedRanks ranks_{{.ranks = kRanks, .pages = 20, .page_tokens = kPageTokens}};
  EngineMetrics metrics_{kRanks, ModelInfo()};
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  RequestId next_id_ = 1;
  std::unique_ptr<Coordinator> coordinator_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_COORDINATOR_COORDINATOR_FIXTURE_H_
