#include "engine/coordinator/admission/page_growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error_payloads.h"
#include "engine/scheduler/answer_length.h"
#include "tests/engine/coordinator/engine_parts.h"

namespace annulus::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// One rank, on which requests reserve what answers are expected to need: 4 tokens.
class PageGrowthTest : public ::testing::Test, protected EngineParts {
 protected:
  static CoordinatorOptions Expected() {
    CoordinatorOptions options = Options(/*ranks=*/1);
    options.engine.admission = AdmissionMode::kExpected;
    return options;
  }
  explicit PageGrowthTest(int pages = 8) : EngineParts(Expected(), pages) {
    for (int i = 0; i < AnswerLength::kLeastAnswers; ++i) serving_.CountAnswer(4);
  }
  // Runs steps, each after its turn of growth, until `done`.
  template <typename Done>
  void StepUntil(const Done& done) {
    for (int step = 0; step < 500 && !done(); ++step) {
      growth_.GrowRunning(clock_.Now());
      Step();
    }
    EXPECT_TRUE(done());
  }
};

TEST_F(PageGrowthTest, ARequestTakesPagesAsItsAnswerGrows) {
  const Request& request = Start(Spec(20, 100));
  const RequestId id = request.id();
  EXPECT_EQ(FreePages(), 6);
  EXPECT_EQ(request.sequence()->reserved, 32);
  growth_.GrowRunning(clock_.Now());
  EXPECT_EQ(FreePages(), 6) << "it needs none yet";
  StepUntil([&] { return request.sequence()->needs_pages(); });
  growth_.GrowRunning(clock_.Now());
  EXPECT_FALSE(growth_.lacks_pages());
  EXPECT_GT(request.sequence()->reserved, 32);
  EXPECT_LT(FreePages(), 6);
  StepUntil([&] { return ended_.contains(id); });
  EXPECT_THAT(preempted_, IsEmpty());
}

TEST_F(PageGrowthTest, CachedPagesGoFirst) {
  RunAlone(Spec(64, 1, 'y'));
  ASSERT_EQ(FreePages(), 4);
  const RequestId id = Start(Spec(20, 100)).id();
  StepUntil([&] { return ended_.contains(id); });
  EXPECT_THAT(preempted_, IsEmpty());
  EXPECT_EQ(metrics_.preemptions.value(), 0);
}

// Of two that need more than there is, the younger one gives up its pages, and waits with its
// answer.
TEST_F(PageGrowthTest, TheYoungerMakesRoomForTheElder) {
  const RequestId elder = Start(Spec(20, 100)).id();
  const RequestId younger = Start(Spec(20, 100, 'y')).id();
  StepUntil([&] { return !preempted_.empty(); });
  EXPECT_THAT(preempted_, ElementsAre(younger));
  EXPECT_THAT(ledger_.waiting(), ElementsAre(younger));
  EXPECT_EQ(metrics_.preemptions.value(), 1);
  const Request& waits = ledger_.request(younger);
  EXPECT_EQ(waits.sequence(), nullptr);
  EXPECT_EQ(waits.tokens_to_read(), 20 + waits.completion_tokens());
  StepUntil([&] { return ended_.contains(elder); });
  // What it had computed was evicted for the other, or is still known.
  const auto begun = starter_.TryStart(ledger_.request(younger), nullptr);
  ASSERT_TRUE(begun.ok() && *begun == AdmissionHost::Answer::kAdmitted);
  StepUntil([&] { return ended_.contains(younger); });
  EXPECT_EQ(sinks_[younger]->ids().size(), 100u);
}

// Nobody who reserved everything is preempted: the one that grows waits, and nobody may begin.
TEST_F(PageGrowthTest, WhoMayNotYieldKeepsItsPages) {
  const RequestId grows = Start(Spec(20, 100)).id();
  RequestSpec whole = Spec(20, 60, 'y');  // five pages
  whole.tenant = *TenantId::FromName("bounded");
  whole.tenant_room.kv_bytes = int64_t{5} * 4096;
  const RequestId fixed = Start(std::move(whole)).id();
  StepUntil([&] { return growth_.lacks_pages(); });
  EXPECT_THAT(preempted_, IsEmpty());
  StepUntil([&] { return ended_.contains(fixed); });
  StepUntil([&] { return ended_.contains(grows); });
  EXPECT_FALSE(growth_.lacks_pages());
}

TEST_F(PageGrowthTest, AParkedRequestDoesNotGrow) {
  const Request& request = Start(Spec(20, 100));
  StepUntil([&] { return request.sequence()->needs_pages(); });
  ledger_.state().running[0]->paused = true;
  growth_.GrowRunning(clock_.Now());
  EXPECT_EQ(request.sequence()->reserved, 32);
  ledger_.state().running[0]->paused = false;
  growth_.GrowRunning(clock_.Now());
  EXPECT_GT(request.sequence()->reserved, 32);
}

// A victim helps only if it alone holds pages where they are lacked.
TEST_F(PageGrowthTest, PagesThatOthersReadHelpNobody) {
  const RequestId first = Start(Spec(20, 100)).id();
  const RequestId second = Start(Spec(20, 40, 'y')).id();
  EXPECT_FALSE(growth_.Helps(second, first)) << "four pages are free";
  ledger_.book().Open({PageOwner::Kind::kTier, 1}, TenantId());
  ledger_.book().Reserve({PageOwner::Kind::kTier, 1}, 0, 4);
  EXPECT_TRUE(growth_.Helps(second, first));
  EXPECT_FALSE(growth_.Grow(first));
  ledger_.book().Release({PageOwner::Kind::kTier, 1});
  EXPECT_TRUE(growth_.Grow(first));
}

TEST_F(PageGrowthTest, APinMustLeaveRoomForTheLongestAnswer) {
  RunAlone(Spec(48, 1, 'y'));  // three pages stay cached
  const auto found = ledger_.prefixes().Find(Spec(49, 1, 'y'), nullptr);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(growth_.CheckRoomBeside(found[0].hit).ok()) << "nothing grows";
  const RequestId grows = Start(Spec(20, 60)).id();  // at most five
  EXPECT_TRUE(growth_.CheckRoomBeside(found[0].hit).ok());
  Leave(grows);
  Start(Spec(20, 70));  // six
  const absl::Status refused = growth_.CheckRoomBeside(found[0].hit);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("could run out of pages"));
  EXPECT_TRUE(refused.GetPayload(kRetryPayload).has_value());
}

}  // namespace
}  // namespace annulus::testing
