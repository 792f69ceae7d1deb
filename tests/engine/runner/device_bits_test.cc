// Row-invariant tables of a device: tokens and logits have the same bits on every ring, in chunks
// of any size, alone or with others, cached or not, decoded or prefilled.
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine_seams.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/device_fixture.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/plain_options.h"
#include "tests/support/step_driver.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::AllLogits;
using testing::DeviceTest;
using testing::DriverOptions;
using testing::DriverResult;
using testing::RingSizes;
using testing::StepDriver;

std::vector<int32_t> PromptOf(int32_t tokens, int32_t factor) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < tokens; ++i) prompt.push_back(1 + (i * i * factor + i) % 97);
  return prompt;
}

class DeviceBitsTest : public DeviceTest {
 protected:
  static constexpr int kTokens = 4;
  static constexpr int32_t kShort = 150;

  static std::vector<uint32_t> BitsOf(const TokenLogprob& token) {
    std::vector<uint32_t> bits = {std::bit_cast<uint32_t>(token.logprob)};
    for (const auto& [id, logprob] : token.alternatives) {
      bits.push_back(std::bit_cast<uint32_t>(logprob));
    }
    return bits;
  }

  static void ExpectSameBits(const DriverResult& actual, const DriverResult& expected,
                             const std::string& where) {
    EXPECT_EQ(actual.tokens, expected.tokens) << where;
    int64_t rows = 0;
    for (const auto& [position, row] : actual.logits) {
      const auto other = expected.logits.find(position);
      if (other == expected.logits.end()) continue;
      ++rows;
      for (size_t v = 0; v < row.size(); ++v) {
        ASSERT_EQ(std::bit_cast<uint32_t>(row[v]), std::bit_cast<uint32_t>(other->second[v]))
            << where << ", position " << position;
      }
    }
    EXPECT_GT(rows, 0) << where;
  }

  // `kv_dtype`: that of weights unless given.
  void Check(const std::string& name, DType dtype, const std::string& table,
             std::optional<DType> kv_dtype = {}, int32_t tokens = kShort) {
    SCOPED_TRACE(name + " by " + table);
    if (table == "cuda/sm90-invariant" && Find("cuda/sm90") == nullptr) {
      GTEST_SKIP() << "needs compute capability 9.0";
    }
    ASSERT_NE(Find(table), nullptr);
    testing::AllowHostAccess();  // other tests are for what reads memory that it must not
    RankModel model = Load(name, dtype, *backend_, *Find(table));
    if (kv_dtype) model.page_shape.dtype = *kv_dtype;
    const std::vector<int32_t> prompt = PromptOf(tokens, 7);
    DriverOptions options = AllLogits(1, RingMode::kPassKv);
    options.logprobs = 2;
    options.prefill_rows = tokens + 10;
    const DriverResult expected = StepDriver(*backend_, model, options).Run({prompt}, kTokens)[0];
    // A long prompt takes an emulated device long.
    for (const int ranks : tokens > kShort ? testing::Thinned(RingSizes(), 1) : RingSizes()) {
      const bool odd = ranks % 2 != 0;
      DriverOptions other = AllLogits(ranks, odd ? RingMode::kPassQ : RingMode::kPassKv);
      other.prefill_rows = tokens / (odd ? 3 : 9) / 16 * 16;
      other.reused_tokens = ranks > 1 ? 32 : 0;
      const auto together =
          StepDriver(*backend_, model, other).Run({prompt, PromptOf(40, 3)}, kTokens);
      ExpectSameBits(together[0], expected, std::to_string(ranks) + " ranks");
    }
    // Its own answer as the end of a prompt: a decoded row is one of a prompt.
    std::vector<int32_t> longer = prompt;
    longer.insert(longer.end(), expected.tokens.begin(), expected.tokens.end() - 1);
    options.all_logits = false;
    const DriverResult prefilled = StepDriver(*backend_, model, options).Run({longer}, 1)[0];
    ASSERT_EQ(prefilled.tokens.back(), expected.tokens.back());
    EXPECT_EQ(BitsOf(prefilled.logprobs.back()), BitsOf(expected.logprobs.back()));
  }
};

// Grouped heads.
TEST_F(DeviceBitsTest, OfSm90) { Check("llama_gqa_bf16", DType::kBF16, "cuda/sm90-invariant"); }

// Windows, sinks and experts.
TEST_F(DeviceBitsTest, OfSm90WithWindowsAndSinks) {
  Check("gpt_oss_bf16", DType::kBF16, "cuda/sm90-invariant");
}

// Codes, and on one rank a shard of more keys than a tile of 128 slots.
TEST_F(DeviceBitsTest, OfSm90InInt8Pages) {
  Check("llama_gqa_bf16", DType::kBF16, "cuda/sm90-invariant", DType::kI8, 1060);
}

TEST_F(DeviceBitsTest, OfSm80) { Check("gpt_oss_bf16", DType::kBF16, "cuda/sm80-invariant"); }

// Several residuals, whose magnitudes and cut-offs are sums over a row.
TEST_F(DeviceBitsTest, OfSeveralResiduals) {
  Check("gemma3n", DType::kBF16, "cuda/sm80-invariant");
}

TEST_F(DeviceBitsTest, InFloat32) { Check("gemma2", DType::kF32, "cuda/sm90-invariant"); }

// The table is chosen by name.
TEST_F(DeviceBitsTest, TheEngineTakesThemByName) {
  testing::AllowHostAccess();
  EngineOptions options = testing::PlainOptions();
  options.kernels = "cuda/sm80-invariant";
  options.ranks = 2;
  options.kv_memory_bytes = size_t{64} << 20;
  options.chunk_tokens = 128;
  options.tokens_per_rank = 64;
  const auto engine = CreateEngineWith({.through_bytes = true}, options, *backend_, registry_);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->model().kernels, options.kernels);
  auto sink = std::make_shared<testing::CollectingSink>();
  ASSERT_TRUE((*engine)->Submit(testing::GateQuestion(**engine), sink).ok());
  ASSERT_TRUE(sink->Wait().has_value());
  EXPECT_EQ(sink->text(), "0417");
}

}  // namespace
}  // namespace annulus
