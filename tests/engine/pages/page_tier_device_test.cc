// Pages in a memory that the host cannot access leave, and come back with the same bits, whatever
// the device does meanwhile.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error_payloads.h"
#include "engine/pages/page_stores.h"
#include "kernels/base/pinned_size.h"
#include "tests/engine/pages/page_tier_fixture.h"
#include "tests/support/false_pages.h"
#include "tests/support/gated_device.h"
#include "tests/support/pages_in_memory.h"

namespace annulus {
namespace {

using Reason = CacheMiss::Reason;
using ::testing::HasSubstr;

class PageTierDeviceTest : public testing::PageTierFixture {
 protected:
  static constexpr int kTokens = 200;
  static constexpr int kPages = kTokens / kPage;
  static constexpr int32_t kKept = kPages * kPage;
  // A text that takes all of memory, with the answer of twelve tokens.
  static constexpr int kMemoryPages = kPages + 4;
  static constexpr int kFilling = kMemoryPages * kPage - 12;
  static constexpr int kFillingPages = kFilling / kPage;

  PageTierDeviceTest() : model_(testing::SlowToCompute(folder_)) {
    EngineOptions plain = PageTierFixture::Options(model_, 1);
    plain.kv_disk.clear();
    plain_ = Make(plain);
    page_bytes_ = plain_->model().kv_bytes_per_token * kPage;
    device_ = std::make_unique<testing::GatedDevice>(*backend_, page_bytes_);
  }

  EngineOptions Options(int host_pages, int ranks = 1) const {
    EngineOptions options = PageTierFixture::Options(model_, ranks);
    options.kv_disk.clear();
    options.kv_memory_bytes = static_cast<size_t>(ranks * kMemoryPages * page_bytes_);
    options.kv_host_bytes = host_pages * (page_bytes_ + 4096);
    return options;
  }
  EngineOptions OnDisk() const {
    EngineOptions options = Options(0);
    options.kv_disk = disk();
    return options;
  }
  // The gate must be open when it ends.
  std::unique_ptr<Engine> MakeOnDevice(const EngineOptions& options) {
    auto engine = CreateEngine(options, *device_, registry_);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return engine.ok() ? *std::move(engine) : nullptr;
  }

  std::vector<int32_t> Text(int seed) const { return Prompt(kTokens, 300, seed); }
  RequestSpec Filling() { return Spec(Prompt(kFilling, 300, next_seed_++)); }

  // What this engine answers is what one without tiers on the processor does.
  Answer AskAndCompare(Engine& engine, const RequestSpec& spec) {
    const Answer answer = Ask(engine, spec);
    EXPECT_EQ(answer, Ask(*plain_, spec));
    return answer;
  }
  // Asks a text, and another one until memory has nothing of the first.
  void Keep(Engine& engine, const RequestSpec& spec, const std::string& tier) {
    EXPECT_EQ(AskAndCompare(engine, spec).usage.restored_tokens, 0);
    ASSERT_TRUE(WaitForPages(engine, kPages, tier));
    Ask(engine, Filling());
    ASSERT_TRUE(WaitForPages(engine, kPages + kFillingPages, tier));
  }

  static std::shared_ptr<testing::CollectingSink> Submit(Engine& engine, RequestSpec spec) {
    auto sink = std::make_shared<testing::CollectingSink>();
    EXPECT_TRUE(engine.Submit(std::move(spec), sink).ok());
    return sink;
  }
  // It waits for pages that the device is copying, and then nothing but itself writes to them.
  void ExpectToWaitForTheDevice(Engine& engine, const RequestSpec& spec) {
    const auto sink = Submit(engine, spec);
    EXPECT_TRUE(testing::Eventually([&] { return engine.Load().waiting == 1; }));
    EXPECT_EQ(sink->ids().size(), 0u);
    device_->Open();
    EXPECT_EQ(WaitForAnswer(*sink), Ask(*plain_, spec));
  }

  const std::string model_;
  std::unique_ptr<Engine> plain_;
  int64_t page_bytes_ = 0;
  std::unique_ptr<testing::GatedDevice> device_;
  int next_seed_ = 1000;
};

TEST_F(PageTierDeviceTest, PagesComeBackFromTheHostWithTheSameBits) {
  const auto engine = MakeOnDevice(Options(3 * kPages));
  const RequestSpec one = Spec(Text(1));
  Keep(*engine, one, "host");
  const Answer answer = AskAndCompare(*engine, one);
  EXPECT_EQ(answer.usage.restored_tokens, kKept);
  EXPECT_EQ(answer.usage.host_tokens, kKept);
  EXPECT_TRUE(answer.usage.checked_position.has_value());
  EXPECT_EQ(answer.usage.cache_miss, std::nullopt);
  EXPECT_EQ(Metric(*engine, "kv_tier_checks_total", "host"), 1);
  EXPECT_EQ(Metric(*engine, "kv_tier_rejects_total", "host"), 0);
  EXPECT_EQ(Metric(*engine, "kv_tier_io_errors_total", "host"), 0);
}

TEST_F(PageTierDeviceTest, FromTheDiskTooAndAfterARestart) {
  const RequestSpec one = Spec(Text(1));
  {
    const auto engine = MakeOnDevice(OnDisk());
    Keep(*engine, one, "disk");
    EXPECT_EQ(AskAndCompare(*engine, one).usage.restored_tokens, kKept);
  }
  const auto again = MakeOnDevice(OnDisk());
  EXPECT_EQ(AskAndCompare(*again, one).usage.restored_tokens, kKept);
}

TEST_F(PageTierDeviceTest, ByTheHostToTheDisk) {
  EngineOptions options = Options(3 * kPages, 2);
  options.kv_disk = disk();
  const auto engine = MakeOnDevice(options);
  const RequestSpec one = Spec(Text(1));
  AskAndCompare(*engine, one);
  ASSERT_TRUE(WaitForPages(*engine, kPages, "disk"));
  for (int i = 0; i < 2; ++i) Ask(*engine, Filling());
  EXPECT_GT(AskAndCompare(*engine, one).usage.host_tokens, 0);
}

// With another bit than was computed nothing is used: the comparison sees the device's pages.
TEST_F(PageTierDeviceTest, APageThatDiffersIsFound) {
  const auto engine = MakeOnDevice(Options(3 * kPages));
  const RequestSpec one = Spec(Text(1));
  Keep(*engine, one, "host");
  EXPECT_EQ(testing::ChangePagesInMemory(2 * kPage, 3 * kPage, testing::FalsifyPage), 2);
  const Answer answer = AskAndCompare(*engine, Checking(one, kPages - 1, kPages, 3));
  EXPECT_EQ(answer.usage.checked_position, kKept - kPage);
  EXPECT_EQ(answer.usage.restored_tokens, 0);
  EXPECT_EQ(Metric(*engine, "kv_tier_mismatches_total", "host"), 1);
}

TEST_F(PageTierDeviceTest, AllPagesAreComparedThere) {
  EngineOptions options = Options(3 * kPages);
  options.kv_verify = KvVerify::kAll;
  const auto engine = MakeOnDevice(options);
  const RequestSpec one = Spec(Text(1));
  Keep(*engine, one, "host");
  EXPECT_EQ(AskAndCompare(*engine, one).usage.restored_tokens, 0);
  ASSERT_TRUE(WaitForWrites(*engine, "host"));
  EXPECT_EQ(Metric(*engine, "kv_tier_checks_total", "host"), kPages);
  EXPECT_EQ(Metric(*engine, "kv_tier_mismatches_total", "host"), 0);
}

// A request that needs all of memory waits for the one page that is being copied.
TEST_F(PageTierDeviceTest, APageThatIsBeingCopiedIsNotGivenUp) {
  const auto engine = MakeOnDevice(Options(3 * kPages));
  const RequestSpec one = Spec(Text(1));
  device_->Close();
  AskAndCompare(*engine, one);  // nobody else waits
  device_->WaitForCopies(1);
  ExpectToWaitForTheDevice(*engine, Filling());
  EXPECT_EQ(Metric(*engine, "kv_tier_rejects_total", "host"), 0);
  AskAndCompare(*engine, one);
}

// It is free soon, so that a request beside pinned documents waits as well.
TEST_F(PageTierDeviceTest, NorDoesItRefuseARequestBesidePins) {
  const auto engine = MakeOnDevice(Options(3 * kPages));
  RequestSpec pinned = Spec(Prompt(2 * kPage, 300, 5));
  pinned.prefill_only = pinned.pin = true;
  pinned.shared_prefixes = {2 * kPage};
  pinned.documents = {{0, "a"}};
  ASSERT_TRUE(Submit(*engine, pinned)->Wait()->status.ok());
  ASSERT_TRUE(WaitForPages(*engine, 2, "host"));
  device_->Close();
  AskAndCompare(*engine, Spec(Text(1)));
  device_->WaitForCopies(1);
  ExpectToWaitForTheDevice(*engine, Spec(Prompt(kFilling - 2 * kPage, 300, 6)));
}

TEST_F(PageTierDeviceTest, AnIdleTenantIsToldToTryAgain) {
  const auto engine = MakeOnDevice(Options(3 * kPages));
  RequestSpec one = Spec(Text(1));
  one.tenant_room.kv_bytes = (kPages + 2) * page_bytes_;
  device_->Close();
  AskAndCompare(*engine, one);
  device_->WaitForCopies(1);
  RequestSpec other = Spec(Text(2));
  other.tenant_room = one.tenant_room;
  const absl::Status full = Submit(*engine, other)->Wait()->status;
  EXPECT_EQ(full.GetPayload(kLimitPayload), absl::Cord("kv_bytes")) << full;
  EXPECT_TRUE(full.GetPayload(kRetryPayload).has_value()) << full;
  device_->Open();
  ASSERT_TRUE(WaitForWrites(*engine, "host"));
  AskAndCompare(*engine, other);
}

// A request that ends while its pages are brought back leaves them until the device is done.
TEST_F(PageTierDeviceTest, APageThatIsBeingBroughtBackIsNotGivenAway) {
  EngineOptions options = Options(3 * kPages);
  options.kv_verify = KvVerify::kOff;
  const auto engine = MakeOnDevice(options);
  const RequestSpec one = Spec(Text(1));
  Keep(*engine, one, "host");
  device_->Close();
  auto sink = std::make_shared<testing::CollectingSink>();
  const RequestId id = engine->Submit(one, sink).value();
  device_->WaitForCopies(2);
  engine->Cancel(id);
  EXPECT_TRUE(sink->Wait().has_value());
  ExpectToWaitForTheDevice(*engine, Filling());
  AskAndCompare(*engine, one);
}

TEST_F(PageTierDeviceTest, ACopyThatFailsTurnsTheTierOff) {
  const auto engine = MakeOnDevice(Options(3 * kPages));
  const RequestSpec one = Spec(Text(1));
  Keep(*engine, one, "host");
  device_->Fail(absl::UnavailableError("copying to the device: it is gone"));
  const Answer answer = AskAndCompare(*engine, one);
  EXPECT_EQ(answer.usage.restored_tokens, 0);
  EXPECT_EQ(Metric(*engine, "kv_tier_up", "host"), 0);
  EXPECT_GE(Metric(*engine, "kv_tier_io_errors_total", "host"), 1);
  ASSERT_EQ(engine->Load().tiers.size(), 1u);
  EXPECT_EQ(engine->Load().tiers[0].off, "copying to the device: it is gone");
  EXPECT_TRUE(engine->Load().healthy);
  AskAndCompare(*engine, Spec(Text(2)));
}

TEST_F(PageTierDeviceTest, ADeviceThatHangsTurnsTheTierOffAndHoldsNobody) {
  EngineOptions options = Options(3 * kPages);
  options.kv_disk_timeout = std::chrono::milliseconds(200);
  for (const bool back : {false, true}) {
    const auto engine = MakeOnDevice(options);
    const RequestSpec one = Spec(Text(1));
    if (back) Keep(*engine, one, "host");
    device_->Close();
    const Answer answer = AskAndCompare(*engine, one);
    EXPECT_EQ(answer.usage.restored_tokens, 0);
    EXPECT_TRUE(WaitUntilOff(*engine, "host"));
    EXPECT_THAT(engine->Load().tiers[0].off,
                HasSubstr("a device has not copied a page for more than 0.2 s"));
    AskAndCompare(*engine, Spec(Prompt(3 * kPage, 300, 77)));
    device_->Open();
  }
}

// Nobody waits for a comparison either. That it took long says nothing about the pages.
TEST_F(PageTierDeviceTest, ACheckOfADeviceThatIsSlowIsGivenUp) {
  const auto engine = MakeOnDevice(Options(4 * kPages));
  const RequestSpec one = Spec(Text(1));
  Keep(*engine, one, "host");
  // Those of the pages that come back are let through, those of the check are not.
  device_->CloseAfter(kPages);
  const Answer answer = AskAndCompare(*engine, one);
  EXPECT_EQ(answer.usage.restored_tokens, 0);
  ASSERT_TRUE(answer.usage.cache_miss.has_value());
  EXPECT_EQ(answer.usage.cache_miss->reason, Reason::kDiskSlower);
  EXPECT_EQ(Metric(*engine, "kv_tier_checks_total", "host"), 0);
  EXPECT_EQ(Metric(*engine, "kv_tier_up", "host"), 1);
  EXPECT_EQ(Metric(*engine, "kv_tier_io_errors_total", "host"), 0);
  device_->Open();
  Ask(*engine, Filling());  // again memory has nothing of the text
  EXPECT_EQ(AskAndCompare(*engine, one).usage.restored_tokens, kKept);
  EXPECT_EQ(Metric(*engine, "kv_tier_checks_total", "host"), 1);
}

TEST_F(PageTierDeviceTest, ThePlanCountsWhatTheHostGives) {
  EngineOptions options = Options(3 * kPages);
  const auto page = static_cast<size_t>(page_bytes_);
  const auto host = static_cast<size_t>(options.kv_host_bytes);
  options.kv_verify = KvVerify::kAll;
  // A pinned buffer for each of the three threads, and one to compare pages in.
  EXPECT_EQ(MakeOnDevice(options)->Load().plan.host_tiers, host + 3 * PinnedSize(page) + page);
  options.kv_verify = KvVerify::kSample;
  // Two, pinned as well.
  const size_t needed = host + 5 * PinnedSize(page);
  EXPECT_EQ(MakeOnDevice(options)->Load().plan.host_tiers, needed);
  EXPECT_EQ(MakeOnDevice(options)->Load().plan.kv_host, 0u) << "nothing of the device";
  options.host_memory_bytes = needed;
  const absl::Status refused = CreateEngine(options, *device_, registry_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("are left for them; lower --kv-host"));
}

// Evidence is in pinned blocks too.
TEST_F(PageTierDeviceTest, ThePlanCountsEvidenceAsTheHostGivesIt) {
  const EngineOptions options = Options(0);
  const size_t plain = Make(options)->Load().plan.evidence;
  EXPECT_GT(plain, 0u);
  EXPECT_GT(MakeOnDevice(options)->Load().plan.evidence, plain);
}

// Pinned blocks are powers of two.
TEST_F(PageTierDeviceTest, ThePlanCountsBlocksNotPages) {
  KvGeometry pages;
  pages.layers_per_page = 3;
  pages.layer_page_bytes = size_t{1} << 20;
  EngineOptions options = Options(3 * kPages);
  EXPECT_EQ(PageStores::BufferBytes(options, pages), size_t{5 * 4} << 20);
  options.kv_verify = KvVerify::kAll;
  EXPECT_EQ(PageStores::BufferBytes(options, pages), size_t{3 * 4 + 3} << 20);
}

TEST_F(PageTierDeviceTest, KernelsWhoseBitsVaryAreRefusedAtTheStart) {
  KernelRegistry kernels;
  RegisterCpuKernels(kernels);
  KernelEntry varying;
  varying.ops = *kernels.Available("cpu").front();
  const std::string good = varying.ops.name;
  varying.ops.name = "cpu/varying";
  varying.ops.row_invariant = false;
  varying.backend = "cpu";
  varying.weights_dtypes = {DType::kF32};
  varying.kv_dtypes = {DType::kF32};
  varying.max_head_dim = 256;
  kernels.Register(varying);
  EngineOptions options = Options(3 * kPages);
  options.kernels = "cpu/varying";
  for (const std::string option : {"kv-host", "kv-disk"}) {
    const absl::Status refused = CreateEngine(options, *device_, kernels).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(
        refused.message(),
        HasSubstr(option + " needs kernels whose results do not depend on the batch; " +
                  "those of cpu/varying do; use --gpu-kernels " + good.substr(good.find('/') + 1)));
    options.kv_host_bytes = 0;
    options.kv_disk = disk();
  }
}

}  // namespace
}  // namespace annulus
