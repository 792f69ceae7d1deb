// Seconds of ops, by events on an emulated GPU and by the clock on the processor.
#include "engine/ring/work_timer.h"

#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/ops.h"
#include "tests/support/cuda/emulated_streams.h"
#include "tests/support/step_driver.h"

namespace annulus {
namespace {

using std::chrono::milliseconds;

class WorkTimerTest : public ::testing::Test {
 protected:
  WorkTimerTest() {
    cuda::EmulatedStreams::Get().set_late(true);
    device_ = CreateCudaBackend(0).value();
    stream_ = device_->CreateStream(1).value();
    memory_ = device_->Allocate(kColumns * sizeof(float)).value();
    std::fill_n(values(), kColumns, 1.0f);
  }
  ~WorkTimerTest() override {
    stream_.reset();
    cuda::EmulatedStreams::Get().set_late(false);
  }

  float* values() { return reinterpret_cast<float*>(memory_.data()); }
  absl::Status Double() { return cuda::Scale(*stream_, {{values(), 1, kColumns, kColumns}, 2.0f}); }

  static constexpr int64_t kColumns = 64;
  std::unique_ptr<Backend> device_;
  std::unique_ptr<Stream> stream_;
  DeviceBuffer memory_;
};

TEST_F(WorkTimerTest, TimesADevicesWorkWithoutWaitingForIt) {
  WorkTimer timer(*device_);
  for (int step = 0; step < 2; ++step) {
    values()[0] = 1;
    for (int call = 0; call < 3; ++call) {
      ASSERT_TRUE(timer.Time(*stream_, [&] { return Double(); }).ok());
    }
    EXPECT_EQ(values()[0], 1);
    ASSERT_TRUE(stream_->Synchronize().ok());
    EXPECT_EQ(values()[0], 8);
    EXPECT_GT(timer.Take().value(), 0);
    EXPECT_EQ(timer.Take().value(), 0);
  }
  ASSERT_TRUE(timer.Time(*stream_, [&] { return Double(); }).ok());
  timer.Forget();
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(timer.Take().value(), 0);
}

// Between calls nothing is counted, and a call that fails is the caller's.
TEST_F(WorkTimerTest, CountsCallsAlone) {
  WorkTimer timer(*device_);
  ASSERT_TRUE(timer.Time(*stream_, [&] { return Double(); }).ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  std::this_thread::sleep_for(milliseconds(200));
  ASSERT_TRUE(timer.Time(*stream_, [&] { return Double(); }).ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_LT(timer.Take().value(), 0.2);
  EXPECT_EQ(timer.Time(*stream_, [] { return absl::AbortedError("no"); }).code(),
            absl::StatusCode::kAborted);
}

// Who follows is never more than kAhead calls before the device.
TEST_F(WorkTimerTest, FollowsTheDevice) {
  WorkTimer timer(*device_);
  float done = 1;
  for (size_t call = 1; call <= 6; ++call) {
    ASSERT_TRUE(timer.Time(*stream_, [&] { return Double(); }).ok());
    ASSERT_TRUE(timer.Follow().ok());
    if (call > WorkTimer::kAhead) done *= 2;
    EXPECT_EQ(values()[0], done) << call;
  }
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(values()[0], 64);
}

TEST_F(WorkTimerTest, TimesTheProcessorByItsClock) {
  testing::CpuWorld world;
  const auto stream = world.backend->CreateStream(1).value();
  WorkTimer timer(*world.backend);
  const absl::Status status = timer.Time(*stream, [] {
    std::this_thread::sleep_for(milliseconds(20));
    return absl::CancelledError("late");
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(timer.Follow().ok());
  EXPECT_GE(timer.Take().value(), 0.02);
  EXPECT_EQ(timer.Take().value(), 0);
}

}  // namespace
}  // namespace annulus
