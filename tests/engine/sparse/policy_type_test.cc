#include "engine/sparse/policy_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/sparse/block_pattern.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;
using Source = BlockEstimate::Source;

AttentionPolicy Named(absl::string_view name) { return ParsePolicy(name).value(); }

TEST(PolicyTypeTest, TheTableIsInTheOrderOfTheKinds) {
  const std::vector<std::pair<PolicyKind, const char*>> named = {
      {PolicyKind::kDense, "dense"},       {PolicyKind::kWindow, "window"},
      {PolicyKind::kDilated, "dilated"},   {PolicyKind::kDilatedBlocks, "dilated_blocks"},
      {PolicyKind::kStrided, "strided"},   {PolicyKind::kGlobalLocal, "global_local"},
      {PolicyKind::kRandom, "random"},     {PolicyKind::kHierarchical, "hierarchical"},
      {PolicyKind::kAdaptive, "adaptive"}, {PolicyKind::kTopPages, "top_pages"},
      {PolicyKind::kLearned, "learned"},   {PolicyKind::kAuto, "auto"}};
  ASSERT_EQ(named.size(), kPolicyTypes.size());
  for (const auto& [kind, name] : named) {
    EXPECT_EQ(PolicyName(kind), name);
    EXPECT_EQ(Named(name).kind, kind);
  }
}

TEST(PolicyTypeTest, QuestionsAreAnswered) {
  struct Expected {
    const char* name;
    bool all = false;
    bool all_in_prompts = false;
    bool content = false;
    bool pattern = false;
    bool automatic = false;
    bool contract = false;
  };
  const Expected all_expected[] = {
      {.name = "dense", .all = true, .all_in_prompts = true},
      {.name = "window", .pattern = true, .contract = true},
      {.name = "dilated", .pattern = true},
      {.name = "dilated_blocks", .pattern = true, .contract = true},
      {.name = "strided", .pattern = true, .contract = true},
      {.name = "global_local", .pattern = true, .contract = true},
      {.name = "random", .pattern = true, .contract = true},
      {.name = "hierarchical", .content = true, .contract = true},
      {.name = "adaptive", .content = true, .contract = true},
      {.name = "top_pages", .all_in_prompts = true, .content = true},
      {.name = "learned", .content = true, .contract = true},
      {.name = "auto", .content = true, .automatic = true, .contract = true}};
  ASSERT_EQ(std::size(all_expected), kPolicyTypes.size());
  for (const Expected& expected : all_expected) {
    SCOPED_TRACE(expected.name);
    const AttentionPolicy policy = Named(expected.name);
    EXPECT_EQ(AttendsAll(policy), expected.all);
    EXPECT_EQ(AttendsAllInPrompts(policy), expected.all_in_prompts);
    EXPECT_EQ(ChoosesByContent(policy), expected.content);
    EXPECT_EQ(FollowsPattern(policy), expected.pattern);
    EXPECT_EQ(IsAutomatic(policy), expected.automatic);
    EXPECT_EQ(KeepsContract(policy), expected.contract);
    EXPECT_EQ(IsResolved(policy), !expected.automatic);
  }
  EXPECT_FALSE(IsResolved(Named("dilated:segments=auto")));
}

TEST(PolicyTypeTest, ScoresComeFromWhatThePolicySays) {
  const auto source = [](const char* text) { return EstimateOf(Named(text)).source; };
  EXPECT_EQ(source("window:coverage=0.9"), Source::kNothing);
  EXPECT_EQ(source("hierarchical"), Source::kMeans);
  EXPECT_EQ(source("adaptive"), Source::kAntidiagonals);
  EXPECT_EQ(source("adaptive:estimator=pooled"), Source::kMeans);
  EXPECT_EQ(source("top_pages"), Source::kBounds);
  EXPECT_EQ(source("learned"), Source::kGates);
  EXPECT_EQ(EstimateOf(Named("adaptive:stride=8")).stride, 8);
}

// What a row of the table promises goes together.
TEST(PolicyTypeTest, RowsAreComplete) {
  std::set<absl::string_view> names;
  for (const PolicyType* type : kPolicyTypes) {
    SCOPED_TRACE(type->name);
    EXPECT_TRUE(names.insert(type->name).second);
    EXPECT_THAT(DescribePolicies(), HasSubstr(absl::StrCat(type->name, ": ", type->summary)));
    EXPECT_FALSE(type->summary.empty());
    const AttentionPolicy policy = Named(type->name);
    if (!AttendsAll(policy)) {
      EXPECT_EQ(type->parameters.front(), &kBlockParameter);
    }
    for (const ChoiceKind kind : {type->prompts, type->answers}) {
      const bool scored = kind == ChoiceKind::kRanking || kind == ChoiceKind::kPicked;
      if (scored) {
        EXPECT_NE(type->estimate, nullptr);
      }
      EXPECT_TRUE(kind != ChoiceKind::kLists || type->append_blocks != nullptr);
      EXPECT_TRUE(kind != ChoiceKind::kPicked || type->pick != nullptr);
    }
    EXPECT_TRUE(type->branches == nullptr || type->append_blocks != nullptr);
    for (const AutoForm& form : type->forms) {
      EXPECT_EQ(TypeOf(Named(form.policy).kind).name, type->name);
      EXPECT_TRUE(KeepsContract(policy));
    }
  }
}

TEST(PolicyTypeTest, BlocksAreCountedWithoutTheirList) {
  for (const PolicyType* type : kPolicyTypes) {
    EXPECT_EQ(type->count_blocks != nullptr, type->prompts == ChoiceKind::kLists) << type->name;
  }
  for (const char* text :
       {"window", "window:window=1", "window:block=16,sinks=17,window=100", "window:sinks=0",
        "strided", "strided:stride=3,local=0", "strided:stride=1,local=0", "strided:local=900",
        "strided:stride=700,local=2", "global_local", "global_local:window=64,global=900",
        "global_local:global=0", "random", "random:window=64,global=3,random=8",
        "random:window=64,global=900", "random:window=64,random=4096,global=0", "dilated_blocks",
        "dilated_blocks:rates=1/5/64"}) {
    const AttentionPolicy policy = Named(text);
    const PolicyType& type = TypeOf(policy.kind);
    for (int head = 0; head < 4; ++head) {
      for (int32_t i = 0; i < 300; ++i) {
        std::vector<int32_t> blocks;
        type.append_blocks(policy, head, i, blocks);
        ASSERT_EQ(type.count_blocks(policy, head, i), std::ssize(blocks))
            << text << ", head " << head << ", block " << i;
      }
    }
  }
}

TEST(PolicyTypeTest, ExtentsMakeListsDenserOrSparser) {
  for (const PolicyType* type : kPolicyTypes) {
    if (type->extent.set == nullptr) continue;
    SCOPED_TRACE(type->name);
    const auto pairs = [&](int64_t blocks) {
      AttentionPolicy policy = Named(type->name);
      type->extent.set(policy, blocks);
      return CountPairs(BuildBlockPattern(policy, ShapeFor(policy, 0, 64 * 200, 3)), 0, 64 * 200)
          .chosen;
    };
    EXPECT_EQ(pairs(20) > pairs(2), type->extent.denser);
  }
}

TEST(PolicyTypeTest, TopPagesPicksTheHighestScoresAndItsOwnBlock) {
  const auto pick = [](const char* text, const std::vector<float>& scores) {
    std::vector<int32_t> blocks;
    const AttentionPolicy policy = Named(text);
    TypeOf(policy.kind).pick(policy, scores, blocks);
    return blocks;
  };
  const std::vector<float> scores = {1, 7, 3, 7, 2, -5};
  EXPECT_EQ(pick("top_pages:pages=1", scores), (std::vector<int32_t>{3, 5}));
  EXPECT_EQ(pick("top_pages:pages=3", scores), (std::vector<int32_t>{1, 2, 3, 5}));
  EXPECT_EQ(pick("top_pages:pages=9", scores), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(pick("top_pages", {4}), (std::vector<int32_t>{0}));
  // Blocks 5, 4 and 3 are near; of [0, 3) the best is taken.
  EXPECT_EQ(pick("hierarchical:near=2,fan=4", scores), (std::vector<int32_t>{1, 3, 4, 5}));
}

}  // namespace
}  // namespace annulus
