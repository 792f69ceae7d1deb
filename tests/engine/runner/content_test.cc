// Attention policies that look at content, on whole models: every row's logits against a plain
// forward pass under the lists that the ranks report.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <random>

#include "engine/sparse/block_ranking.h"
#include "engine/sparse/dilated.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/runner/masked_checkpoint.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::DriverResult;
using testing::KeptBy;
using testing::Lists;
using testing::MaskedCheckpoint;
using testing::RandomPrompt;
using testing::RelativeError;
using testing::StepDriver;
using testing::ToleranceOf;

// Logits of every position of prompt and answer under the reported lists, as a dense mask; layers
// that are dilated have their branches' mask.
std::vector<float> MaskedByLists(const MaskedCheckpoint& checkpoint,
                                 const AttentionAssignment& attention, const DriverResult& result,
                                 const std::vector<int32_t>& ids, DType kv_dtype) {
  std::vector<std::vector<DilatedBranch>> branches;  // [layer]
  for (size_t layer = 0; layer < checkpoint.config.layers.size(); ++layer) {
    branches.push_back(DilatedBranches(attention.Of(static_cast<int32_t>(layer), 0)));
  }
  const auto mask = [&](int64_t layer, int64_t head, int64_t row, int64_t key) {
    if (!branches[layer].empty()) {
      return KeptBy(branches[layer], head, row, key);
    }
    const auto found = result.lists.find({static_cast<int32_t>(layer), static_cast<int32_t>(row)});
    if (found == result.lists.end()) return 1;
    return Lists(*found->second, checkpoint.per_kv_head(), head, row, key) ? 1 : 0;
  };
  return checkpoint.Logits(ids, mask, kv_dtype);
}

PairCount Pairs(const DriverResult& result) {
  PairCount pairs;
  for (const LayerAttention& part : result.attention) pairs += part.pairs;
  return pairs;
}

// A prime number of them: then the turns below pair each with every model.
constexpr const char* kContentPolicies[] = {
    "adaptive:block=16,tau=0.5",
    "adaptive:block=16,tau=0.6,stride=8",
    "adaptive:block=16,estimator=pooled,tau=0.4",
    "adaptive:block=16,coverage=0.6",
    "hierarchical:near=2,block=32",
    "hierarchical:near=2,block=16,coverage=0.9",
    "top_pages:pages=3,block=16",
    "window:window=40,block=16,coverage=0.5",
    "window:window=40,block=16; layers=0: dense; layers=1: adaptive:block=16,tau=0.5",
    "adaptive:block=16,tau=0.5; heads=0: window:window=40,block=16; layers=2: "
    "top_pages:block=16,pages=3",
    "learned:block=16,tau=0.5",
    "learned:block=16,top=3",
    "learned:block=16,coverage=0.6",
    "adaptive:block=16,tau=0.5; heads=0: learned:block=16,top=2",
    "random:window=20,random=2,block=16; layers=1: dilated:segments=32/96,rates=1/3,block=16",
    "dilated_blocks:rates=1/2/3,block=16,coverage=0.5; heads=1: strided:stride=3,local=1,block=16",
    "adaptive:block=16,tau=0.5; layers=0: dilated:segments=64/256,rates=1/2,block=16",
};

// One setting of a whole model under a policy, against the reported lists applied densely.
struct Setting {
  const MaskedCheckpoint* checkpoint = nullptr;
  std::string name;
  std::string policy;
  const OpTable* ops = nullptr;
  DType kv_dtype = DType::kF32;
  int ranks = 1;
  RingMode mode = RingMode::kPassKv;
  int prefill_rows = MaskedCheckpoint::kPage;
  int prompt_tokens = 419;
  int reused_tokens = 0;
  uint32_t seed = 0;
};

void CheckSetting(CpuWorld& world, const Setting& setting) {
  constexpr int kAnswer = 4;
  const double tolerance = ToleranceOf(*setting.ops, setting.kv_dtype);
  const MaskedCheckpoint& checkpoint = *setting.checkpoint;
  const int vocabulary = checkpoint.config.vocabulary;
  SCOPED_TRACE(::testing::Message()
               << setting.name << ", " << setting.policy << ", " << setting.ops->name << ", "
               << std::string(DTypeName(setting.kv_dtype)) << ", " << setting.ranks
               << " ranks, mode " << static_cast<int>(setting.mode) << ", chunks of "
               << setting.prefill_rows << " rows a rank, " << setting.reused_tokens
               << " tokens reused, seed " << setting.seed);
  const std::vector<int32_t> prompt = RandomPrompt(setting.prompt_tokens, vocabulary, setting.seed);
  const RankModel model = checkpoint.Load(world, *setting.ops, setting.kv_dtype);
  DriverOptions options;
  options.ranks = setting.ranks;
  options.mode = setting.mode;
  options.prefill_rows = setting.prefill_rows;
  options.all_logits = true;
  options.report_lists = true;
  options.reused_tokens = setting.reused_tokens;
  options.attention = ParseAssignment(setting.policy).value();
  // Not every model has what the rules name, and ranks refuse what is not there.
  std::erase_if(options.attention->rules, [&](const AttentionRule& rule) {
    return rule.first_layer >= model.layers() || rule.first_head >= model.page_shape.kv_heads;
  });
  const DriverResult result = StepDriver(world, model, options).Run({prompt}, kAnswer)[0];
  std::vector<int32_t> ids = prompt;
  ids.insert(ids.end(), result.tokens.begin(), result.tokens.end() - 1);
  const std::vector<float> expected =
      MaskedByLists(checkpoint, *options.attention, result, ids, setting.kv_dtype);
  // The last row of a prompt gives a token instead, that of the reused part too.
  ASSERT_EQ(result.logits.size(), prompt.size() - 1 - (setting.reused_tokens > 0 ? 1 : 0));
  EXPECT_LE(RelativeError(result.logits, expected, vocabulary), tolerance);
  // The answer's rows follow their lists too.
  for (size_t n = 0; n < result.tokens.size(); ++n) {
    const float* const row = expected.data() + (prompt.size() - 1 + n) * vocabulary;
    const float best = *std::max_element(row, row + vocabulary);
    EXPECT_NEAR(row[result.tokens[n]], best, 10 * tolerance * std::abs(best)) << n;
  }
  EXPECT_FALSE(result.lists.empty());
  // A contract may make everything dense.
  if (options.attention->policy.coverage == 0) {
    EXPECT_LT(Pairs(result).density(), 1);
  }
}

// Every degree of a ring in both modes; each policy, ratio of query to key heads, kernel table,
// size of chunks and reuse of a prompt's beginning meets some of them. All policies meet all of
// them with
//   ANNULUS_EXACTNESS=full
TEST(Content, EveryRowEqualsTheReportedListsAppliedDensely) {
  CpuWorld world;
  const char* const exactness = std::getenv("ANNULUS_EXACTNESS");
  const bool full = exactness != nullptr && std::string(exactness) == "full";
  const size_t each = full ? std::size(kContentPolicies) : kSanitized ? 1 : 3;
  const std::vector<const OpTable*> tables = world.registry.Available("cpu");
  // One, two and four query heads for each key head; full layers between windows.
  const std::vector<std::string> names = {"llama_mha", "llama_gqa_bf16", "llama_rope3_sharded",
                                          "llama_windows"};
  std::vector<MaskedCheckpoint> checkpoints;
  for (const std::string& name : names) checkpoints.emplace_back(name);
  std::mt19937 random(static_cast<uint32_t>(testing::TestSeed()));
  size_t turn = 0;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      for (size_t n = 0; n < each; ++n, ++turn) {
        // Moved on by one in each round: else, with one turn for each, one mode would meet half of
        // the models.
        const size_t model = (turn + turn / names.size()) % names.size();
        Setting setting;
        setting.checkpoint = &checkpoints[model];
        setting.name = names[model];
        setting.policy = kContentPolicies[turn % std::size(kContentPolicies)];
        // Without the last, the scalar reference.
        setting.ops = tables[random() % (tables.size() - 1)];
        setting.ranks = ranks;
        setting.mode = mode;
        setting.prefill_rows = MaskedCheckpoint::kPage * (1 + static_cast<int>(random() % 8));
        if (random() % 2 == 0) setting.reused_tokens = 10 * MaskedCheckpoint::kPage;
        setting.seed = random();
        CheckSetting(world, setting);
      }
    }
  }
}

// The first layer's lists leave out whole ranks, whose states another layer, or a contract that
// falls back to all, must have room for.
TEST(Content, MoreMayBeSeenThanTheFirstListsSay) {
  CpuWorld world;
  const MaskedCheckpoint checkpoint("llama_rope3_sharded");
  for (const char* policy :
       {"random:window=20,random=2,block=16; layers=1: dilated:segments=32/96,rates=1/3,block=16",
        "strided:stride=8,local=4,block=16,coverage=0.99",
        "window:window=40,block=16,coverage=0.99"}) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      for (const int ranks : testing::ThinnedIfSanitized<int>({4, 8}, 1)) {
        Setting setting;
        setting.checkpoint = &checkpoint;
        setting.name = "llama_rope3_sharded";
        setting.policy = policy;
        setting.ops = world.registry.Available("cpu").front();
        setting.ranks = ranks;
        setting.mode = mode;
        setting.prefill_rows = MaskedCheckpoint::kPage;
        setting.seed = 1372070032;
        CheckSetting(world, setting);
      }
    }
  }
}

// Against a reference that stores keys and values alike.
TEST(Content, EveryKvDtypeFollowsItsLists) {
  CpuWorld world;
  const MaskedCheckpoint checkpoint("llama_gqa_bf16");
  const std::vector<const OpTable*> tables = world.registry.Available("cpu");
  uint32_t seed = 40;
  std::vector<Setting> settings;
  for (const DType dtype :
       {DType::kBF16, DType::kF16, DType::kI8, DType::kF8E4M3, DType::kF8E5M2}) {
    for (const char* policy : {"adaptive:block=16,tau=0.6,stride=8", "top_pages:pages=3,block=16",
                               "hierarchical:near=2,block=16", "learned:block=16,tau=0.5"}) {
      Setting& setting = settings.emplace_back();
      setting.checkpoint = &checkpoint;
      setting.name = "llama_gqa_bf16";
      setting.policy = policy;
      setting.ops = tables[++seed % (tables.size() - 1)];
      setting.kv_dtype = dtype;
      setting.ranks = 1 + static_cast<int>(seed % 8);
      setting.mode = seed / 8 % 2 == 0 ? RingMode::kPassKv : RingMode::kPassQ;
      setting.prefill_rows = 48;
      setting.prompt_tokens = 300;
      setting.reused_tokens = seed % 3 == 0 ? 112 : 0;
      setting.seed = seed;
    }
  }
  for (const Setting& setting : testing::ThinnedIfSanitized(settings, 10)) {
    CheckSetting(world, setting);
  }
}

// Storage types of keys and values: against one rank of the same dtype, by the same kernels, whose
// lists are the same but for ties: a step has the same rows, as a contract is kept step by step.
TEST(Content, RingsOfEveryKvDtypeAgree) {
  CpuWorld world;
  const MaskedCheckpoint checkpoint("llama_gqa_bf16");
  const int vocabulary = checkpoint.config.vocabulary;
  const std::vector<int32_t> prompt = RandomPrompt(500, vocabulary, 31);
  for (const DType dtype :
       {DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kF8E5M2, DType::kI8}) {
    // The narrowest type in float32: multiplied in bf16, too many keys fall this way and that.
    const OpTable* const exact = dtype == DType::kF8E5M2 ? world.Find("cpu/avx2") : nullptr;
    const OpTable& ops = exact != nullptr ? *exact : *world.registry.Available("cpu")[0];
    const RankModel model = checkpoint.Load(world, ops, dtype);
    for (const char* text : {"adaptive:block=16,coverage=0.7", "top_pages:pages=4,block=16"}) {
      DriverOptions options;
      options.prefill_rows = 8 * 16;
      options.report_lists = true;
      options.attention = ParsePolicy(text).value();
      options.ranks = 1;
      const DriverResult one = StepDriver(world, model, options).Run({prompt}, 3)[0];
      for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
        options.ranks = 3;
        options.prefill_rows = 3 * 16;  // of 8 pages 3 ranks have 3, 3 and 2
        options.mode = mode;
        const DriverResult three = StepDriver(world, model, options).Run({prompt}, 3)[0];
        SCOPED_TRACE(::testing::Message() << text << ", " << std::string(DTypeName(dtype)));
        EXPECT_EQ(one.tokens, three.tokens);
        EXPECT_NEAR(Pairs(one).density(), Pairs(three).density(), 0.1);
      }
    }
  }
}

// The softmax of an estimate is over the keys of all ranks, so each ring chooses as one rank does.
// Sums in another order may turn a block or two of thousands.
TEST(Content, AntidiagonalsChooseAlikeOnEveryRing) {
  CpuWorld world;
  const MaskedCheckpoint checkpoint("llama_gqa_bf16");
  const std::vector<int32_t> prompt = RandomPrompt(700, checkpoint.config.vocabulary, 77);
  for (const char* text : {"adaptive:block=16,tau=0.7", "adaptive:block=16,tau=0.8,stride=8"}) {
    const RankModel model =
        checkpoint.Load(world, *world.registry.Available("cpu")[0], DType::kBF16);
    const auto run = [&](int ranks) {
      DriverOptions options;
      options.ranks = ranks;
      options.prefill_rows = 384 / ranks;
      options.report_lists = true;
      options.attention = ParsePolicy(text).value();
      return StepDriver(world, model, options).Run({prompt}, 2)[0];
    };
    const DriverResult one = run(1);
    ASSERT_FALSE(one.lists.empty());
    for (const int ranks : {2, 4, 8}) {
      SCOPED_TRACE(::testing::Message() << text << ", " << ranks << " ranks");
      const DriverResult ring = run(ranks);
      int64_t chosen = 0;
      int64_t differ = 0;
      for (const auto& [at, lists] : one.lists) {
        const auto other = ring.lists.find(at);
        ASSERT_NE(other, ring.lists.end()) << "layer " << at.first << " row " << at.second;
        for (int kv_head = 0; kv_head < lists->shape.head_groups; ++kv_head) {
          const auto ours = lists->keys(kv_head, at.second / lists->block_tokens);
          const auto theirs = other->second->keys(kv_head, at.second / lists->block_tokens);
          std::vector<int32_t> either;
          std::set_symmetric_difference(ours.begin(), ours.end(), theirs.begin(), theirs.end(),
                                        std::back_inserter(either));
          chosen += std::ssize(ours);
          differ += std::ssize(either);
        }
      }
      EXPECT_EQ(one.lists.size(), ring.lists.size());
      EXPECT_LE(static_cast<double>(differ), 1e-3 * static_cast<double>(chosen)) << chosen;
      EXPECT_EQ(one.tokens, ring.tokens);
    }
  }
}

// Lists without a contract are sampled beside their attention, in few parts: that gives what the
// chooser finds for the same rows, block by block, when a contract asks for next to nothing.
TEST(Content, CoverageOfKnownListsIsThatOfTheChooser) {
  CpuWorld world;
  const MaskedCheckpoint checkpoint("llama_gqa_bf16");
  const RankModel model = checkpoint.Load(world, *world.registry.Available("cpu")[0], DType::kF32);
  constexpr int kMostParts = 256;  // of a row: beyond, blocks are taken together
  const std::vector<int32_t> prompt =
      RandomPrompt(kMostParts * 16 + 500, checkpoint.config.vocabulary, 14);
  const auto run = [&](const std::string& text, int ranks) {
    DriverOptions options;
    options.ranks = ranks;
    options.prefill_rows = 2048;
    options.attention = ParsePolicy(text).value();
    return StepDriver(world, model, options).Run({prompt}, 1)[0];
  };
  // By layer and chunk: the covered shares of all ranks' rows, and their number.
  const auto sampled = [](const DriverResult& result) {
    std::map<std::pair<int32_t, int32_t>, std::pair<double, int>> found;
    for (const LayerAttention& part : result.attention) {
      auto& [sum, rows] = found[{part.layer, part.begin}];
      for (const double covered : part.covered) sum += covered;
      rows += part.probes;
    }
    return found;
  };
  // Heads of `random` have different lists.
  for (const char* policy :
       {"window:window=64,sinks=16,block=16", "random:window=64,random=4,block=16"}) {
    for (const int ranks : {1, 3}) {
      SCOPED_TRACE(::testing::Message() << policy << ", " << ranks << " ranks");
      const DriverResult known = run(policy, ranks);
      const DriverResult chosen = run(std::string(policy) + ",coverage=1e-6", ranks);
      const auto theirs = sampled(chosen);
      int64_t all_rows = 0;
      for (const auto& [at, ours] : sampled(known)) {
        const auto& [sum, rows] = theirs.at(at);
        EXPECT_EQ(ours.second, rows);
        all_rows += rows;
        // Sums of exponentials in another order: some roundings of float32 a row and head.
        EXPECT_NEAR(ours.first, sum, 1e-5 * rows * checkpoint.attention().heads);
      }
      EXPECT_GE(all_rows, 32);  // in the layers that all rows need
    }
  }
}

// Coverage of dilated is that of the union of its branches: keys that two keep count once. Rows of
// an answer are sampled where they choose.
TEST(Content, CoverageOfTokensAndOfAnswersIsSampled) {
  CpuWorld world;
  const MaskedCheckpoint checkpoint("llama_gqa_bf16");
  const RankModel model = checkpoint.Load(world, *world.registry.Available("cpu")[0], DType::kF32);
  const std::vector<int32_t> prompt = RandomPrompt(600, checkpoint.config.vocabulary, 12);
  const auto coverage = [&](const std::string& text, int ranks, RingMode mode, int answer) {
    DriverOptions options;
    options.ranks = ranks;
    options.mode = mode;
    options.prefill_rows = 64;
    options.attention = ParsePolicy(text).value();
    const auto result = StepDriver(world, model, options).Run({prompt}, answer)[0];
    double sum = 0;
    double count = 0;
    for (const LayerAttention& part : result.attention) {
      for (const double covered : part.covered) sum += covered;
      count += part.probes * static_cast<double>(part.covered.size());
    }
    return count == 0 ? -1 : sum / count;
  };
  for (const int ranks : {1, 3, 8}) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      SCOPED_TRACE(::testing::Message() << ranks << " ranks, mode " << static_cast<int>(mode));
      EXPECT_NEAR(coverage("dilated:segments=1024,rates=1,block=16", ranks, mode, 1), 1, 1e-5);
      const double once = coverage("dilated:segments=64,rates=1,block=16", ranks, mode, 1);
      EXPECT_GT(once, 0);
      EXPECT_LT(once, 0.7);
      EXPECT_NEAR(coverage("dilated:segments=64/64,rates=1/1,block=16", ranks, mode, 1), once,
                  1e-5);
      const double more = coverage("dilated:segments=64/256,rates=1/2,block=16", ranks, mode, 1);
      EXPECT_GT(more, 1.2 * once);
      EXPECT_LT(more, 0.9);
      EXPECT_NEAR(coverage("top_pages:pages=100,block=16", ranks, mode, 2), 1, 1e-5);
      const double few = coverage("top_pages:pages=2,block=16", ranks, mode, 2);
      EXPECT_GT(few, 0.01);
      EXPECT_LT(few, 0.9);
    }
  }
}

// Fewer pages travel where blocks are left out, and what settles them is little beside that.
TEST(Content, BlocksThatNobodyChoseDoNotTravel) {
  CpuWorld world;
  const MaskedCheckpoint checkpoint("llama_gqa_bf16");
  const RankModel model = checkpoint.Load(world, *world.registry.Available("cpu")[0], DType::kF32);
  const std::vector<int32_t> prompt = RandomPrompt(900, checkpoint.config.vocabulary, 9);
  const auto bytes = [&](const std::string& text) {
    DriverOptions options;
    options.ranks = 4;
    options.prefill_rows = 32;
    if (!text.empty()) options.attention = ParsePolicy(text).value();
    StepDriver driver(world, model, options);
    driver.Run({prompt}, 1);
    return driver.ring();
  };
  const RingCounters dense = bytes("");
  EXPECT_EQ(dense.bytes_estimate, 0);
  const RingCounters sparse = bytes("hierarchical:near=1,fan=8,block=16");
  EXPECT_LT(sparse.bytes_pass_kv, dense.bytes_pass_kv * 3 / 4);
  EXPECT_GT(sparse.bytes_estimate, 0);
  const RingCounters full = bytes("adaptive:block=16,coverage=1");
  EXPECT_EQ(full.bytes_pass_kv, dense.bytes_pass_kv);
}

}  // namespace
}  // namespace annulus
