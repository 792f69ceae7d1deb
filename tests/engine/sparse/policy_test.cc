#include "engine/sparse/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace annulus {
namespace {

using ::testing::HasSubstr;

constexpr char kAll[][16] = {"dense",    "window",       "dilated", "dilated_blocks",
                             "strided",  "global_local", "random",  "hierarchical",
                             "adaptive", "top_pages"};

std::string Error(const std::string& text) {
  const auto policy = ParsePolicy(text);
  EXPECT_EQ(policy.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(policy.status().message());
}

TEST(PolicyTest, EveryNameStandsForItsDefaults) {
  for (const char* name : kAll) {
    const auto policy = ParsePolicy(name);
    ASSERT_TRUE(policy.ok()) << policy.status();
    EXPECT_EQ(PolicyName(policy->kind), name);
    EXPECT_TRUE(CheckPolicy(*policy, 64).ok());
    AttentionPolicy defaults;
    defaults.kind = policy->kind;
    EXPECT_EQ(*policy, defaults);
    EXPECT_THAT(DescribePolicies(), HasSubstr(name));
  }
}

TEST(PolicyTest, TextReadsBack) {
  for (const char* name : kAll) {
    const AttentionPolicy policy = ParsePolicy(name).value();
    EXPECT_EQ(ParsePolicy(PolicyText(policy)).value(), policy) << PolicyText(policy);
  }
  const AttentionPolicy policy = ParsePolicy("window:window=1000,sinks=0").value();
  EXPECT_EQ(policy.window, 1000);
  EXPECT_EQ(policy.sinks, 0);
  EXPECT_EQ(PolicyText(policy), "window:block=64,sinks=0,window=1000");
  EXPECT_EQ(PolicyText(ParsePolicy("adaptive:coverage=0.9").value()),
            "adaptive:block=64,stride=16,estimator=antidiagonal,tau=0.95,coverage=0.9");
  for (const char* text : {"adaptive:tau=0.1234567890123456", "window:coverage=1",
                           "adaptive:estimator=pooled,tau=1e-9"}) {
    const AttentionPolicy share = ParsePolicy(text).value();
    EXPECT_EQ(ParsePolicy(PolicyText(share)).value(), share) << PolicyText(share);
  }
  EXPECT_EQ(ParsePolicy("dilated_blocks:rates=1/3/9").value().rates,
            (std::vector<int32_t>{1, 3, 9}));
  EXPECT_EQ(PolicyText(ParsePolicy("dilated:segments=auto").value()),
            "dilated:block=64,segments=auto");
}

TEST(PolicyTest, AutoSegmentsDoubleUntilOneHoldsTheSequence) {
  const AttentionPolicy policy = ParsePolicy("dilated:segments=auto").value();
  EXPECT_TRUE(CheckPolicy(policy, 64).ok());
  const auto text = [&](int64_t tokens) { return PolicyText(ResolvePolicy(policy, tokens)); };
  EXPECT_EQ(text(1), "dilated:block=64,segments=2048,rates=1");
  EXPECT_EQ(text(2048), "dilated:block=64,segments=2048,rates=1");
  EXPECT_EQ(text(2049), "dilated:block=64,segments=2048/4096,rates=1/2");
  EXPECT_EQ(text(9000), "dilated:block=64,segments=2048/4096/8192/16384,rates=1/2/4/8");
  const AttentionPolicy longest = ResolvePolicy(policy, INT32_MAX);
  EXPECT_EQ(longest.segments.back(), 1 << 30);
  EXPECT_TRUE(CheckPolicy(longest, 64).ok());
  const AttentionPolicy given = ParsePolicy("dilated").value();
  EXPECT_EQ(ResolvePolicy(given, 100), given);
}

TEST(PolicyTest, SegmentsFitTheirRatesAndBlocks) {
  const auto error = [](const char* text) {
    return std::string(CheckPolicy(ParsePolicy(text).value(), 64).message());
  };
  EXPECT_EQ(error("dilated"), "");
  EXPECT_EQ(error("dilated:segments=192/320,rates=3/1"), "");
  EXPECT_THAT(error("dilated:segments=2048/4096"), HasSubstr("2 segments and 3 rates are given"));
  EXPECT_THAT(error("dilated:segments=2048/4096,rates=1/3"),
              HasSubstr("segment 4096 is not allowed: give a multiple of its rate (3)"));
  EXPECT_THAT(error("dilated:segments=100,rates=1"), HasSubstr("of the block (64)"));
  EXPECT_THAT(error("dilated:segments=2048,rates=2"), HasSubstr("one rate must be 1"));
  EXPECT_THAT(error("dilated:segments=auto,rates=1/3"),
              HasSubstr("rates are not allowed with segments=auto"));
  EXPECT_THAT(error("dilated:segments=auto,block=4096"), HasSubstr("block 4096 is not allowed"));
  EXPECT_THAT(error("dilated:segments=auto,block=192"),
              HasSubstr("it must divide the first segment"));
  EXPECT_EQ(error("dilated:segments=auto,block=2048"), "");
  EXPECT_THAT(Error("dilated:segments=0"), HasSubstr("'0' is not allowed: 1 to"));
  EXPECT_THAT(Error("dilated:coverage=0.9"), HasSubstr("has no parameter 'coverage'"));
}

TEST(PolicyTest, ErrorsTeach) {
  EXPECT_THAT(Error("hierarchic"), HasSubstr("did you mean hierarchical?"));
  EXPECT_THAT(Error(""), HasSubstr("Known: dense, window"));
  EXPECT_THAT(Error("window:windows=3"), HasSubstr("did you mean window?"));
  EXPECT_THAT(Error("window:stride=3"), HasSubstr("It has: block, sinks, window"));
  EXPECT_THAT(Error("dense:block=64"), HasSubstr("has no parameters"));
  EXPECT_THAT(Error("window:window=0"), HasSubstr("window '0' is not allowed: 1 to 1073741824"));
  EXPECT_THAT(Error("window:window=-5"), HasSubstr("'-5' is not allowed"));
  EXPECT_THAT(Error("window:window"), HasSubstr("'' is not allowed"));
  EXPECT_THAT(Error("window:window=9999999999"), HasSubstr("is not allowed"));
  EXPECT_THAT(Error("strided:stride=0"), HasSubstr("1 to 1048576"));
  EXPECT_THAT(Error("dilated_blocks:rates=1//2"), HasSubstr("rates ''"));
  EXPECT_THAT(Error("dilated_blocks:rates="), HasSubstr("rates ''"));
  EXPECT_THAT(Error("adaptive:estimator=pool"), HasSubstr("did you mean pooled?"));
  EXPECT_THAT(Error("top_pages:pages=0"), HasSubstr("1 to 1048576"));
  EXPECT_THAT(Error("top_pages:coverage=0.9"), HasSubstr("has no parameter 'coverage'"));
  for (const char* share : {"0", "-0.5", "1.0001", "nan", "inf", "", "1x"}) {
    for (const char* name : {"tau", "coverage"}) {
      EXPECT_THAT(Error(std::string("adaptive:") + name + "=" + share),
                  HasSubstr("is not allowed: above 0, at most 1"));
    }
  }
  std::string many = "dilated_blocks:rates=1";
  for (int i = 0; i < 100; ++i) many += "/1";
  EXPECT_THAT(Error(many), HasSubstr("at most 64 rates"));
}

TEST(PolicyTest, ChecksValuesThatWereSetByHand) {
  AttentionPolicy policy = ParsePolicy("window").value();
  policy.window = 0;
  EXPECT_FALSE(CheckPolicy(policy, 64).ok());
  policy = ParsePolicy("dilated_blocks").value();
  policy.rates = {};
  EXPECT_FALSE(CheckPolicy(policy, 64).ok());
  policy.rates = {0};
  EXPECT_FALSE(CheckPolicy(policy, 64).ok());
  policy = ParsePolicy("adaptive").value();
  policy.score_stride = 12;
  EXPECT_THAT(std::string(CheckPolicy(policy, 64).message()), HasSubstr("8 or 16"));
  policy.score_stride = 8;
  EXPECT_TRUE(CheckPolicy(policy, 64).ok());
  for (const double share : {-0.1, 1.5, std::nan("")}) {
    policy.coverage = share;
    EXPECT_FALSE(CheckPolicy(policy, 64).ok()) << share;
  }
  policy = ParsePolicy("strided:block=96").value();
  EXPECT_TRUE(CheckPolicy(policy, 32).ok());
  EXPECT_THAT(
      std::string(CheckPolicy(policy, 64).message()),
      HasSubstr("block 96 is not allowed: give a multiple of the page, which has 64 tokens"));
}

}  // namespace
}  // namespace annulus
