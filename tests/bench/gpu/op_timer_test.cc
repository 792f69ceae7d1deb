#include "bench/gpu/op_timer.h"

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"

namespace annulus::bench {
namespace {

using std::chrono::milliseconds;

// On an emulated GPU that does everything at once: an op that sleeps takes the host and the device
// as long.
class OpTimerTest : public ::testing::Test {
 protected:
  OpTimer Make(double enough_seconds, size_t copied_bytes) {
    return OpTimer::Create(*backend_, *stream_, enough_seconds, copied_bytes).value();
  }
  std::function<absl::Status()> Sleep(milliseconds time) {
    return [this, time] {
      ++calls_;
      std::this_thread::sleep_for(time);
      return absl::OkStatus();
    };
  }

  const std::unique_ptr<Backend> backend_ = CreateCudaBackend(0).value();
  const std::unique_ptr<Stream> stream_ = backend_->CreateStream(1).value();
  int calls_ = 0;
};

TEST_F(OpTimerTest, ShortOpsRunInARow) {
  OpTimer timer = Make(0, 4096);
  const OpSeconds seconds = timer.Time(Sleep(milliseconds(0))).value();
  EXPECT_GE(seconds.runs, 2);
  EXPECT_LE(seconds.runs, 16);
  EXPECT_GE(seconds.host, seconds.enqueue);
  // Two that do not count, and in each of three rounds one for the host and those for the device.
  EXPECT_EQ(calls_, 2 + 3 * (1 + seconds.runs));
}

TEST_F(OpTimerTest, SecondsAreOfOneRun) {
  OpTimer timer = Make(0, 4096);
  const auto start = std::chrono::steady_clock::now();
  const OpSeconds seconds = timer.Time(Sleep(milliseconds(1))).value();
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - start;
  EXPECT_GE(seconds.device, 1e-3);
  EXPECT_GE(seconds.enqueue, 1e-3);
  // The median round is not longer than all of them.
  EXPECT_LE(seconds.device * seconds.runs, all.count());
}

TEST_F(OpTimerTest, LongOpsAndThoseAloneRunOnce) {
  OpTimer timer = Make(0, 0);
  EXPECT_EQ(timer.Time(Sleep(milliseconds(12))).value().runs, 1);
  EXPECT_EQ(timer.TimeAlone(Sleep(milliseconds(1))).value().runs, 1);
  EXPECT_EQ(calls_, 2 * (2 + 3 * 2));
}

TEST_F(OpTimerTest, ItGoesOnUntilTheTimeIsEnough) {
  OpTimer timer = Make(0.1, 0);
  ASSERT_TRUE(timer.TimeAlone(Sleep(milliseconds(2))).ok());
  EXPECT_GT(calls_, 2 + 3 * 2);
}

TEST_F(OpTimerTest, OpsTakeTurns) {
  OpTimer timer = Make(0, 0);
  std::string order;
  const auto op = [&](char name, milliseconds time) {  // so long that it runs once in a row
    return [&order, name, wait = Sleep(time)] {
      order += name;
      return wait();
    };
  };
  const std::function<absl::Status()> ops[] = {op('a', milliseconds(11)),
                                               op('b', milliseconds(22))};
  const std::vector<OpSeconds> seconds = timer.TimeInTurn(ops).value();
  EXPECT_EQ(order, "aabbaabbaabbaabb");  // each twice before, and twice in each of three rounds
  ASSERT_EQ(seconds.size(), 2u);
  EXPECT_GE(seconds[0].device, 11e-3);
  EXPECT_GE(seconds[1].device, 22e-3);
  EXPECT_GE(seconds[1].host, 22e-3);
}

TEST_F(OpTimerTest, TheCopyIsTimed) {
  OpTimer timer = Make(0, 12345);
  EXPECT_EQ(timer.copied_bytes(), 2 * 12345);
  EXPECT_GT(timer.copy_seconds(), 0);
  EXPECT_GT(timer.copy_host_seconds(), 0);
}

TEST_F(OpTimerTest, ErrorsOfTheOpEndTheMeasurement) {
  OpTimer timer = Make(0, 0);
  const absl::Status error = absl::InternalError("no such kernel");
  EXPECT_EQ(timer.Time([&] { return error; }).status(), error);
  EXPECT_EQ(calls_, 0);
}

}  // namespace
}  // namespace annulus::bench
