// The coverage contract of attention policies on whole models: what the ranks report of their
// sampled rows.

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/runner/masked_checkpoint.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::DriverResult;
using testing::MaskedCheckpoint;
using testing::RandomPrompt;
using testing::StepDriver;

struct Contract {
  double coverage = 0;  // the smallest of a layer in a chunk
  int raised = 0;
  int dense = 0;
};

Contract Judge(const DriverResult& result) {
  std::map<std::pair<int32_t, int32_t>, std::pair<double, double>> layers;
  Contract contract;
  contract.coverage = 1;
  for (const LayerAttention& part : result.attention) {
    auto& [sum, count] = layers[{part.layer, part.begin}];
    for (const double covered : part.covered) sum += covered;
    count += part.probes * static_cast<double>(part.covered.size());
    contract.raised += part.raised;
    contract.dense += part.dense;
  }
  for (const auto& [layer, mean] : layers) {
    if (mean.second > 0) contract.coverage = std::min(contract.coverage, mean.first / mean.second);
  }
  return contract;
}

TEST(Contract, IsKeptBeforeAttending) {
  CpuWorld world;
  const MaskedCheckpoint checkpoint("llama_gqa_bf16");
  const RankModel model = checkpoint.Load(world, *world.registry.Available("cpu")[0], DType::kF32);
  const std::vector<int32_t> prompt = RandomPrompt(700, checkpoint.config.vocabulary, 8);
  const auto run = [&](const std::string& text, int ranks) {
    DriverOptions options;
    options.ranks = ranks;
    options.prefill_rows = 64;
    options.attention = ParsePolicy(text).value();
    options.all_logits = true;
    return StepDriver(world, model, options).Run({prompt}, 1)[0];
  };
  for (const int ranks : {1, 3}) {
    for (const char* policy : {"adaptive:block=16,", "adaptive:block=16,estimator=pooled,",
                               "hierarchical:near=1,block=16,", "window:window=16,block=16,"}) {
      for (const char* coverage :
           testing::ThinnedIfSanitized<const char*>({"0.3", "0.8", "0.97", "1"}, 2)) {
        const std::string text = std::string(policy) + "coverage=" + coverage;
        const Contract contract = Judge(run(text, ranks));
        EXPECT_GE(contract.coverage, std::stod(coverage) - 1e-9) << text << ", " << ranks;
        if (std::string(coverage) == "1") {
          EXPECT_EQ(contract.coverage, 1) << text;
        }
      }
    }
    // The control: without a contract little is covered, and a contract had to do something.
    EXPECT_LT(Judge(run("window:window=16,block=16", ranks)).coverage, 0.5);
    EXPECT_GT(Judge(run("window:window=16,block=16,coverage=0.8", ranks)).dense, 0);
  }
}

// What the rows of three ranks cover adds up to another sum if another rank's is added first. Ranks
// agree even if that decides whether the contract is met.
TEST(Contract, RanksAgreeThoughTheOrderOfASumDecides) {
  constexpr int kRanks = 3;
  CpuWorld world;
  const MaskedCheckpoint checkpoint("llama_gqa_bf16");
  const RankModel model = checkpoint.Load(world, *world.registry.Available("cpu")[0], DType::kF32);
  // [begin of a chunk] what the ranks report of the first layer, which no earlier choice changes.
  const auto first_layer = [&](const std::vector<int32_t>& prompt, double coverage) {
    AttentionPolicy policy = ParsePolicy("window:window=16,sinks=16,block=16").value();
    policy.coverage = coverage;
    DriverOptions options;
    options.ranks = kRanks;
    options.prefill_rows = 3 * 16;  // of 8 pages 3 ranks have 3, 3 and 2
    options.attention = policy;
    const DriverResult result = StepDriver(world, model, options).Run({prompt}, 1)[0];
    std::map<int32_t, std::vector<LayerAttention>> chunks;
    for (const LayerAttention& part : result.attention) {
      if (part.layer == 0 && part.probes > 0) chunks[part.begin].push_back(part);
    }
    return chunks;
  };
  bool found = false;
  for (uint32_t seed = 1; !found && seed <= 20; ++seed) {
    const std::vector<int32_t> prompt = RandomPrompt(1200, checkpoint.config.vocabulary, seed);
    for (const auto& [begin, ranks] : first_layer(prompt, 1e-6)) {
      if (found || ranks.size() != kRanks) continue;
      double count = 0;
      std::vector<double> sums;
      for (const LayerAttention& part : ranks) {
        count += part.probes * static_cast<double>(part.covered.size());
        sums.push_back(std::accumulate(part.covered.begin(), part.covered.end(), 0.0));
      }
      const double first = sums[0] + sums[1] + sums[2];
      const double last = sums[2] + sums[0] + sums[1];
      const double larger = std::max(first, last);
      const double coverage = larger / count;  // only the larger sum meets it
      found = first != last && coverage * count == larger;
      if (!found) continue;
      int dense = 0;
      const auto under_contract = first_layer(prompt, coverage);
      for (const LayerAttention& part : under_contract.at(begin)) {
        dense += part.dense ? 1 : 0;
      }
      EXPECT_TRUE(dense == 0 || dense == kRanks) << dense << " ranks attend everything";
    }
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace annulus
