// Whole models whose ranks exchange everything by wires, as between processes: the results of ranks
// that pass addresses.
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/runner/masked_checkpoint.h"
#include "tests/support/thinned.h"
#include "tests/support/wire_rings.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::DriverResult;
using testing::MaskedCheckpoint;
using testing::StepDriver;
using testing::WireKind;

// Dense, and every kind of message by which ranks choose blocks: exact scores, sums along
// antidiagonals, means, bounds and gates, values of tau, lists.
constexpr const char* kWirePolicies[] = {
    "",
    "adaptive:block=16,tau=0.6,stride=8",
    "adaptive:block=16,estimator=pooled,coverage=0.6",
    "hierarchical:near=2,block=16,coverage=0.9",
    "top_pages:pages=3,block=16",
    "learned:block=16,tau=0.5",
    "window:window=40,block=16,coverage=0.5",
};

class WiresTest : public ::testing::TestWithParam<WireKind> {};

TEST_P(WiresTest, EveryPolicyHasTheResultsOfRanksThatPassAddresses) {
  const absl::Status possible = testing::CanTest(GetParam());
  if (!possible.ok()) GTEST_SKIP() << possible.message();
  CpuWorld world;
  const MaskedCheckpoint checkpoint("llama_gqa_bf16");
  const RankModel model =
      checkpoint.Load(world, *world.registry.Available("cpu").front(), DType::kF32);
  const std::vector<int32_t> prompt = testing::RandomPrompt(
      419, checkpoint.config.vocabulary, static_cast<uint32_t>(testing::TestSeed()));
  int turn = 0;
  for (const std::string policy : kWirePolicies) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      DriverOptions options;
      options.ranks = 2 + turn++ % 3;
      options.mode = mode;
      options.all_logits = true;
      options.report_lists = true;
      if (!policy.empty()) options.attention = ParseAssignment(policy).value();
      SCOPED_TRACE(::testing::Message()
                   << policy << ", " << options.ranks << " ranks, mode " << static_cast<int>(mode));
      const DriverResult expected = StepDriver(world, model, options).Run({prompt}, 4)[0];
      options.open_ring = [](int ranks) { return testing::OpenWireRing(GetParam(), ranks); };
      const DriverResult result = StepDriver(world, model, options).Run({prompt}, 4)[0];
      EXPECT_EQ(result.tokens, expected.tokens);
      EXPECT_EQ(result.logits, expected.logits);
      ASSERT_EQ(result.lists.size(), expected.lists.size());
      for (const auto& [row, lists] : expected.lists) {
        ASSERT_TRUE(result.lists.contains(row));
        EXPECT_EQ(*result.lists.at(row), *lists) << "layer " << row.first << ", " << row.second;
      }
    }
  }
}

// What is planned for a rank before the ring is open is what it takes.
TEST_P(WiresTest, SlotsArePlannedForWhatTheTransportCopies) {
  CpuWorld world;
  const MaskedCheckpoint checkpoint("llama_gqa_bf16");
  const RankModel model =
      checkpoint.Load(world, *world.registry.Available("cpu").front(), DType::kF32);
  RankSetOptions options;
  options.span = {.local = 2, .all = 2};
  options.engine.kv_memory_bytes = size_t{8} << 20;
  options.rows_per_rank = 64;
  EXPECT_EQ(CountSlotBytes(model, options, 1), 0);
  options.ring = WiderRing{[] { return testing::OpenWireRing(GetParam(), 2); }, {.copies = true}};
  const size_t planned = CountSlotBytes(model, options, 1);
  EXPECT_GT(planned, 0);
  if (!testing::CanTest(GetParam()).ok()) GTEST_SKIP();
  const auto ranks = RankSet::Create(model, *world.backend, options).value();
  const BufferPoolStats stats = ranks->Statistics(0).memory;
  EXPECT_EQ(stats.held_by_lifetime[static_cast<size_t>(Lifetime::kRingSlots)], AlignUp(planned));
}

INSTANTIATE_TEST_SUITE_P(All, WiresTest, ::testing::Values(WireKind::kMemory, WireKind::kUcx),
                         [](const auto& info) {
                           return info.param == WireKind::kUcx ? "Ucx" : "Memory";
                         });

}  // namespace
}  // namespace annulus
