// The coordinator over simulated ranks: what it plans and what becomes of requests, without
// arithmetic and without sleeps.

#include "engine/coordinator/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "tests/engine/coordinator/coordinator_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/simulated_ranks.h"

namespace annulus::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class CoordinatorTest : public CoordinatorFixture {};

TEST_F(CoordinatorTest, AnswersWithWhatTheRanksSampled) {
  Make();
  const Asked asked = Ask(100, 5);
  EXPECT_EQ(Outcome(asked), "");
  std::vector<int32_t> expected;
  for (int32_t position = 100; position < 105; ++position) {
    expected.push_back(SimulatedRanks::TokenAt(position));
  }
  EXPECT_EQ(asked.sink->ids(), expected);
  // Every row of the prompt runs once, in order; terms and setup are sent once.
  int32_t next = 0;
  int terms = 0;
  int setups = 0;
  for (const StepPlan& plan : ranks_.plans()) {
    for (const SequenceUpdate& update : plan.updates) {
      terms += update.terms.has_value() ? 1 : 0;
      setups += update.setup.has_value() ? 1 : 0;
    }
    for (const PlanItem& item : plan.items) {
      if (item.sampled) continue;
      EXPECT_EQ(item.begin, next);
      next = item.end;
    }
  }
  EXPECT_EQ(next, 99);
  EXPECT_EQ(terms, 1);
  EXPECT_EQ(setups, 1);
}

// Simulated ranks repeat themselves every 26 tokens: what was guessed is right then.
class GuessingTest : public CoordinatorFixture {
 protected:
  static RequestSpec Spec(Speculation speculation) {
    RequestSpec spec = CoordinatorFixture::Spec(50, 120);
    spec.speculation = speculation;
    return spec;
  }
};

TEST_F(GuessingTest, TheSameTokensComeInFewerSteps) {
  Make();
  const Asked plain = Ask(Spec(Speculation::kOff));
  const Asked guessed = Ask(Spec(Speculation::kNgram));
  EXPECT_EQ(Outcome(plain), "");
  EXPECT_EQ(Outcome(guessed), "");
  EXPECT_EQ(guessed.sink->ids(), plain.sink->ids());
  EXPECT_EQ(guessed.sink->ids().size(), 120u);
  EXPECT_LT(2 * StepsOf(guessed.id).size(), StepsOf(plain.id).size());
  const Usage usage = guessed.sink->Wait()->usage;
  EXPECT_GT(usage.accepted_tokens, 60);
  EXPECT_LE(usage.accepted_tokens, usage.drafted_tokens);
  EXPECT_EQ(plain.sink->Wait()->usage.drafted_tokens, 0);
  EXPECT_EQ(PagesHeld(), 0);
}

// Tokens behind the one that ends the text are left, though their rows were right.
TEST_F(GuessingTest, NothingComesBehindAStop) {
  Make();
  for (int at = 60; at < 110; at += 7) {
    std::vector<std::vector<int32_t>> ids;
    std::vector<std::string> texts;
    for (const Speculation speculation : {Speculation::kOff, Speculation::kNgram}) {
      RequestSpec spec = Spec(speculation);
      spec.sampling.min_tokens = at;  // the letter comes earlier too
      spec.sampling.stop = {std::string(1, static_cast<char>(SimulatedRanks::TokenAt(50 + at)))};
      const Asked asked = Ask(std::move(spec));
      EXPECT_EQ(Outcome(asked), "");
      ids.push_back(asked.sink->ids());
      texts.push_back(asked.sink->text());
    }
    EXPECT_EQ(ids[1], ids[0]) << at;
    EXPECT_EQ(texts[1], texts[0]) << at;
    EXPECT_EQ(static_cast<int>(ids[0].size()), at + 1);
  }
  EXPECT_EQ(PagesHeld(), 0);
}

// What the ranks stood idle for a request's steps is counted for it, and in the metrics for all.
TEST_F(CoordinatorTest, CountsTheTimeBetweenSteps) {
  Make();
  const Asked asked = Ask(100, 20);
  EXPECT_EQ(Outcome(asked), "");
  const Timings timings = asked.sink->Wait()->timings;
  EXPECT_GT(timings.host, 0);
  EXPECT_LT(timings.host, timings.total);
  EXPECT_EQ(timings.ring_wait, 0);  // simulated ranks wait for nobody
  EXPECT_GE(metrics_.host_seconds.value(), timings.host);
  EXPECT_GT(metrics_.step_seconds.value(), 0);
}

// A request begins when all its pages are free, and not before.
TEST_F(CoordinatorTest, AdmitsWhatThePagesHaveRoomFor) {
  Make();
  ranks_.HoldSteps();
  const Asked large = Ask(400, 8);  // 26 of 40 pages
  ASSERT_TRUE(ranks_.WaitBegun(1));
  const Asked second = Ask(300, 8);  // 20 pages
  const Asked small = Ask(40, 8);    // 3 pages
  ranks_.Allow();
  for (const Asked& asked : {large, second, small}) EXPECT_EQ(Outcome(asked), "");
  EXPECT_GT(StepsOf(second.id).front(), StepsOf(large.id).back());
  EXPECT_EQ(PagesHeld(), 0);
}

// A prompt begins where its cached beginning lies, although the other rank has more free pages,
// unless those ranks would take longer for the rest than others for all of it.
TEST_F(CoordinatorTest, AHitIsHomedWhereItsPagesLieUnlessThatRankIsBusy) {
  Make();
  const auto ring_of = [this](const Asked& asked) {
    return TermsOf(asked.id).value_or(SequenceTerms()).ring;
  };
  const auto cached = [](const Asked& asked) { return asked.sink->Wait()->usage.cached_tokens; };
  // Three pages, of which all have the first one.
  const auto ask = [this](char rest, int max_tokens) {
    std::vector<int32_t> prompt(50, rest);
    std::fill_n(prompt.begin(), kPageTokens, 'x');
    return Ask(std::move(prompt), max_tokens);
  };
  const Asked first = ask('a', 4);
  ASSERT_EQ(Outcome(first), "");
  const std::vector<int32_t> ring = ring_of(first);
  ASSERT_EQ(ring.size(), 1u);
  // 16 tokens are there, and 38 are left: less than 54 elsewhere.
  const Asked hit = ask('b', 4);
  ASSERT_EQ(Outcome(hit), "");
  EXPECT_EQ(ring_of(hit), ring);
  EXPECT_EQ(cached(hit), kPageTokens);
  // Beside another that runs there the 38 take as long as 76.
  ranks_.HoldSteps();
  const Asked running = ask('a', 14);
  ASSERT_TRUE(Eventually([&] {
    if (!StepsOf(running.id).empty()) return true;
    ranks_.Allow(1);  // one in front of it, which has the ranks forget others
    return false;
  }));
  const Asked elsewhere = ask('c', 4);
  ranks_.Allow();
  EXPECT_EQ(Outcome(running), "");
  EXPECT_EQ(Outcome(elsewhere), "");
  EXPECT_EQ(ring_of(running), ring);
  EXPECT_EQ(cached(running), 3 * kPageTokens);
  EXPECT_EQ(ring_of(elsewhere), std::vector<int32_t>{1 - ring[0]});
  EXPECT_EQ(cached(elsewhere), 0);
  EXPECT_EQ(PagesHeld(), 0);
}

// Ranks that share a memory and processors: the fewer of them have rows, the fewer read the
// weights. Elsewhere sequences spread.
TEST_F(CoordinatorTest, SequencesJoinWhereRanksShareTheMachine) {
  for (const bool share : {false, true}) {
    Make(8, 16, share);
    ranks_.HoldSteps();  // so that none ends before the last begins
    std::vector<Asked> all;
    // 4 pages each and, of two ranks, 7: the last finds more than twice as many free on the other.
    for (const int tokens : {40, 40, 40, 100, 40}) all.push_back(Ask(tokens, 20));
    ranks_.Allow();
    std::vector<int> homes(kRanks, 0);
    for (const Asked& asked : all) {
      EXPECT_EQ(Outcome(asked), "");
      ++homes.at(TermsOf(asked.id)->home);
    }
    EXPECT_EQ(TermsOf(all[3].id)->ring.size(), 2u);
    std::sort(homes.begin(), homes.end());
    EXPECT_EQ(homes, share ? std::vector<int>({1, 4}) : std::vector<int>({2, 3}));
    EXPECT_EQ(PagesHeld(), 0);
  }
}

// Where ranks have processors of their own, a sequence begins on the idle one, though that keeps
// more pages of earlier ones.
TEST_F(CoordinatorTest, ASequenceBeginsWhereLeastRuns) {
  Make();
  const auto ring_of = [this](const Asked& asked) {
    return TermsOf(asked.id).value_or(SequenceTerms()).ring;
  };
  const Asked earlier = Ask(50, 8);  // three pages of it stay cached
  ASSERT_EQ(Outcome(earlier), "");
  ranks_.HoldSteps();
  const Asked running = Ask(10, 8);  // takes two pages
  ASSERT_TRUE(Eventually([&] {
    if (!StepsOf(running.id).empty()) return true;
    ranks_.Allow(1);  // one in front of it, which has the ranks forget the earlier one
    return false;
  }));
  const Asked next = Ask(10, 8);
  ranks_.Allow();
  EXPECT_EQ(Outcome(running), "");
  EXPECT_EQ(Outcome(next), "");
  ASSERT_EQ(ring_of(earlier).size(), 1u);
  EXPECT_EQ(ring_of(running), std::vector<int32_t>{1 - ring_of(earlier)[0]});
  EXPECT_EQ(ring_of(next), ring_of(earlier));
  EXPECT_EQ(PagesHeld(), 0);
}

// What is cached there draws sequences too, as long as the rank keeps room.
TEST_F(CoordinatorTest, AHitOnARankThatIsFullIsLeftForAnother) {
  Make(8, 16, /*ranks_share_machine=*/true);
  const auto ask = [this](char rest) {
    std::vector<int32_t> prompt(40, rest);
    std::fill_n(prompt.begin(), kPageTokens, 'x');
    return Ask(std::move(prompt), 24);
  };
  const Asked first = ask('a');
  ASSERT_EQ(Outcome(first), "");
  ranks_.HoldSteps();
  std::vector<Asked> all;
  for (const char rest : {'b', 'c', 'd', 'e', 'f', 'g'}) all.push_back(ask(rest));
  ranks_.Allow();
  // Three new pages each besides the hit: all six would fit, but four leave less than half.
  const int32_t home = TermsOf(first.id)->home;
  std::vector<int> homes(kRanks, 0);
  for (const Asked& asked : all) {
    EXPECT_EQ(Outcome(asked), "");
    ++homes.at(TermsOf(asked.id)->home);
  }
  EXPECT_EQ(homes[home], 4);
  EXPECT_EQ(PagesHeld(), 0);
}

TEST_F(CoordinatorTest, TellsWhomItRefusesToComeAgain) {
  Make(/*max_running=*/1, /*max_waiting=*/2);
  ranks_.HoldSteps();
  const Asked running = Ask(20, 4);
  ASSERT_TRUE(ranks_.WaitBegun(1));
  const Asked first = Ask(20, 4);
  EXPECT_TRUE(coordinator_->CheckQueue("").ok());
  const Asked second = Ask(20, 4);
  const Asked refused = Ask(20, 4);
  EXPECT_EQ(coordinator_->CheckQueue(""), refused.accepted);
  EXPECT_TRUE(first.accepted.ok() && second.accepted.ok());
  EXPECT_EQ(refused.accepted.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.accepted.message(),
              HasSubstr("at most 2 requests can wait; try again later"));
  ranks_.Allow();
  for (const Asked& asked : {running, first, second}) EXPECT_EQ(Outcome(asked), "");
  EXPECT_TRUE(coordinator_->CheckQueue("").ok());
}

// A cancel takes effect between two steps: the one that runs ends, and the next one tells the ranks
// to forget the sequence.
TEST_F(CoordinatorTest, CancelsBetweenSteps) {
  Make();
  ranks_.HoldSteps();
  const Asked gone = Ask(500, 8);
  ASSERT_TRUE(ranks_.WaitBegun(1));
  coordinator_->Cancel(gone.id);
  EXPECT_EQ(gone.sink->done_calls(), 0);  // the step still runs
  ranks_.Allow();
  EXPECT_THAT(Outcome(gone), HasSubstr("CANCELLED"));
  const Asked next = Ask(40, 2);
  EXPECT_EQ(Outcome(next), "");
  EXPECT_EQ(StepsOf(gone.id).size(), 1u);
  EXPECT_THAT(ranks_.plans()[1].ended, Contains(gone.id));
  EXPECT_EQ(PagesHeld(), 0);
  EXPECT_LE(ranks_.known(), 1u);
}

// A request whose step failed is told to the ranks from its beginning, and goes on with what was
// kept of it. Its client sees no more than a pause.
TEST_F(CoordinatorTest, ARequestGoesOnAfterAStepThatFailed) {
  Make();
  std::vector<int32_t> prompt(200, 'p');
  EXPECT_EQ(Outcome(Ask(prompt, 4)), "");
  ranks_.FailNext(absl::InternalError("a rank stumbled"));
  const Asked failed = Ask(prompt, 4);
  EXPECT_EQ(Outcome(failed), "");
  std::vector<int32_t> expected;
  for (int32_t i = 200; i < 204; ++i) expected.push_back(SimulatedRanks::TokenAt(i));
  EXPECT_EQ(failed.sink->ids(), expected);
  const Completion done = *failed.sink->Wait();
  EXPECT_EQ(done.timings.recovered, 1);
  EXPECT_EQ(done.timings.preemptions, 0);
  EXPECT_EQ(done.failed_step, "INTERNAL: a rank stumbled");
  EXPECT_EQ(done.usage.cached_tokens, 192) << "no page was lost";
  EXPECT_EQ(metrics_.failed_steps.value(), 1);
  EXPECT_EQ(metrics_.recovered_set_back.value(), 1);
  EXPECT_EQ(PagesHeld(), 0);
  EXPECT_LE(ranks_.known(), 1u);
}

TEST_F(CoordinatorTest, AnAnswerWithoutATokenIsAStepThatFailed) {
  Make();
  ranks_.LoseNextTokens();
  const Asked asked = Ask(20, 4);
  EXPECT_EQ(Outcome(asked), "");
  EXPECT_THAT(asked.sink->Wait()->failed_step, HasSubstr("ranks sampled for 0 sequences of the 1"));
  EXPECT_EQ(PagesHeld(), 0);
  EXPECT_LE(ranks_.known(), 1u);
}

// The others that ran with it go on; it alone ends, after a step of its own.
TEST_F(CoordinatorTest, AStepThatFailsTwiceForOneRequestEndsItAlone) {
  Make();
  ranks_.HoldSteps();
  const Asked first = Ask(50, 60);
  ASSERT_TRUE(ranks_.WaitBegun(1));
  const Asked faulty = Ask(40, 60);
  const Asked third = Ask(30, 60);
  ranks_.FailStepsOf(faulty.id);
  ranks_.Allow();
  EXPECT_THAT(Outcome(faulty), HasSubstr("UNAVAILABLE: computing the answer failed; try again"));
  EXPECT_THAT(Outcome(faulty), HasSubstr("these rows cannot be computed"));
  for (const auto& [asked, tokens] : {std::pair(first, 50), std::pair(third, 30)}) {
    EXPECT_EQ(Outcome(asked), "");
    std::vector<int32_t> expected;
    for (int32_t i = tokens; i < tokens + 60; ++i) expected.push_back(SimulatedRanks::TokenAt(i));
    EXPECT_EQ(asked.sink->ids(), expected);
    EXPECT_LE(asked.sink->Wait()->timings.recovered, 2) << "the ranks forget all that runs";
  }
  EXPECT_EQ(metrics_.failed_steps.value(), 2);
  EXPECT_EQ(StepsOf(faulty.id).size(), 2u);
  EXPECT_EQ(PagesHeld(), 0);
}

// Of a rank that lost its pages nothing is used any more, of the other all that comes before.
TEST_F(CoordinatorTest, PagesOfARankThatLostThemAreForgotten) {
  Make();
  std::vector<int32_t> prompt(300, 'p');  // on both ranks
  EXPECT_EQ(Outcome(Ask(prompt, 4)), "");
  const auto terms = TermsOf(1);
  ASSERT_EQ(terms->ring.size(), 2u);
  ranks_.FailNext(absl::InternalError("a rank stumbled"), RanksState::kUp, {terms->ring[1]});
  const Asked other = Ask(20, 4);
  EXPECT_EQ(Outcome(other), "");
  EXPECT_EQ(other.sink->Wait()->timings.recovered, 1);
  const Asked again = Ask(prompt, 4);
  EXPECT_EQ(Outcome(again), "");
  const int64_t cached = again.sink->Wait()->usage.cached_tokens;
  EXPECT_GT(cached, 0) << "the first pages are on the other rank";
  EXPECT_LT(cached, 160);
  EXPECT_EQ(PagesHeld(), 0);
}

// A rank that loses its pages again and again makes nobody a suspect.
TEST_F(CoordinatorTest, LostPagesAreNobodysFault) {
  Make();
  ranks_.HoldSteps();
  const Asked asked = Ask(100, 20);
  for (size_t step = 1; step < 4; ++step) {
    ASSERT_TRUE(ranks_.WaitBegun(step));
    ranks_.FailNext(absl::InternalError("a rank was lost"), RanksState::kUp, {0, 1});
    ranks_.Allow(1);
  }
  ranks_.Allow();
  EXPECT_EQ(Outcome(asked), "");
  EXPECT_EQ(asked.sink->ids().size(), 20u);
  EXPECT_EQ(asked.sink->Wait()->timings.recovered, 3);
  EXPECT_EQ(PagesHeld(), 0);
}

// What comes late of a step that failed is not taken for a part of the next.
TEST_F(CoordinatorTest, StepsThatFailAreNumberedToo) {
  Make();
  ranks_.LoseNextTokens();
  EXPECT_EQ(Outcome(Ask(20, 4)), "");
  ranks_.FailNext(absl::InternalError("a rank stumbled"));
  EXPECT_EQ(Outcome(Ask(20, 4)), "");
  EXPECT_EQ(Outcome(Ask(20, 4)), "");
  const std::vector<StepPlan> plans = ranks_.plans();
  ASSERT_GE(plans.size(), 3u);
  std::map<SequenceId, int> begun;
  for (size_t i = 0; i < plans.size(); ++i) {
    EXPECT_TRUE(i == 0 || plans[i].step > plans[i - 1].step) << i;
    for (const SequenceId id : plans[i].ended) EXPECT_GE(--begun[id], 0) << id;
    for (const SequenceUpdate& update : plans[i].updates) {
      if (update.terms.has_value()) ++begun[update.sequence];
    }
  }
}

// As a request's coverage is whose activations are NaN: the means over all requests go on without.
TEST_F(CoordinatorTest, CoverageThatIsNoNumberStaysWithItsRequest) {
  Make();
  for (const double coverage : {std::numeric_limits<double>::quiet_NaN(), 0.5}) {
    LayerAttention report;
    report.estimated = coverage;
    report.estimates = 1;
    report.covered = {coverage};
    report.probes = 1;
    ranks_.ReportNext(report);
    EXPECT_EQ(Outcome(Ask(20, 4)), "");
  }
  EXPECT_EQ(metrics_.attention_coverage.value(), 0.5);
  EXPECT_EQ(metrics_.attention_estimated_coverage.value(), 0.5);
}

TEST_F(CoordinatorTest, AnAnswerOfOneTokenHasNoGap) {
  Make();
  const auto gaps = [&] {
    MetricSample sample;
    metrics_.request_longest_gap.Collect(sample);
    return sample.count;
  };
  EXPECT_EQ(Outcome(Ask(20, 1)), "");
  EXPECT_EQ(PagesHeld(), 0);
  EXPECT_EQ(gaps(), 0u);
  EXPECT_EQ(Outcome(Ask(20, 2)), "");
  EXPECT_EQ(PagesHeld(), 0);
  EXPECT_EQ(gaps(), 1u);
}

// A rank that did not come back may still write to its pages: nobody gets them.
TEST_F(CoordinatorTest, KeepsThePagesOfALostRank) {
  Make();
  ranks_.HoldSteps();
  const Asked running = Ask(100, 4);
  ASSERT_TRUE(ranks_.WaitBegun(1));
  const Asked waiting = Ask(500, 4);
  ranks_.FailNext(absl::UnavailableError("rank 1 is silent"), RanksState::kLost);
  ranks_.Allow();
  for (const Asked& asked : {running, waiting}) {
    EXPECT_THAT(Outcome(asked), HasSubstr("restart the server"));
  }
  // Though there is no room for it, it does not wait.
  EXPECT_THAT(Outcome(Ask(600, 4)), HasSubstr("restart the server"));
  EXPECT_FALSE(coordinator_->snapshot().healthy);
  EXPECT_GT(HeldNow(), 0);
}

// Requests of all sizes come, are cancelled and meet steps that fail. The simulated ranks follow
// every plan; each request ends once, and nothing is left behind.
TEST_F(CoordinatorTest, ManyRequestsLeaveNothingBehind) {
  const uint32_t seed = 20240607;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  Make(/*max_running=*/4, /*max_waiting=*/1000);
  std::vector<Asked> asked;
  int failures = 0;
  for (int turn = 0; turn < 300; ++turn) {
    std::vector<int32_t> prompt(1 + random() % 400, static_cast<int32_t>('a' + random() % 3));
    asked.push_back(Ask(std::move(prompt), static_cast<int>(1 + random() % 40)));
    ASSERT_TRUE(asked.back().accepted.ok());
    if (random() % 4 == 0) coordinator_->Cancel(asked[random() % asked.size()].id);
    if (random() % 50 == 0) {
      ranks_.FailNext(absl::InternalError("a rank stumbled"));
      ++failures;
    }
  }
  size_t answered = 0;
  int failed = 0;
  for (const Asked& each : asked) {
    const std::string outcome = Outcome(each);
    EXPECT_THAT(outcome, ::testing::AnyOf("", HasSubstr("CANCELLED"),
                                          HasSubstr("computing the answer failed")));
    EXPECT_EQ(each.sink->done_calls(), 1);
    answered += outcome.empty() ? 1 : 0;
    failed += absl::StrContains(outcome, "computing the answer failed") ? 1 : 0;
  }
  // A failure ends the request that it meets after an earlier one, and no other.
  EXPECT_LT(failed, std::max(failures, 1));
  EXPECT_GT(answered, asked.size() / 4);
  EXPECT_EQ(PagesHeld(), 0);
}

}  // namespace
}  // namespace annulus::testing
