#include "engine/sparse/assignment.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;

std::string Refusal(const std::string& text) {
  const auto assignment = ParseAssignment(text);
  if (!assignment.ok()) return std::string(assignment.status().message());
  return std::string(CheckAssignment(*assignment, {64, 8, 4}).message());
}

TEST(Assignment, APolicyAloneHoldsEverywhere) {
  const AttentionAssignment alone = ParseAssignment("window:window=512").value();
  EXPECT_TRUE(alone.rules.empty());
  EXPECT_EQ(alone, AttentionAssignment(ParsePolicy("window:window=512").value()));
  EXPECT_EQ(AssignmentText(alone), "window:block=64,sinks=64,window=512");
  EXPECT_EQ(alone.Of(7, 3).window, 512);
  EXPECT_FALSE(alone.dense());
  EXPECT_TRUE(ParseAssignment("dense; layers=1: dense").value().dense());
}

TEST(Assignment, TheLastRuleThatNamesALayerAndHeadHolds) {
  const std::string text =
      "adaptive:tau=0.9; layers=0-1: dense;heads=2-3 :strided ; layers=1-4,heads=3: window";
  const AttentionAssignment rules = ParseAssignment(text).value();
  EXPECT_EQ(Refusal(text), "");
  EXPECT_EQ(rules.Of(0, 0).kind, PolicyKind::kDense);
  EXPECT_EQ(rules.Of(0, 2).kind, PolicyKind::kStrided);
  EXPECT_EQ(rules.Of(1, 3).kind, PolicyKind::kWindow);
  EXPECT_EQ(rules.Of(4, 3).kind, PolicyKind::kWindow);
  EXPECT_EQ(rules.Of(5, 3).kind, PolicyKind::kStrided);
  EXPECT_EQ(rules.Of(5, 1).tau, 0.9);
  // What is in effect reads back.
  EXPECT_EQ(ParseAssignment(AssignmentText(rules)).value(), rules);
  EXPECT_THAT(AssignmentText(rules), HasSubstr("; layers=0-1: dense; heads=2-3: strided:block=64"));
  EXPECT_THAT(AssignmentText(rules), HasSubstr("; layers=1-4,heads=3: window:"));
}

TEST(Assignment, HeadsWithOnePolicyAreOnePart) {
  const AttentionAssignment rules =
      ParseAssignment("dense; heads=1: window:block=128; heads=3: window:block=128").value();
  const std::vector<LayerPart> parts = PartsOf(rules, 0, 4);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].heads, (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(parts[1].heads, (std::vector<bool>{false, true, false, true}));
  // Dense takes on the blocks of the others.
  EXPECT_EQ(parts[0].policy.block, 128);
}

TEST(Assignment, LengthsAreResolvedInEveryRule) {
  const AttentionAssignment rules =
      ParseAssignment("dense; layers=2: dilated:segments=auto").value();
  EXPECT_TRUE(rules.Of(2, 0).segments.empty());
  EXPECT_FALSE(ResolveAssignment(rules, 10'000).Of(2, 0).segments.empty());
}

TEST(Assignment, WhatIsNotAllowedIsNamed) {
  EXPECT_THAT(Refusal("strieded; layers=0: dense"), HasSubstr("did you mean strided?"));
  EXPECT_THAT(Refusal("dense; layers=0: windw"), HasSubstr("did you mean window?"));
  EXPECT_THAT(Refusal("dense; window"), HasSubstr("layers=A-B:POLICY"));
  EXPECT_THAT(Refusal("dense; layer=1: window"), HasSubstr("is not allowed"));
  EXPECT_THAT(Refusal("dense; layers=3-1: window"), HasSubstr("A at most B"));
  EXPECT_THAT(Refusal("dense; layers=-1: window"), HasSubstr("is not allowed"));
  EXPECT_THAT(Refusal("dense; layers=1,layers=2: window"), HasSubstr("is not allowed"));
  EXPECT_THAT(Refusal("dense; layers=8: window"), HasSubstr("the model's layers are 0 to 7"));
  EXPECT_THAT(Refusal("dense; heads=2-4: window"), HasSubstr("the model's heads are 0 to 3"));
  EXPECT_THAT(Refusal("dense; heads=1: window:block=32"), HasSubstr("a multiple of the page"));
  EXPECT_THAT(Refusal("strided; heads=1: window:block=128"),
              HasSubstr("blocks of 64 and of 128 tokens are not allowed together"));
  EXPECT_THAT(Refusal("dense; heads=1: dilated"), HasSubstr("give it to all heads of the layer"));
  EXPECT_EQ(Refusal("dense; layers=1: dilated"), "");
  EXPECT_THAT(Refusal("auto; layers=1: dense"),
              HasSubstr("auto is not allowed together with rules"));
  EXPECT_THAT(Refusal("dense; layers=1: auto"),
              HasSubstr("auto is not allowed together with rules"));
  std::string many = "dense";
  for (size_t i = 0; i <= kMostRules; ++i) many += "; layers=1: window";
  EXPECT_THAT(Refusal(many), HasSubstr("at most 64"));
}

}  // namespace
}  // namespace annulus
