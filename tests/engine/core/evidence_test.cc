// Whether the passages that an answer names are those it was copied from: the recall model's
// attention is exact, so there is no doubt what it rests on.
//   ANNULUS_RECALL_TOKENS=1000000   a longer document than the suite takes

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/demo/document.h"
#include "engine/engine_seams.h"
#include "engine/request/evidence_heads.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/plain_options.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using testing::CollectingSink;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSuiteTokens = 32'768;
constexpr int kFacts = 100;

int64_t Tokens() {
  const char* value = std::getenv("ANNULUS_RECALL_TOKENS");
  return value != nullptr ? std::stoll(value) : kSuiteTokens;
}

// Two documents on one engine. The first has small letters alone, so nothing of it is like a fact;
// its length is no multiple of a block.
class Witness {
 public:
  Witness(int64_t tokens, int facts, int ranks, RingMode mode = RingMode::kPassKv,
          const std::string& model = "builtin:recall")
      : backend_(CreateCpuBackend().value()) {
    RegisterCpuKernels(registry_);
    for (int i = 0; i < 1001; ++i) front_ += static_cast<char>('a' + (i * i + 3 * i) % 26);
    bench::DemoOptions demo{.bytes = tokens, .seed = 6, .depths = {}};
    for (int i = 0; i < facts; ++i) demo.depths.push_back((i + 0.5) / facts);
    document_ = bench::MakeDemoDocument(demo).value();
    EngineOptions options = testing::PlainOptions();
    options.model = model;
    options.ranks = ranks;
    options.threads = 2;
    options.kv_memory_bytes = static_cast<size_t>(tokens + 16'384 * ranks) * 3 * 1024;
    options.tokens_per_rank = 256;
    options.kv_dtype = DType::kBF16;
    options.ring_mode = mode;
    engine_ = CreateEngineWith({.through_bytes = true}, options, *backend_, registry_).value();
  }

  RequestSpec Question(const bench::DemoFact& fact) const {
    const std::string text = front_ + document_.text + fact.cue;
    RequestSpec spec;
    spec.prompt = engine_->Tokenize(text, true, CancelFlag::Never()).value();
    const auto front = static_cast<int32_t>(front_.size());
    const auto tokens = static_cast<int32_t>(document_.text.size());
    spec.documents = {{0, "front", front}, {front, "facts", tokens}};
    spec.shared_prefixes = {front + tokens};
    spec.sampling.temperature = 0;
    spec.sampling.max_tokens = 64;
    spec.sampling.stop = {"\n"};
    spec.evidence = true;
    return spec;
  }

  std::shared_ptr<CollectingSink> Run(RequestSpec spec) {
    auto sink = std::make_shared<CollectingSink>();
    const auto id = engine_->Submit(std::move(spec), sink);
    EXPECT_TRUE(id.ok()) << id.status();
    EXPECT_TRUE(sink->Wait(7200).has_value());
    return sink;
  }

  absl::Status Refusal(const RequestSpec& spec) const { return engine_->Validate(spec); }
  const bench::DemoDocument& document() const { return document_; }
  const Engine& engine() const { return *engine_; }

 private:
  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
  std::string front_;
  bench::DemoDocument document_;
  std::unique_ptr<Engine> engine_;  // last: it uses the others
};

// Whether the first passage of the answer has its first byte.
bool IsFirst(const bench::DemoFact& fact, const std::vector<SentenceEvidence>& evidence) {
  if (evidence.empty()) return false;
  const Passage& first = evidence.front().passages.front();
  const auto answer = fact.offset + static_cast<int64_t>(fact.cue.size());
  return first.document == 1 && first.begin <= answer && answer < first.end;
}

void CheckTruth(int64_t tokens) {
  Witness witness(tokens, kFacts, 1);
  int first = 0;
  for (const bench::DemoFact& fact : witness.document().facts) {
    const auto sink = witness.Run(witness.Question(fact));
    EXPECT_EQ(sink->text(), fact.answer);
    const std::vector<SentenceEvidence> evidence = sink->Wait()->evidence;
    const bool found = IsFirst(fact, evidence);
    EXPECT_TRUE(found) << "depth " << fact.depth << ", " << evidence.size() << " sentences";
    first += found ? 1 : 0;
  }
  std::cout << tokens << " tokens: the planted passage is first for " << first << " of " << kFacts
            << " facts" << std::endl;
}

TEST(EvidenceTruth, ThePlantedPassageIsFirst) {
  if (kThreadSanitizer) GTEST_SKIP() << "about answers; other cases run the same threads";
  CheckTruth(Tokens());
}

TEST(EvidenceTruth, IsTheSameOnEveryRing) {
  constexpr int64_t kTokens = 6000;
  std::vector<std::vector<SentenceEvidence>> expected;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      if (ranks == 1 && mode == RingMode::kPassQ) continue;  // nothing travels in either mode
      SCOPED_TRACE(::testing::Message() << ranks << " ranks, mode " << static_cast<int>(mode));
      Witness witness(kTokens, 5, ranks, mode);
      size_t next = 0;
      for (const bench::DemoFact& fact : witness.document().facts) {
        const auto sink = witness.Run(witness.Question(fact));
        EXPECT_EQ(sink->text(), fact.answer);
        const std::vector<SentenceEvidence> evidence = sink->Wait()->evidence;
        EXPECT_TRUE(IsFirst(fact, evidence)) << fact.depth;
        if (ranks == 1) expected.push_back(evidence);
        const std::vector<SentenceEvidence>& wanted = expected[next++];
        ASSERT_EQ(evidence.size(), wanted.size());
        for (size_t s = 0; s < evidence.size(); ++s) {
          ASSERT_EQ(evidence[s].passages.size(), wanted[s].passages.size());
          for (size_t p = 0; p < evidence[s].passages.size(); ++p) {
            EXPECT_EQ(evidence[s].passages[p].begin, wanted[s].passages[p].begin);
            EXPECT_EQ(evidence[s].passages[p].end, wanted[s].passages[p].end);
            // Pages are blocks, so a share has the same bits on every ring.
            EXPECT_EQ(evidence[s].passages[p].score, wanted[s].passages[p].score);
          }
        }
      }
    }
  }
}

TEST(EvidenceTruth, GuessesChangeNothing) {
  Witness witness(6000, 3, 2);
  for (const bench::DemoFact& fact : witness.document().facts) {
    RequestSpec spec = witness.Question(fact);
    const auto plain = witness.Run(spec);
    spec.speculation = Speculation::kNgram;
    const auto guessed = witness.Run(spec);
    EXPECT_EQ(guessed->ids(), plain->ids());
    const std::vector<SentenceEvidence> a = plain->Wait()->evidence;
    const std::vector<SentenceEvidence> b = guessed->Wait()->evidence;
    ASSERT_EQ(a.size(), b.size());
    ASSERT_THAT(a, SizeIs(1));
    EXPECT_EQ(a[0].passages[0].begin, b[0].passages[0].begin);
    EXPECT_EQ(a[0].passages[0].score, b[0].passages[0].score);
    EXPECT_GT(guessed->Wait()->usage.drafted_tokens, 0);
  }
}

TEST(EvidenceTruth, ComesWithTheTextAndAgainAtTheEnd) {
  Witness witness(6000, 1, 1);
  RequestSpec spec = witness.Question(witness.document().facts[0]);
  spec.sampling.stop.clear();
  spec.sampling.max_tokens = 120;  // it goes on with the records that follow
  const auto sink = witness.Run(spec);
  const std::vector<SentenceEvidence> all = sink->Wait()->evidence;
  const std::vector<SentenceEvidence> streamed = sink->evidence();
  ASSERT_GT(all.size(), 1);
  ASSERT_EQ(streamed.size(), all.size());
  int64_t end = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(streamed[i].begin, all[i].begin);
    EXPECT_GE(all[i].begin, end);
    EXPECT_GT(all[i].end, all[i].begin);
    end = all[i].end;
  }
  EXPECT_LE(end, static_cast<int64_t>(sink->text().size()));
  spec.evidence = false;
  const auto without = witness.Run(spec);
  EXPECT_EQ(without->ids(), sink->ids());
  EXPECT_THAT(without->Wait()->evidence, IsEmpty());
}

TEST(EvidenceTruth, RefusesWhatItCannotMeasure) {
  Witness witness(3000, 1, 1);
  const RequestSpec good = witness.Question(witness.document().facts[0]);
  EXPECT_TRUE(witness.Refusal(good).ok());
  const auto expect = [&](const RequestSpec& spec, const std::string& words) {
    const absl::Status status = witness.Refusal(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << words;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    EXPECT_EQ(status.GetPayload(kFieldPayload), absl::Cord("evidence"));
  };
  RequestSpec spec = good;
  spec.documents.clear();
  expect(spec, "the request has none");
  spec = good;
  spec.attention = ParsePolicy("window:window=512").value();
  expect(spec, "set attention.policy to \"dense\"");
  spec.attention = ParseAssignment("dense;layers=0: window:window=512").value();
  expect(spec, "set attention.policy to \"dense\"");
  spec.attention = ParsePolicy("auto").value();
  expect(spec, "set attention.policy to \"dense\"");
  spec = good;
  spec.prefill_only = true;
  expect(spec, "no answer");
  spec = good;
  std::swap(spec.documents[0], spec.documents[1]);
  expect(spec, "one after the other");
  spec = good;
  spec.documents[1].tokens += 1000;
  expect(spec, "one after the other");
  EXPECT_THAT(witness.engine().model().evidence_heads,
              "8 heads in layer 1, chosen by depth and not by measurement");
}

TEST(EvidenceHeads, AModelWithoutFullAttentionHasNone) {
  RequestSpec spec;
  spec.evidence = true;
  spec.prompt = {1, 2, 3};
  spec.documents = {{0, "a", 2}};
  const absl::Status status = CheckEvidence(spec, {}, AttentionAssignment());
  EXPECT_THAT(std::string(status.message()), HasSubstr("no layer that attends the whole prompt"));
  EXPECT_TRUE(CheckEvidence(spec, std::vector<LayerHead>{{0, 0}}, AttentionAssignment()).ok());
  EXPECT_EQ(DescribeEvidenceHeads({}, ""), "");
}

class EvidenceProfileTest : public ::testing::Test {
 protected:
  EvidenceProfileTest() : backend_(CreateCpuBackend().value()) { RegisterCpuKernels(registry_); }

  absl::StatusOr<std::string> HeadsOf(const std::string& profile) {
    EngineOptions options = testing::PlainOptions();
    options.model = "builtin:recall";
    options.kv_memory_bytes = size_t{32} << 20;
    directory_.Write("profile.json", profile);
    options.attention_profile = (directory_.path() / "profile.json").string();
    const auto engine = CreateEngine(options, *backend_, registry_);
    if (!engine.ok()) return engine.status();
    return (*engine)->model().evidence_heads;
  }

  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
  testing::TempDirectory directory_;
};

TEST_F(EvidenceProfileTest, NamesTheHeads) {
  EXPECT_EQ(HeadsOf(R"({"evidence":{"heads":[{"layer":1,"head":3,"score":0.9},)"
                    R"({"layer":1,"head":0}]},"sparse":{}})")
                .value(),
            "2 heads in layer 1, as the profile names them");
}

TEST_F(EvidenceProfileTest, OfAnotherModelIsRefused) {
  const auto refusal = [&](const std::string& profile) {
    const absl::Status status = HeadsOf(profile).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << profile;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal("{}"), HasSubstr("evidence"));
  EXPECT_THAT(refusal(R"({"evidence":{"heads":[]}})"), HasSubstr("at least one head"));
  EXPECT_THAT(refusal(R"({"evidence":{"heads":[{"layer":2,"head":0}]}})"), HasSubstr("layer"));
  EXPECT_THAT(refusal(R"({"evidence":{"heads":[{"layer":1,"head":8}]}})"), HasSubstr("head"));
  EXPECT_THAT(refusal(R"({"evidence":{"heads":[{"layer":0,"head":0}]}})"),
              HasSubstr("this layer has a window"));
  EXPECT_THAT(refusal(R"({"evidence":{"heads":[{"layer":1,"head":0},{"layer":1,"head":0}]}})"),
              HasSubstr("none twice"));
}

}  // namespace
}  // namespace annulus
