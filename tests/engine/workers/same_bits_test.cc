// Rings whose ranks are in several processes, which are threads here: the bits of a ring in one.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/engine/runner/masked_checkpoint.h"
#include "tests/engine/workers/worker_ring.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::DriverResult;
using testing::MaskedCheckpoint;
using testing::StepDriver;
using testing::WireKind;
using testing::WorkerRing;

struct Split {
  int local;
  std::vector<int> workers;  // ranks of each
};

const Split kSplits[] = {{0, {1, 1}}, {1, {1}}, {0, {3, 1}}, {1, {1, 2}}, {2, {1, 1}}};

std::string NameOf(const Split& split) {
  std::string name = std::to_string(split.local);
  for (const int ranks : split.workers) name += "+" + std::to_string(ranks);
  return name;
}

// Makes a ring like that of `set`.
std::unique_ptr<RankPort> MakeRanks(WorkerRing& ring, const Split& split,
                                    const RankSetOptions& set) {
  RemoteRanksOptions options = ring.OptionsOf(split.local, set.span.all);
  options.kv_bytes_per_rank = set.engine.kv_memory_bytes / static_cast<size_t>(set.span.all);
  options.set.engine.kv_memory_bytes = options.kv_bytes_per_rank * static_cast<size_t>(split.local);
  options.set.rows_per_rank = set.rows_per_rank;
  options.set.suspended_rows = set.suspended_rows;
  for (size_t i = 0; i < split.workers.size(); ++i) {
    ring.Add("worker " + std::to_string(i), split.workers[i]);
  }
  return ring.Create(options).value();
}

class WorkerBitsTest : public ::testing::TestWithParam<WireKind> {};

struct Case {
  DType dtype;
  Split split;
  RingMode mode;
  bool sparse;
};

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const Split& split : kSplits) {
      for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
        cases.push_back({dtype, split, mode, cases.size() % 3 == 1});
      }
    }
  }
  return cases;
}

TEST_P(WorkerBitsTest, AreThoseOfOneProcess) {
  const absl::Status possible = testing::CanTest(GetParam());
  if (!possible.ok()) GTEST_SKIP() << possible.message();
  CpuWorld world;
  const MaskedCheckpoint checkpoint("llama_gqa_bf16");
  const OpTable& ops = *world.registry.Available("cpu").front();
  const std::vector<int32_t> prompt = testing::RandomPrompt(
      219, checkpoint.config.vocabulary, static_cast<uint32_t>(testing::TestSeed()));
  for (const Case& c : testing::ThinnedIfSanitized(AllCases(), 6)) {
    const RankModel model = checkpoint.Load(world, ops, c.dtype);
    DriverOptions options;
    options.ranks = std::accumulate(c.split.workers.begin(), c.split.workers.end(), c.split.local);
    options.mode = c.mode;
    options.all_logits = true;
    options.logprobs = 3;
    if (c.sparse) {
      options.attention = ParseAssignment("adaptive:block=16,tau=0.6,stride=8").value();
    }
    SCOPED_TRACE(::testing::Message()
                 << NameOf(c.split) << ", mode " << static_cast<int>(c.mode) << ", "
                 << DTypeName(c.dtype) << (c.sparse ? ", sparse" : ""));
    const DriverResult expected = StepDriver(world, model, options).Run({prompt}, 4)[0];
    WorkerRing ring(world, model, GetParam());
    options.make_ranks = [&](const RankSetOptions& set) { return MakeRanks(ring, c.split, set); };
    const DriverResult result = StepDriver(world, model, options).Run({prompt}, 4)[0];
    EXPECT_EQ(result.tokens, expected.tokens);
    EXPECT_EQ(result.logits, expected.logits);
    ASSERT_EQ(result.logprobs.size(), expected.logprobs.size());
    for (size_t i = 0; i < expected.logprobs.size(); ++i) {
      EXPECT_EQ(result.logprobs[i].logprob, expected.logprobs[i].logprob);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, WorkerBitsTest, ::testing::Values(WireKind::kMemory, WireKind::kUcx),
                         [](const auto& info) {
                           return info.param == WireKind::kUcx ? "Ucx" : "Memory";
                         });

}  // namespace
}  // namespace annulus
