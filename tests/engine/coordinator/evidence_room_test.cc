// Requests for evidence, and the host's memory that is kept for them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error_payloads.h"
#include "engine/coordinator/admission/admission_pass.h"
#include "engine/request/evidence_account.h"
#include "engine/request/evidence_memory.h"
#include "tests/engine/coordinator/engine_parts.h"

namespace annulus::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class EvidenceRoomTest : public ::testing::Test, protected EngineParts {
 protected:
  static constexpr int kTokens = 20;  // of a prompt
  static constexpr size_t kMostAtOnce = 3;

  static RequestSpec Asks(int tokens = kTokens, int32_t fill = 'x') {
    RequestSpec spec = Spec(tokens, 4, fill);
    spec.evidence = true;
    spec.documents = {{2, "a", tokens - 4}};
    return spec;
  }
  static size_t Need(const EvidenceShape& shape, const RequestSpec& spec) {
    return NeedForEvidence(shape, EvidenceRanges(spec.documents)).of_request();
  }
  static CoordinatorOptions WithRoom() {
    CoordinatorOptions options = Options();
    options.evidence_heads = {{0, 0}};
    options.evidence_shape = {
        .query_floats = 130, .layers = 1, .heads = 2, .page_tokens = kPage, .ranks = 2};
    options.evidence_room.requests = kMostAtOnce * Need(options.evidence_shape, Asks()) + 1;
    return options;
  }
  EvidenceRoomTest() : EngineParts(WithRoom()) {}

  void Pass() {
    AdmissionPass pass(
        {ledger_, serving_, policies_, documents_, prefix_waits_, restore_waits_, starter_});
    EXPECT_THAT(pass.Run(clock_.Now()).failed, ::testing::IsEmpty());
  }
  std::vector<RequestId> Running() const {
    std::vector<RequestId> ids;
    for (const auto& sequence : ledger_.state().running) ids.push_back(sequence->id);
    return ids;
  }
  size_t Held() const {
    size_t held = 0;
    for (const auto& sequence : ledger_.state().running) {
      if (sequence->evidence == nullptr) continue;
      held += NeedForEvidence(options_.evidence_shape, sequence->evidence->ranges).of_request();
    }
    return held;
  }
  void End(RequestId id) {
    Leave(id);
    serving_.NoteEnd(id, clock_.Now());
  }
};

TEST_F(EvidenceRoomTest, AFloodWaitsAndOthersDoNot) {
  constexpr size_t kFlood = 10;
  for (size_t i = 0; i < kFlood; ++i) Add(Asks(kTokens, 'a' + static_cast<int32_t>(i)));
  const RequestId plain = Add(Spec(kTokens, 4, 'z')).id();
  Pass();
  EXPECT_EQ(Running().size(), kMostAtOnce + 1);
  EXPECT_THAT(Running(), Contains(plain));
  EXPECT_GE(ledger_.bytes(), static_cast<int64_t>(Held()));
  End(plain);
  size_t ended = 0;
  while (ended < kFlood && !Running().empty()) {
    EXPECT_LE(Held(), options_.evidence_room.requests);
    EXPECT_GT(Held() + Need(options_.evidence_shape, Asks()),
              ledger_.waiting().empty() ? 0 : options_.evidence_room.requests);
    End(Running().front());
    ++ended;
    Pass();
  }
  EXPECT_EQ(ended, kFlood);
}

// Once it has waited long enough, short ones do not take what becomes free before it.
TEST_F(EvidenceRoomTest, RoomIsGatheredForALongDocument) {
  RequestSpec longer = Asks();
  longer.prompt.assign(300, 'l');
  longer.documents = {{2, "l", 296}};
  ASSERT_GT(Need(options_.evidence_shape, longer), Need(options_.evidence_shape, Asks()));
  ASSERT_LE(Need(options_.evidence_shape, longer), options_.evidence_room.requests);
  for (size_t i = 0; i < kMostAtOnce; ++i) Add(Asks(kTokens, 'a' + static_cast<int32_t>(i)));
  Pass();
  const std::vector<RequestId> first = Running();
  ASSERT_EQ(first.size(), kMostAtOnce);
  const RequestId waits = Add(std::move(longer)).id();
  clock_.Advance(std::chrono::seconds(100));
  serving_.NoteRoom();
  Pass();
  const RequestId shorter = Add(Asks(kTokens, 's')).id();
  const RequestId plain = Add(Spec(kTokens, 4, 'z')).id();
  for (const RequestId id : first) {
    EXPECT_THAT(Running(), Not(Contains(shorter)));
    End(id);
    Pass();
  }
  EXPECT_THAT(Running(), Contains(waits));
  EXPECT_THAT(Running(), Contains(plain));
  EXPECT_LE(Held(), options_.evidence_room.requests);
}

TEST_F(EvidenceRoomTest, ARankThatSendsOtherAttentionFailsTheRequestAlone) {
  Request& request = Start(Asks());
  SampledToken token;
  token.sequence = request.id();
  token.token = 'a';
  token.shares = {{4, 18, 0.5F}};
  EXPECT_TRUE(request.AddTokens(std::span(&token, 1)).status.ok());
  token.shares = {{4, 17, 0.5F}};
  const absl::Status status = request.AddTokens(std::span(&token, 1)).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no part of the documents"));
}

TEST_F(EvidenceRoomTest, IsWhatTheMostRequestsTakeOrABound) {
  const EvidenceShape shape{
      .query_floats = 14 * 65, .layers = 1, .heads = 14, .page_tokens = 64, .ranks = 1};
  constexpr int64_t kContext = 32'768;
  const auto need = [&](std::vector<PromptDocument> documents) {
    return NeedForEvidence(shape, EvidenceRanges(documents)).of_request();
  };
  const size_t whole = need({{0, "a", kContext}});
  constexpr size_t kMost = size_t{64} << 20;
  const EvidenceRoom one = PlanEvidence(shape, kContext, 1, 0);
  EXPECT_GE(one.requests, whole);
  EXPECT_LE(one.requests, 2 * whole);
  EXPECT_EQ(PlanEvidence(shape, kContext, 4, kMost).requests, 4 * one.requests);
  EXPECT_EQ(PlanEvidence(shape, kContext, 4, kMost).steps, one.steps);
  EXPECT_EQ(PlanEvidence(shape, kContext, 100'000, kMost).requests, kMost);
  // 64 documents, none of which begins where a block does.
  std::vector<PromptDocument> many;
  for (int32_t i = 0; i < 64; ++i) many.push_back({10 + 512 * i, "a", i == 63 ? 502 : 511});
  EXPECT_GT(need(many), whole);
  EXPECT_LE(need(many), one.requests);
  EXPECT_EQ(PlanEvidence({}, kContext, 4, kMost).total(), 0u);

  RequestSpec spec = Spec(4096);
  for (int32_t i = 0; i < 4096; ++i) spec.documents.push_back({i, "a", 1});
  const EvidenceRoom small = PlanEvidence(shape, 4096, 1, kMost);
  EXPECT_TRUE(CheckEvidenceRoom(spec, shape, small).ok()) << "it asks for none";
  spec.evidence = true;
  const absl::Status refused = CheckEvidenceRoom(spec, shape, small);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.GetPayload(kFieldPayload), absl::Cord("evidence"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("evidence over 4096 documents takes "));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("name at most 64 documents"));
}

}  // namespace
}  // namespace annulus::testing
