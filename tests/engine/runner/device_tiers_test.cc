// Pages in a device's own memory leave for the tiers and come back.
#include <algorithm>
#include <bit>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_seams.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/device_fixture.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/eventually.h"
#include "tests/support/plain_options.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using testing::DeviceTest;

class DeviceTiersTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    // One request alone gets the same bits from any kernels.
    KernelEntry entry;
    entry.ops = ops();
    entry.ops.name = "cuda/alone";
    entry.ops.row_invariant = true;
    entry.backend = "cuda";
    entry.weights_dtypes = {DType::kF32, DType::kBF16};
    entry.kv_dtypes = {DType::kF32, DType::kBF16};
    entry.max_head_dim = 256;
    registry_.Register(entry);
  }
  void ExpectPagesToOutliveTheEngine(const std::string& kernels, KvVerify verify);
};

// What comes back from the disk gives the bits that the pages in memory gave.
void DeviceTiersTest::ExpectPagesToOutliveTheEngine(const std::string& kernels, KvVerify verify) {
  const testing::TempDirectory folder;
  EngineOptions options = testing::PlainOptions();
  options.model = testing::TestFile("golden/llama_gqa_bf16").string();
  options.kernels = kernels;
  options.kv_memory_bytes = size_t{16} << 20;
  options.page_tokens = 16;
  options.chunk_tokens = 64;
  options.kv_disk = (folder.path() / "pages").string();
  options.kv_disk_bytes = 64 << 20;
  options.kv_verify = verify;
  RequestSpec spec;
  for (int32_t i = 0; i < 70; ++i) spec.prompt.push_back(3 + i * i * 7 % 90);
  spec.sampling.temperature = 0;
  spec.sampling.ignore_eos = true;
  spec.sampling.logprobs = 1;
  spec.sampling.max_tokens = 3;
  Usage usage;
  const auto ask = [&](Engine& engine) {
    auto sink = std::make_shared<testing::CollectingSink>();
    EXPECT_TRUE(engine.Submit(spec, sink).ok());
    const auto done = sink->Wait();
    EXPECT_TRUE(done.has_value() && done->status.ok());
    if (done.has_value()) usage = done->usage;
    std::vector<uint32_t> bits;
    for (const TokenLogprob& each : sink->logprobs()) {
      bits.push_back(std::bit_cast<uint32_t>(each.logprob));
    }
    return bits;
  };
  std::vector<uint32_t> from_memory;
  {
    const auto engine =
        CreateEngineWith({.through_bytes = true}, options, *backend_, registry_).value();
    ask(*engine);
    from_memory = ask(*engine);
    EXPECT_EQ(usage.cached_tokens, 64);
    const auto pages = [&] {
      const std::filesystem::directory_iterator files(options.kv_disk);
      return std::count_if(begin(files), end(files),
                           [](const auto& each) { return each.path().extension() == ".page"; });
    };
    ASSERT_TRUE(testing::Eventually([&] { return pages() >= 4; }));
  }
  const auto engine =
      CreateEngineWith({.through_bytes = true}, options, *backend_, registry_).value();
  EXPECT_EQ(ask(*engine), from_memory);
  EXPECT_EQ(usage.restored_tokens, 64);
  EXPECT_EQ(usage.checked_position.has_value(), verify == KvVerify::kSample);
  EXPECT_TRUE(engine->Load().tiers.at(0).off.empty()) << engine->Load().tiers[0].off;
}

TEST_F(DeviceTiersTest, PagesOutliveTheEngine) {
  ExpectPagesToOutliveTheEngine("cuda/alone", KvVerify::kOff);
}

TEST_F(DeviceTiersTest, OneOfThemIsComputedAgainAndCompared) {
  const std::string kernels = "cuda/sm90-invariant";
  if (Find(kernels) == nullptr) GTEST_SKIP() << "needs a GPU of another kind";
  ExpectPagesToOutliveTheEngine(kernels, KvVerify::kSample);
}

// The kernels of every GPU vary with the batch unless another table is chosen.
TEST_F(DeviceTiersTest, WithoutInvariantKernelsTheStartSaysWhatToDo) {
  EngineOptions options = testing::PlainOptions();
  options.kv_memory_bytes = size_t{16} << 20;
  options.kv_host_bytes = 4 << 20;
  options.kernels = ops().name;
  const absl::Status refused =
      CreateEngineWith({.through_bytes = true}, options, *backend_, registry_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_NE(std::string(refused.message()).find("; use --gpu-kernels sm"), std::string::npos)
      << refused;
}

}  // namespace
}  // namespace annulus
