#include "engine/coordinator/admission/admission_pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error_payloads.h"
#include "tests/engine/coordinator/engine_parts.h"

namespace annulus::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class AdmissionPassTest : public ::testing::Test, protected EngineParts {
 protected:
  AdmissionPass::Outcome Pass() {
    AdmissionPass pass(
        {ledger_, serving_, policies_, documents_, prefix_waits_, restore_waits_, starter_});
    return pass.Run(clock_.Now());
  }
  std::vector<RequestId> Running() const {
    std::vector<RequestId> ids;
    for (const auto& sequence : ledger_.state().running) ids.push_back(sequence->id);
    return ids;
  }
};

TEST_F(AdmissionPassTest, BeginsWhatFitsAndTellsTheOthersTheirPlace) {
  const RequestId large = Add(Spec(400)).id();
  const RequestId second = Add(Spec(300, 4, 'y')).id();
  const RequestId small = Add(Spec(40, 4, 'z')).id();
  const auto outcome = Pass();
  EXPECT_EQ(outcome.begun.size(), 2u);
  EXPECT_THAT(outcome.failed, IsEmpty());
  EXPECT_THAT(ledger_.waiting(), ElementsAre(second));
  EXPECT_THAT(Running(), ::testing::UnorderedElementsAre(large, small));
  EXPECT_THAT(sinks_[second]->queued(), ElementsAre(0));
  EXPECT_EQ(metrics_.prefix_cache_queries.value(), 440);
}

TEST_F(AdmissionPassTest, NoMoreThanTheSlotsRun) {
  for (int i = 0; i < 12; ++i) Add(Spec(5, 1, 'a' + i));
  EXPECT_EQ(Pass().begun.size(), 8u);
  EXPECT_EQ(ledger_.waiting().size(), 4u);
  Leave(Running().front());
  serving_.NoteRoom();
  EXPECT_EQ(Pass().begun.size(), 1u);
}

TEST_F(AdmissionPassTest, WhatIsCachedInFullNeedsNoStep) {
  RunAlone(ReadAhead(64, 'x', "a"));
  const RequestId again = Add(ReadAhead(64, 'x', "a")).id();
  const auto outcome = Pass();
  EXPECT_TRUE(outcome.begun.empty());
  EXPECT_THAT(outcome.kept, ElementsAre(again));
  EXPECT_THAT(ledger_.waiting(), ElementsAre(again)) << "who asked for the pass ends it";
}

TEST_F(AdmissionPassTest, AnErrorEndsItsRequestAlone) {
  RequestSpec bounded = Spec(60);
  bounded.tenant = *TenantId::FromName("us");
  bounded.tenant_room.kv_bytes = 3 * 4096;
  const RequestId fails = Add(std::move(bounded)).id();
  RequestSpec pins = ReadAhead(11 * kPage, 'p', "a");
  pins.pin = true;
  const RequestId cannot_pin = Add(std::move(pins)).id();
  const RequestId runs = Add(Spec(40, 4, 'y')).id();
  const auto outcome = Pass();
  ASSERT_EQ(outcome.failed.size(), 2u);
  std::map<RequestId, absl::Status> failed(outcome.failed.begin(), outcome.failed.end());
  EXPECT_EQ(failed[fails].GetPayload(kLimitPayload), absl::Cord("kv_bytes"));
  EXPECT_EQ(failed[cannot_pin].GetPayload(kLimitPayload), absl::Cord("pinned"));
  EXPECT_THAT(Running(), ElementsAre(runs));
  EXPECT_EQ(FreePages(), 37) << "the others hold nothing";
}

TEST_F(AdmissionPassTest, APreemptedRequestWaitsForItsReader) {
  Request& request = Start(Spec(20, 40));
  for (int step = 0; step < 5; ++step) Step();
  ledger_.WaitAgain(request);
  ledger_.Suspend(request);
  sinks_[request.id()]->set_has_room(false);
  serving_.NotePreempted(request.id());
  EXPECT_TRUE(Pass().begun.empty());
  sinks_[request.id()]->set_has_room(true);
  EXPECT_EQ(Pass().begun.size(), 1u);
  EXPECT_TRUE(request.has_begun());
}

// One that has waited long enough gets the room that becomes free, though others would fit.
TEST_F(AdmissionPassTest, RoomIsGatheredForALargeRequest) {
  const RequestId running = Start(Spec(200)).id();
  const RequestId large = Add(Spec(560, 4, 'l')).id();  // 36 of 40 pages
  EXPECT_TRUE(Pass().begun.empty());
  clock_.Advance(std::chrono::seconds(100));
  serving_.NoteRoom();
  EXPECT_TRUE(Pass().begun.empty());
  const RequestId takes = Add(Spec(150, 4, 's')).id();  // ten: fits, but not beside the large one
  serving_.NoteRoom();
  EXPECT_TRUE(Pass().begun.empty());
  EXPECT_THAT(ledger_.waiting(), ElementsAre(large, takes));
  Leave(running);
  serving_.NoteEnd(running, clock_.Now());
  EXPECT_EQ(Pass().begun.size(), 1u);
  EXPECT_THAT(Running(), ElementsAre(large));
}

}  // namespace
}  // namespace annulus::testing
