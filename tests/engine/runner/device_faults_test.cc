// The engine on a device that fails, or that the host touches.
#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine_seams.h"
#include "engine/runner/rank_set.h"
#include "engine/tiers/host_store.h"
#include "engine/tiers/page_lane.h"
#include "engine/tiers/page_mover.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/device_error.h"
#include "kernels/cuda/error.h"
#include "tests/engine/runner/device_fixture.h"
#include "tests/engine/tiers/marks.h"
#include "tests/engine/tiers/mover_lanes.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/plain_options.h"

namespace annulus {
namespace {

using cuda::EmulatedDevice;
using ::testing::AllOf;
using testing::DeviceTest;
using ::testing::HasSubstr;

using DeviceFaultsTest = DeviceTest;

TEST_F(DeviceFaultsTest, RefusedMemoryIsAStatus) {
  const RankModel model = Load("llama_gqa_bf16");
  EmulatedDevice::Get().allocate_error = cuda::kMemoryAllocation;
  RankSetOptions options;
  options.engine.kv_memory_bytes = size_t{8} << 20;
  const auto refused = RankSet::Create(model, *backend_, options);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
  EXPECT_TRUE(IsOfDevice(refused.status())) << refused.status();
}

TEST_F(DeviceFaultsTest, ABinaryWithoutCodeForTheDeviceSaysSoAtOnce) {
  for (const int code : {cuda::kNoKernelImage, cuda::kInvalidDeviceFunction}) {
    EmulatedDevice::Get().image_error = code;
    for (const absl::Status& refused :
         {CreateCudaBackend(0).status(), CreateCudaBackends(1).status()}) {
      EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
      EXPECT_THAT(std::string(refused.message()),
                  AllOf(HasSubstr("GPU 0, emulated, compute capability 9.0: "),
                        HasSubstr("CMAKE_CUDA_ARCHITECTURES of this GPU")));
    }
  }
}

TEST_F(DeviceFaultsTest, ALostDeviceIsAStatusOfEveryStep) {
  const RankModel model = Load("llama_gqa_bf16");
  RankSetOptions options;
  options.through_bytes = true;
  options.span = {.local = 2, .all = 2};
  options.engine.kv_memory_bytes = size_t{8} << 20;
  const auto ranks = RankSet::Create(model, *backend_, options).value();
  EmulatedDevice::Get().wait_error = cuda::kIllegalAddress;
  for (int step = 0; step < 2; ++step) {
    const auto results = ranks->Run(std::make_shared<StepPlan>());
    EXPECT_EQ(results.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(results.status().message()), HasSubstr("restart annulusd"));
  }
}

// A graph that cannot be made ends the requests of its step with what to do; the engine goes on.
TEST_F(DeviceFaultsTest, AGraphThatIsRefusedEndsItsRequestsAlone) {
  testing::AllowHostAccess();
  EngineOptions options = testing::PlainOptions();
  options.kv_memory_bytes = size_t{64} << 20;
  const auto engine =
      CreateEngineWith({.through_bytes = true}, options, *backend_, registry_).value();
  const auto ask = [&] {
    auto sink = std::make_shared<testing::CollectingSink>();
    EXPECT_TRUE(engine->Submit(testing::GateQuestion(*engine), sink).ok());
    const auto done = sink->Wait();
    if (!done.has_value()) return std::string("no answer");
    if (done->status.ok()) return sink->text();
    return std::string(done->status.GetPayload(kCausePayload).value_or(absl::Cord("no cause")));
  };
  EmulatedDevice::Get().graph_build_error = cuda::kMemoryAllocation;
  EXPECT_THAT(ask(), HasSubstr("the device does not have enough free memory"));
  EmulatedDevice::Get().graph_build_error = 0;
  EXPECT_EQ(ask(), "0417");
  EmulatedDevice::Get().graph_run_error = cuda::kIllegalAddress;
  EXPECT_THAT(ask(), HasSubstr("restart annulusd"));
  EmulatedDevice::Get().graph_run_error = 0;
  EXPECT_EQ(ask(), "0417");
  EXPECT_TRUE(engine->Load().healthy);
}

// A page of two layers side by side.
class PageLaneTest : public DeviceTest {
 protected:
  static constexpr size_t kPageBytes = 4096;
  PageLaneTest() : DeviceTest(2) {}

  static PagePieces PiecesIn(DeviceBuffer& page) {
    const std::span<std::byte> all(page.data(), kPageBytes);
    return {all.first(kPageBytes / 2), all.subspan(kPageBytes / 2)};
  }
};

TEST_F(PageLaneTest, ReachesTheMemoryOfEveryDevice) {
  Backend* const devices[] = {&backend_->OnDevice(0), &backend_->OnDevice(1)};
  const auto lane = PageLane::Open(devices, kPageBytes).value();
  EXPECT_FALSE(lane->immediate());
  std::vector<DeviceBuffer> pages;
  for (int rank = 0; rank < 2; ++rank) {
    pages.push_back(devices[rank]->Allocate(kPageBytes).value());
    std::fill(lane->buffer().begin(), lane->buffer().end(), std::byte(rank + 1));
    const int64_t before = EmulatedDevice::Get().copies;
    ASSERT_TRUE(lane->CopyIn(rank, PiecesIn(pages[rank])).ok());
    EXPECT_EQ(EmulatedDevice::Get().copies - before, 1) << "one call for both layers";
  }
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(lane->CopyOut(rank, PiecesIn(pages[rank])).ok());
    const std::vector<std::byte> bytes(lane->buffer().begin(), lane->buffer().end());
    EXPECT_EQ(bytes, std::vector<std::byte>(kPageBytes, std::byte(rank + 1)));
  }
}

TEST_F(PageLaneTest, ACopyEndsWithAnErrorIfTheDeviceHangs) {
  UseDevices(1, {.longest_wait = std::chrono::milliseconds(100)});
  Backend* const devices[] = {backend_.get()};
  DeviceBuffer page = backend_->Allocate(kPageBytes).value();
  const auto lane = PageLane::Open(devices, kPageBytes).value();
  EmulatedDevice::Get().hangs = true;
  const absl::Status copied = lane->CopyOut(0, PiecesIn(page));
  EXPECT_EQ(copied.code(), absl::StatusCode::kUnavailable) << copied;
}

// Which turns its store off and does not keep its owner.
TEST_F(PageLaneTest, AMoverEndsThoughItsDeviceHangs) {
  UseDevices(1, {.longest_wait = std::chrono::milliseconds(100)});
  DeviceBuffer page = backend_->Allocate(kPageBytes).value();
  const auto store = HostStore::Create(1 << 20, kPageBytes).value();
  const testing::MoverLanes lanes(*backend_, kPageBytes, PageMover::kThreads);
  PageMover::Options options;
  options.lanes = lanes.all();
  EmulatedDevice::Get().hangs = true;
  {
    PageMover mover(*store, std::move(options));
    mover.Write({.ticket = 1, .mark = testing::MarksOf(1)[0], .pieces = PiecesIn(page), .use = 1});
    while (mover.OldestJob() == 0 && store->on()) std::this_thread::yield();
  }
  EXPECT_FALSE(store->on());
  EXPECT_EQ(store->stats().io_errors, 1);
}

using DeviceDeathTest = DeviceTest;

TEST_F(DeviceDeathTest, TheHostCannotTouchTheDevicesMemory) {
  const DeviceBuffer buffer = backend_->Allocate(64).value();
  EXPECT_DEATH(const_cast<DeviceBuffer&>(buffer).data()[0] = std::byte{1}, "");
  DeviceBuffer pinned = backend_->AllocateHost(64).value();
  pinned.data()[0] = std::byte{1};
}

}  // namespace
}  // namespace annulus
