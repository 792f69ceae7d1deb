// A device that hangs: every wait for it ends, says so, and leaves what the device may still use.
#include "kernels/cuda/device_waits.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/ops.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/cuda/emulated_streams.h"
#include "tests/support/eventually.h"

namespace annulus::cuda {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLimit = 200ms;
// Far more than the limit, on any machine; where nothing ends, so does not the test.
constexpr std::chrono::seconds kSoon = 20s;

class DeviceWaitsTest : public ::testing::Test {
 protected:
  DeviceWaitsTest() {
    EmulatedDevice::Get().devices = 2;
    EmulatedDevice::Get().guarded = true;
    EmulatedStreams::Get().set_late(true);
    Open();
  }
  ~DeviceWaitsTest() override {
    Close();
    EmulatedStreams::Get().set_late(false);
    EmulatedDevice::Get().guarded = false;
    EmulatedDevice::Get().devices = 1;
  }

  // A backend with a stream on each device, memory, and an event.
  void Open() {
    backend_ = CreateCudaBackends(2, {.longest_wait = kLimit}).value();
    for (int device = 0; device < 2; ++device) {
      streams_[device] = backend_->OnDevice(device).CreateStream(1).value();
      values_[device] = backend_->OnDevice(device).Allocate(kBytes).value();
    }
    event_ = backend_->CreateEvent(false).value();
    pinned_ = backend_->AllocateHost(kBytes).value();
    std::memset(pinned_.data(), 1, kBytes);
    seen_.assign(kBytes, std::byte{0});
    link_ = backend_->OnDevice(1).OpenLink(*backend_, LinkKind::kStaged).value();
    arrived_ = backend_->OnDevice(1).CreateEvent(false).value();
    peer_ = backend_->OpenLink(backend_->OnDevice(1), LinkKind::kPeer).value();
    peer_arrived_ = backend_->CreateEvent(false).value();
  }
  // What every stream has to do is not done any more.
  void Hang() {
    for (int device = 0; device < 2; ++device) {
      Backend& own = backend_->OnDevice(device);
      ASSERT_TRUE(own.Copy(*streams_[device], values_[device].data(), pinned_.data(), kBytes).ok());
    }
    ASSERT_TRUE(streams_[0]->Record(*event_).ok());
    const std::vector<DeviceCopy> forth = {{values_[1].data(), values_[0].data(), kBytes}};
    const std::vector<DeviceCopy> back = {{values_[0].data(), values_[1].data(), kBytes}};
    ASSERT_TRUE(link_->Copy(forth, {}, *arrived_).ok());
    ASSERT_TRUE(peer_->Copy(back, {}, *peer_arrived_).ok());
    EmulatedDevice::Get().hangs = true;
  }
  void Close() {
    peer_.reset();
    link_.reset();
    for (auto& stream : streams_) stream.reset();
    for (DeviceBuffer& values : values_) values.Reset();
    pinned_.Reset();
    for (auto* const event : {&event_, &arrived_, &peer_arrived_}) event->reset();
    backend_.reset();
    if (EmulatedDevice::Get().hangs) EmulatedStreams::Get().Forget();
  }

  CudaStream& stream() { return AsCudaStream(*streams_[0]); }

  static constexpr size_t kBytes = 1000;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> streams_[2];  // [device]
  DeviceBuffer values_[2];              // [device]
  DeviceBuffer pinned_;
  std::vector<std::byte> seen_;
  std::unique_ptr<Event> event_;
  std::unique_ptr<DeviceLink> link_;
  std::unique_ptr<Event> arrived_;
  std::unique_ptr<DeviceLink> peer_;
  std::unique_ptr<Event> peer_arrived_;
};

void ExpectLost(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("did not end within 200 ms"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("restart annulusd"));
}

TEST_F(DeviceWaitsTest, EveryWaitEndsAndNothingIsFreedThatTheDeviceMayUse) {
  const std::vector<std::pair<const char*, std::function<absl::Status()>>> waits = {
      {"a stream", [&] { return streams_[0]->Synchronize(); }},
      {"an event", [&] { return backend_->WaitFor(*event_); }},
      {"a copy to pageable memory",
       [&] { return backend_->Copy(*streams_[0], seen_.data(), values_[0].data(), kBytes); }},
      {"a copy from pageable memory",
       [&] { return backend_->Copy(*streams_[0], values_[0].data(), seen_.data(), kBytes); }},
      {"a graph", [&] { return streams_[0]->BeginGraph().status(); }},
      {"workspace", [&] { return stream().Scratch(size_t{8} << 20).status(); }},
      {"an upload", [&] { return stream().BeginUpload(size_t{4} << 20); }},
      {"a staged link", [&] { return link_->Drain(); }},
      {"a peer link", [&] { return peer_->Drain(); }},
      {"device memory", [&] { return backend_->Allocate(100).status(); }},
      {"pinned memory", [&] { return backend_->AllocateHost(size_t{1} << 20).status(); }},
      {"freeing",
       [&] {
         values_[0].Reset();
         return streams_[0]->Synchronize();
       }},
  };
  for (const auto& [name, wait] : waits) {
    SCOPED_TRACE(name);
    if (backend_ == nullptr) Open();
    Hang();
    const Clock::time_point begin = Clock::now();
    ExpectLost(wait());
    EXPECT_GE(Clock::now() - begin, kLimit);
    EXPECT_LT(Clock::now() - begin, kSoon);
    // All others end at once; what they would wait for need not even be asked.
    const int64_t asked = EmulatedDevice::Get().host_waits;
    for (const auto& [other, then] : waits) ExpectLost(then());
    for (const auto& stream : streams_) ExpectLost(stream->Synchronize());
    EXPECT_EQ(EmulatedDevice::Get().host_waits, asked);
    const size_t allocated = EmulatedDevice::Get().allocated;
    const size_t pinned = EmulatedDevice::Get().pinned;
    Close();
    EXPECT_LT(Clock::now() - begin, kSoon);
    std::this_thread::sleep_for(5ms);  // calls that were left behind would go on
    EXPECT_GE(EmulatedDevice::Get().allocated, allocated);
    EXPECT_GE(EmulatedDevice::Get().pinned, pinned);
  }
}

TEST_F(DeviceWaitsTest, OneDeviceThatHangsEndsWaitsForTheOthers) {
  EmulatedDevice::Get().hangs_of = 1;
  Hang();
  EXPECT_TRUE(streams_[0]->Synchronize().ok());
  ExpectLost(streams_[1]->Synchronize());
  ExpectLost(streams_[0]->Synchronize());
  ExpectLost(backend_->CreateStream(1).status());
  ExpectLost(backend_->OpenGroup(2, 1s).status());
  ExpectLost(backend_->OnDevice(1).OpenLink(*backend_, LinkKind::kPeer).status());
  EmulatedDevice::Get().hangs_of = -1;
}

// Each call that CUDA lets wait inside waits for the device that it is about, on whatever thread.
TEST_F(DeviceWaitsTest, ADeviceThatHangsHoldsNoOtherOnesMemoryUp) {
  EmulatedDevice::Get().hangs_of = 0;
  Hang();
  const auto other = CreateCudaBackend(1, {.longest_wait = kSoon}).value();
  const Clock::time_point begin = Clock::now();
  const std::vector<float> values(64 * 32, 1.5f);
  PackedMatrix matrix = CreateMatrix(Ops(), *other, 64, 32, DType::kBF16).value();
  const HostTensorView source{values.data(), DType::kF32, 64, 32};
  EXPECT_EQ(matrix.storage.device(), 1);
  EXPECT_TRUE(PackRows(matrix, 0, source, nullptr).ok());
  auto stream = other->CreateStream(1).value();
  EXPECT_TRUE(AsCudaStream(*stream).BeginUpload(kBytes).ok());  // pins
  EXPECT_TRUE(other->Copy(*stream, seen_.data(), matrix.storage.data(), kBytes).ok());
  EXPECT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(seen_[1], std::byte{0x3f});
  stream.reset();
  matrix.storage.Reset();
  EXPECT_TRUE(other->Allocate(kBytes).ok());
  EXPECT_LT(Clock::now() - begin, kSoon);
  EmulatedDevice::Get().hangs_of = -1;
}

// More than CUDA queues: one launch too many would wait inside of it. The emulation refuses that.
TEST_F(DeviceWaitsTest, LaunchesThatADeviceDoesNotTakeEnd) {
  const ScaleParams twice = {{values_[0].as<float>(), 1, 64, 64}, 2.0f};
  for (int op = 0; op < 2000; ++op) ASSERT_TRUE(Scale(*streams_[0], twice).ok()) << op;
  ASSERT_TRUE(streams_[0]->Synchronize().ok());
  EmulatedDevice::Get().hangs = true;
  int taken = 0;
  absl::Status status;
  while ((status = Scale(*streams_[0], twice)).ok()) ++taken;
  ExpectLost(status);
  EXPECT_LE(taken, CudaStream::kOpsAhead);
  EXPECT_GE(taken, CudaStream::kOpsAhead / 2);
}

// The same of pieces of steps.
TEST_F(DeviceWaitsTest, PiecesThatADeviceDoesNotTakeEnd) {
  const ScaleParams twice = {{values_[0].as<float>(), 1, 64, 64}, 2.0f};
  auto held = streams_[0]->BeginGraph().value();
  EmulatedDevice::Get().hangs = true;
  int taken = 0;
  absl::Status status;
  while ((status = Scale(*streams_[0], twice)).ok() &&
         (status = streams_[0]->Record(*event_)).ok()) {
    ++taken;
  }
  ExpectLost(status);
  EXPECT_LE(taken, CudaStream::kOpsAhead);
  EXPECT_GE(taken, CudaStream::kOpsAhead / 2);
}

// Who looks at an exchange meanwhile is told that it was ended, and does not wait with it.
TEST_F(DeviceWaitsTest, TheEndOfAGroupThatHangsEnds) {
  const auto backend = CreateCudaBackends(2, {.longest_wait = 2s}).value();
  const auto members = backend->OpenGroup(2, 1s).value();
  members[1]->Abort();
  EmulatedDevice::Get().hangs = true;
  std::atomic<bool> ended{false};
  std::thread ending([&] {
    members[0]->Abort();
    ended = true;
  });
  absl::Status told;
  while (told.ok()) told = members[0]->Ended(*event_).status();
  EXPECT_EQ(told.code(), absl::StatusCode::kAborted) << told;
  EXPECT_FALSE(ended);
  ending.join();
  EXPECT_EQ(backend->CreateStream(1).status().code(), absl::StatusCode::kUnavailable);
}

// A graph that may still run is not closed.
TEST_F(DeviceWaitsTest, GraphsOfALostDeviceAreLeft) {
  const int before = EmulatedDevice::Get().graphs;
  auto held = streams_[0]->BeginGraph().value();
  for (int launch = 0; launch < 5; ++launch) {
    ASSERT_TRUE(Scale(*streams_[0], {{values_[0].as<float>(), 1, 64, 64}, 2.0f}).ok());
  }
  EmulatedDevice::Get().hangs = true;
  ASSERT_TRUE(held->Launch().ok());
  held.reset();
  ExpectLost(streams_[0]->Synchronize());
  Close();
  EXPECT_EQ(EmulatedDevice::Get().graphs, before + 1);
}

// Longer than the host asks without a pause, shorter than it waits.
TEST_F(DeviceWaitsTest, WorkThatEndsInTimeIsNoLoss) {
  DeviceWaits waits(kSoon);
  const StreamHandle handle = stream().handle();
  for (const auto delay : {1ms, 60ms}) {
    Hang();
    std::thread going_on([&] {
      std::this_thread::sleep_for(delay);
      EmulatedDevice::Get().hangs = false;
    });
    const Clock::time_point begin = Clock::now();
    EXPECT_TRUE(waits.ForStream(handle).ok());
    EXPECT_LT(Clock::now() - begin, kSoon);
    EXPECT_TRUE(StreamIdle(handle).value());
    going_on.join();
    EXPECT_TRUE(backend_->WaitFor(*event_).ok());
  }
  EXPECT_TRUE(waits.lost().ok());
}

TEST_F(DeviceWaitsTest, CallsHaveTheirOwnStatusUntilTheDeviceIsLost) {
  DeviceWaits waits(kLimit);
  EXPECT_TRUE(waits.Call("an answer", [] { return absl::OkStatus(); }).ok());
  const auto refuse = [] { return absl::NotFoundError("not there"); };
  EXPECT_EQ(waits.Call("an answer", refuse).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(waits.is_lost());
  EmulatedDevice::Get().hangs = true;
  const auto bytes = std::make_shared<std::vector<std::byte>>(kBytes);
  std::byte* const to = values_[0].data();
  const auto copy = [=] { return CopyNow(0, to, bytes->data(), kBytes); };
  const absl::Status lost = waits.Call("copying weights", copy);
  ExpectLost(lost);
  EXPECT_THAT(std::string(lost.message()), HasSubstr("copying weights: "));
  EmulatedDevice::Get().hangs = false;  // the call that was left behind goes on
  EXPECT_EQ(waits.Call("an answer", refuse), lost);
  EXPECT_TRUE(testing::Eventually([&] { return bytes.use_count() <= 2; }));
}

}  // namespace
}  // namespace annulus::cuda
