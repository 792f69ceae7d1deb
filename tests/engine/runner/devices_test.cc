// Rings over several devices, by every way to exchange: emulated GPUs whose kernels cannot touch
// each other's memory and whose streams run as late as they may, so that a wait which is missing
// shows.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_seams.h"
#include "engine/exchange/ring_probe.h"
#include "engine/loading/loaded_model.h"
#include "engine/ring/group_channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/error.h"
#include "tests/engine/runner/device_fixture.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/cuda/emulated_nccl.h"
#include "tests/support/eventually.h"
#include "tests/support/plain_options.h"

namespace annulus {
namespace {

using namespace std::chrono_literals;
using cuda::EmulatedDevice;
using cuda::EmulatedNccl;
using testing::AllLogits;
using ::testing::AnyOf;
using testing::CollectingSink;
using testing::Difference;
using testing::DriverOptions;
using testing::DriverResult;
using ::testing::HasSubstr;
using testing::StepDriver;

class DevicesTest : public testing::DeviceTest {
 protected:
  explicit DevicesTest(int devices = 2) : DeviceTest(devices) {}
  ~DevicesTest() override {
    EmulatedNccl& nccl = EmulatedNccl::Get();
    nccl.library = nccl.opens = true;
    nccl.silent_rank = nccl.failing_rank = -1;
  }
};

constexpr RingTransport kAll[] = {RingTransport::kPeer, RingTransport::kStaged,
                                  RingTransport::kNccl};

std::string NameOf(RingTransport transport, RingMode mode) {
  return absl::StrCat("transport ", static_cast<int>(transport), ", mode ", static_cast<int>(mode));
}

TEST_F(DevicesTest, LogitsMatchTransformersByEveryTransportInBothModes) {
  const std::string name = "llama_gqa_bf16";
  const testing::Golden golden = testing::LoadGolden(testing::TestFile("golden/" + name));
  std::vector<std::pair<RingTransport, RingMode>> ways;
  for (const RingTransport transport : kAll) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      ways.emplace_back(transport, mode);
    }
  }
  for (const int devices : {2, 3}) {
    if (kSanitized && devices == 3) continue;  // which makes the emulation several times slower
    UseDevices(devices);
    const RankModel model = Load(name);
    const auto alone =
        StepDriver(*backend_, model, AllLogits(1, RingMode::kPassKv)).Run({golden.prompt}, 2)[0];
    for (const auto& [transport, mode] : testing::Thinned(ways, 2)) {
      SCOPED_TRACE(NameOf(transport, mode));
      DriverOptions options = AllLogits(devices, mode);
      options.transport = transport;
      StepDriver driver(*backend_, model, options);
      const auto results = driver.Run({golden.prompt}, 2);
      ASSERT_EQ(results[0].logits.size(), golden.prompt.size() - 1);
      EXPECT_LE(Difference(results[0], golden), 1e-4);
      EXPECT_EQ(results[0].tokens, alone.tokens);
      EXPECT_EQ(driver.ring().bytes_pass_kv > 0, mode == RingMode::kPassKv);
      EXPECT_GT(driver.ring().bytes_pass_q, 0);  // of sampled rows in either mode
    }
  }
}

// Windows, sinks, soft caps and experts; more ranks than devices, so that some share one.
TEST_F(DevicesTest, FamiliesMatchTransformersWithTwoRanksOnADevice) {
  std::vector<std::pair<std::string, RingMode>> cases;
  for (const char* name : {"gpt_oss_bf16", "gemma2", "mixtral"}) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ})
      cases.emplace_back(name, mode);
  }
  for (const auto& [name, mode] : testing::Thinned(cases, 2)) {
    const testing::Golden golden = testing::LoadGolden(testing::TestFile("golden/" + name));
    const RankModel model = Load(name);
    DriverOptions options = AllLogits(3, mode);
    const auto results = StepDriver(*backend_, model, options).Run({golden.prompt}, 2);
    EXPECT_LE(Difference(results[0], golden), 1e-4) << name;
    EXPECT_EQ(results[0].tokens[0], golden.greedy[0]) << name;
  }
}

// What ranks tell each other to choose blocks goes through the host's memory.
TEST_F(DevicesTest, PoliciesThatLookAtContentChooseAsOnOneDevice) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 270; ++i) prompt.push_back(i * i * 7 % 101);
  for (const std::string& text :
       testing::Some({"adaptive:block=16,tau=0.6,stride=8", "top_pages:pages=3,block=16",
                      "window:sinks=16,window=48,block=16,coverage=0.9"})) {
    std::vector<DriverResult> results;
    for (const int devices : {1, 2}) {
      UseDevices(devices);
      const RankModel model = Load("llama_gqa_bf16");
      DriverOptions options = AllLogits(2, RingMode::kPassKv);
      options.attention = ParsePolicy(text).value();
      results.push_back(StepDriver(*backend_, model, options).Run({prompt}, 2)[0]);
    }
    EXPECT_EQ(results[0].tokens, results[1].tokens) << text;
    ASSERT_EQ(results[0].logits.size(), results[1].logits.size()) << text;
    for (const auto& [position, row] : results[0].logits) {
      const std::vector<float>& other = results[1].logits.at(position);
      for (size_t v = 0; v < row.size(); ++v) ASSERT_EQ(row[v], other[v]) << text << position;
    }
  }
}

// A pool so small that the slots hold a page or two: what does not fit goes pass-Q.
TEST_F(DevicesTest, PagesThatDoNotFitTheSlotsLetQueriesTravel) {
  const std::string name = "llama_gqa_bf16";
  const testing::Golden golden = testing::LoadGolden(testing::TestFile("golden/" + name));
  const RankModel model = Load(name);
  DriverOptions options = AllLogits(2, RingMode::kPassKv);
  options.kv_bytes = size_t{512} << 10;
  StepDriver driver(*backend_, model, options);
  const auto results = driver.Run({golden.prompt}, 1);
  EXPECT_LE(Difference(results[0], golden), 1e-4);
  EXPECT_LT(driver.ranks().visiting_pages(), driver.ranks().facts()[0].pages);
}

// The stream stands still while pages travel, and that is counted as waiting. How long it waits
// besides, for a peer's ops, depends on the machine, so copies take a share of that each.
TEST_F(DevicesTest, WaitsForCopiesAreCountedAsExposed) {
  const std::string name = "llama_gqa_bf16";
  std::vector<int32_t> prompt = testing::LoadGolden(testing::TestFile("golden/" + name)).prompt;
  prompt.resize(std::min<size_t>(prompt.size(), 70));
  const RankModel model = Load(name);
  const auto seconds_waited = [&] {
    StepDriver driver(*backend_, model, AllLogits(2, RingMode::kPassKv));
    driver.Run({prompt}, 1);
    EXPECT_GT(driver.ring().compute_seconds, 0);
    return driver.ring().wait_seconds;
  };
  const double before = seconds_waited();
  const double each = 0.02 + before / 2;
  EmulatedDevice::Get().between_microseconds = static_cast<int>(each * 1e6);
  EXPECT_GT(seconds_waited(), 3 * each);  // in each of three layers
}

class DevicesEngineTest : public DevicesTest {
 protected:
  explicit DevicesEngineTest(int devices = 2) : DevicesTest(devices) {
    options_.ranks = 2;
    options_.kv_memory_bytes = size_t{64} << 20;
    options_.chunk_tokens = 128;
    options_.tokens_per_rank = 64;
    options_.ring_mode = RingMode::kPassKv;
    options_.exchange_timeout = std::chrono::seconds(20);  // that other programs may delay
  }

  void Open() {
    engine_ = CreateEngineWith({.through_bytes = true}, options_, *backend_, registry_).value();
  }

  // The answer, or what ended it.
  std::string Ask() {
    RequestSpec spec = testing::GateQuestion(*engine_);
    auto sink = std::make_shared<CollectingSink>();
    const auto id = engine_->Submit(std::move(spec), sink);
    if (!id.ok()) return std::string(id.status().message());
    const auto done = sink->Wait();
    if (!done.has_value()) return "no answer";
    if (done->status.ok()) return sink->text();
    return std::string(done->status.GetPayload(kCausePayload).value_or(absl::Cord("no cause")));
  }

  // Whether all pages come back, which is soon after an answer has ended.
  bool PoolsGetEmpty() const {
    return testing::Eventually([&] {
      const EngineLoad load = engine_->Load();
      const bool empty =
          std::all_of(load.ranks.begin(), load.ranks.end(), [](const RankLoad& rank) {
            return rank.kv_bytes_used + rank.memory_bytes.at("kv_reserved") == 0;
          });
      return empty && load.running == 0;
    });
  }

  EngineOptions options_ = testing::PlainOptions();
  std::unique_ptr<Engine> engine_;
};

TEST_F(DevicesEngineTest, AnswersByEveryTransport) {
  for (const RingTransport transport : kAll) {
    options_.ring_transport = transport;
    Open();
    EXPECT_EQ(Ask(), "0417") << static_cast<int>(transport);
    const EngineLoad load = engine_->Load();
    EXPECT_NE(load.ring_transport, "addresses");
    EXPECT_GT(load.memory.ring, 0);
    for (const RankLoad& rank : load.ranks) {
      EXPECT_GT(rank.memory_bytes.at("weights"), 0) << rank.rank;
      EXPECT_GT(rank.memory_bytes.at("ring"), 0) << rank.rank;
    }
    EXPECT_TRUE(PoolsGetEmpty());
    engine_.reset();
  }
}

TEST_F(DevicesEngineTest, StreamsWaitFiftyMillisecondsUnlessToldOtherwise) {
  options_.stall_budget = std::nullopt;
  Open();
  EXPECT_DOUBLE_EQ(engine_->Load().stall_budget_seconds, 0.05);
}

// What NCCL's messages are put together in is memory of the ring, and comes from the pool.
TEST_F(DevicesEngineTest, TheSendAreaIsCounted) {
  int64_t ring[2];
  for (const bool nccl : {false, true}) {
    options_.ring_transport = nccl ? RingTransport::kNccl : RingTransport::kStaged;
    Open();
    ring[nccl] = engine_->Load().ranks[0].memory_bytes.at("ring");
    engine_.reset();
  }
  EXPECT_EQ(ring[1] - ring[0], static_cast<int64_t>(GroupRing::SendBytes(2)));
}

// Rates of a ring are measured over the transport that is used.
TEST_F(DevicesTest, TheProbeSendsByEveryTransport) {
  RingProbeOptions options;
  options.ranks = 2;
  options.attention.page = {16, 1, 16, 16, DType::kF32};
  options.tokens = 96;
  options.rows = 32;
  for (const RingTransport transport : kAll) {
    options.transport = transport;
    const auto probe = RingProbe::Create(options, ops(), *backend_);
    ASSERT_TRUE(probe.ok()) << probe.status();
    ASSERT_TRUE((*probe)->copies());
    EXPECT_TRUE((*probe)->Message(1000, 1).ok());
    EXPECT_GT((*probe)->Transfer((*probe)->transfer_bytes(), 2).value(), 0);
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      const auto seconds = (*probe)->Layer(mode, 32, 64);
      EXPECT_TRUE(seconds.ok()) << seconds.status();
    }
  }
}

TEST_F(DevicesEngineTest, TransportsThatCannotBeAreRefused) {
  EmulatedDevice::Get().reach = false;
  options_.ring_transport = RingTransport::kPeer;
  const auto peer = CreateEngineWith({.through_bytes = true}, options_, *backend_, registry_);
  EXPECT_EQ(peer.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(peer.status().message()), HasSubstr("does not reach memory of GPU"));
  EmulatedNccl::Get().library = false;
  options_.ring_transport = RingTransport::kNccl;
  const auto nccl = CreateEngineWith({.through_bytes = true}, options_, *backend_, registry_);
  EXPECT_THAT(std::string(nccl.status().message()), HasSubstr("have no NCCL"));
  options_.ring_transport = RingTransport::kAuto;
  Open();
  EXPECT_THAT(engine_->Load().ring_transport, HasSubstr("copies through pinned host memory"));
  EXPECT_EQ(Ask(), "0417");
}

TEST_F(DevicesEngineTest, RanksThatNeverFindEachOtherAreADeadline) {
  EmulatedNccl::Get().opens = false;
  options_.ring_transport = RingTransport::kNccl;
  options_.exchange_timeout = std::chrono::milliseconds(100);
  const auto engine = CreateEngineWith({.through_bytes = true}, options_, *backend_, registry_);
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kDeadlineExceeded);
}

// A step that fails ends its requests; the ring is opened again and serves the next.
TEST_F(DevicesEngineTest, ServesAgainAfterAPeerWasSilent) {
  options_.ring_transport = RingTransport::kNccl;
  options_.exchange_timeout = std::chrono::seconds(kSanitized ? 20 : 5);
  Open();
  EXPECT_EQ(Ask(), "0417");
  EmulatedNccl::Get().silent_rank = 1;
  EXPECT_THAT(Ask(), HasSubstr("waited too long for"));
  EXPECT_TRUE(PoolsGetEmpty());
  EmulatedNccl::Get().silent_rank = -1;
  EXPECT_EQ(Ask(), "0417");
  EXPECT_TRUE(engine_->Load().healthy);
}

TEST_F(DevicesEngineTest, ServesAgainAfterNcclReportedAPeerGone) {
  options_.ring_transport = RingTransport::kNccl;
  Open();
  EmulatedNccl::Get().failing_rank = 0;
  EXPECT_THAT(Ask(), HasSubstr("a peer is gone"));
  EXPECT_TRUE(PoolsGetEmpty());
  EmulatedNccl::Get().failing_rank = -1;
}

// With a device goes its rank, and with the rank the ring: the daemon stays up and says so.
TEST_F(DevicesEngineTest, ALostDeviceEndsServingAndNotTheProcess) {
  Open();
  EXPECT_EQ(Ask(), "0417");
  EmulatedDevice::Get().wait_error = cuda::kIllegalAddress;
  EmulatedDevice::Get().wait_error_of = 1;
  // The ranks may still be told that the first request has ended, and that fails already.
  EXPECT_THAT(Ask(), AnyOf(HasSubstr("restart annulusd"), HasSubstr("an earlier step failed")));
  EXPECT_TRUE(PoolsGetEmpty());
  EXPECT_FALSE(engine_->Load().healthy);
  EmulatedDevice::Get().wait_error = 0;
}

// Those that wait cannot be served either: they end with the step, and nobody is told to try again.
TEST_F(DevicesEngineTest, ALostDeviceEndsRequestsThatWaitToo) {
  options_.max_running = 1;
  Open();
  EmulatedDevice::Get().wait_error = cuda::kIllegalAddress;
  std::shared_ptr<CollectingSink> sinks[3];
  for (auto& sink : sinks) {
    sink = std::make_shared<CollectingSink>();
    ASSERT_TRUE(engine_->Submit(testing::GateQuestion(*engine_), sink).ok());
  }
  for (const auto& sink : sinks) {
    const auto done = sink->Wait();
    ASSERT_TRUE(done.has_value());
    EXPECT_EQ(done->status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(done->status.message()), HasSubstr("restart the server"));
  }
  EXPECT_TRUE(PoolsGetEmpty());
  EmulatedDevice::Get().wait_error = 0;
}

// Two ranks of one device, whose streams wait for each other by events.
class OneDeviceEngineTest : public DevicesEngineTest {
 protected:
  OneDeviceEngineTest() : DevicesEngineTest(1) {}
};

TEST_F(OneDeviceEngineTest, ServesAgainAfterAStepThatFailedInTheMiddle) {
  Open();
  EXPECT_EQ(engine_->Load().ring_transport, "addresses");
  EXPECT_EQ(Ask(), "0417");
  EmulatedDevice::Get().event_error = cuda::kMemoryAllocation;
  EXPECT_THAT(Ask(), HasSubstr("recording an event"));
  EXPECT_TRUE(PoolsGetEmpty());
  EmulatedDevice::Get().event_error = 0;
  EXPECT_EQ(Ask(), "0417");
  EXPECT_TRUE(engine_->Load().healthy);
}

TEST_F(OneDeviceEngineTest, ADeviceThatHangsIsADeadline) {
  options_.exchange_timeout = std::chrono::milliseconds(300);
  Open();
  EmulatedDevice::Get().hangs = true;
  EXPECT_THAT(Ask(), HasSubstr("did not answer within --exchange-timeout"));
  EXPECT_FALSE(engine_->Load().healthy);
  EmulatedDevice::Get().hangs = false;
}

// The wait for the device ends before ranks are given up: they say why, on one device as on two,
// alone and in a ring, and the engine closes while the device still hangs.
TEST_F(OneDeviceEngineTest, AWaitForADeviceThatHangsEnds) {
  const std::chrono::milliseconds patience = kSanitized ? 8000ms : 2000ms;
  for (const auto& [devices, ranks] : {std::pair(1, 1), {1, 2}, {2, 2}}) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks on ", devices, " devices"));
    UseDevices(devices, {.longest_wait = patience * 3 / 2});
    options_.ranks = ranks;
    options_.exchange_timeout = patience;
    options_.kv_memory_bytes = size_t{8} << 20;
    Open();
    EmulatedDevice::Get().hangs_of = devices - 1;
    EmulatedDevice::Get().hangs = true;
    EXPECT_THAT(Ask(), HasSubstr("so a kernel or the GPU hangs"));
    EXPECT_TRUE(PoolsGetEmpty());
    const EngineLoad load = engine_->Load();
    EXPECT_FALSE(load.healthy);
    for (const RankLoad& rank : load.ranks) EXPECT_FALSE(rank.up);
    const auto begin = std::chrono::steady_clock::now();
    engine_.reset();
    backend_.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, patience);
    testing::CloseDevices();
  }
}

TEST_F(DevicesEngineTest, RefusedMemoryIsAStatus) {
  options_.kv_memory_bytes = size_t{3} << 30;
  const auto engine = CreateEngineWith({.through_bytes = true}, options_, *backend_, registry_);
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("ring buffers"));
}

TEST_F(DevicesTest, DevicesOfAnotherKindArePassedOver) {
  EmulatedDevice::Get().devices = 3;
  EmulatedDevice::Get().odd_device = 1;
  const auto backend = CreateCudaBackends(3).value();
  EXPECT_EQ(backend->capabilities().devices, 2);
  EXPECT_THAT(backend->capabilities().description, HasSubstr("without GPU 1 (odd)"));
  EXPECT_EQ(CreateCudaBackends(1).value()->capabilities().devices, 1);
}

// Pages that are kept on disk are taken back by the same model on GPUs of the same kind alone.
TEST_F(DevicesTest, TheKindOfGpuBelongsToTheIdentityOfPages) {
  EmulatedDevice& device = EmulatedDevice::Get();
  EngineOptions options = testing::PlainOptions();
  options.model = testing::TestFile("golden/llama_gqa_bf16").string();
  options.kernels = "cuda/sm80-invariant";
  const auto identity = [&](int major, int minor) {
    device.major = major;
    device.minor = minor;
    const auto backend = CreateCudaBackends(1).value();
    return LoadModel(options, *backend, registry_).value().identity;
  };
  const std::string of_ada = identity(8, 9);
  const std::string of_ampere = identity(8, 0);
  const std::string of_hopper = identity(9, 0);
  EXPECT_NE(of_hopper, of_ampere);
  EXPECT_NE(of_ampere, of_ada) << "less shared memory: other kernels";
  EXPECT_EQ(of_hopper, identity(9, 0));
}

using DevicesDeathTest = DevicesTest;

TEST_F(DevicesDeathTest, KernelsCannotTouchAnotherDevicesMemory) {
  DeviceBuffer own = backend_->Allocate(256).value();
  DeviceBuffer other = backend_->OnDevice(1).Allocate(256).value();
  const auto scale = [&](DeviceBuffer& buffer) {
    const auto stream = backend_->CreateStream(1).value();
    ASSERT_TRUE(ops().scale(*stream, {{buffer.as<float>(), 1, 64, 64}, 2.0f}).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
  };
  scale(own);
  EXPECT_DEATH(scale(other), "");
}

}  // namespace
}  // namespace annulus
