// Pages in the memory of a device: what moves and compares them while the device takes its time or
// fails.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "engine/tiers/host_store.h"
#include "engine/tiers/page_comparer.h"
#include "engine/tiers/page_mover.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/engine/tiers/marks.h"
#include "tests/engine/tiers/mover_lanes.h"
#include "tests/support/eventually.h"
#include "tests/support/gated_device.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;
using testing::MarksOf;
using testing::PayloadOf;

constexpr size_t kDevicePageBytes = 300;
constexpr size_t kFirstPiece = 100;

// A page of two layers, with or without a gap between them.
class DevicePage {
 public:
  explicit DevicePage(size_t gap = 0) : gap_(gap), bytes_(kDevicePageBytes + gap) {}
  DevicePage(const std::vector<std::byte>& contents, size_t gap = 0) : DevicePage(gap) {
    std::copy_n(contents.begin(), kFirstPiece, bytes_.begin());
    std::copy(contents.begin() + kFirstPiece, contents.end(), bytes_.begin() + kFirstPiece + gap);
  }

  PagePieces pieces() {
    const std::span<std::byte> all(bytes_);
    return {all.first(kFirstPiece), all.subspan(kFirstPiece + gap_)};
  }
  std::vector<std::byte> contents() const {
    std::vector<std::byte> all(bytes_.begin(), bytes_.begin() + kFirstPiece);
    all.insert(all.end(), bytes_.begin() + static_cast<int64_t>(kFirstPiece + gap_), bytes_.end());
    return all;
  }

 private:
  size_t gap_;
  std::vector<std::byte> bytes_;
};

class DevicePagesTest : public ::testing::Test {
 protected:
  DevicePagesTest()
      : processor_(CreateCpuBackend().value()),
        device_(*processor_, kFirstPiece),
        store_(HostStore::Create(1 << 20, kDevicePageBytes).value()),
        lanes_(device_, kDevicePageBytes, PageMover::kThreads) {
    PageMover::Options options;
    options.lanes = lanes_.all();
    options.wake = [this] {
      std::lock_guard lock(mutex_);
      ++woken_;
      changed_.notify_all();
    };
    mover_ = std::make_unique<PageMover>(*store_, std::move(options));
  }
  // The mover waits for what is under way.
  ~DevicePagesTest() override { device_.Open(); }

  void WaitUntilWoken() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return woken_ > 0; });
    --woken_;
  }
  PageMover::Done Wait() {
    WaitUntilWoken();
    std::vector<PageMover::Done> done = mover_->TakeDone();
    EXPECT_EQ(done.size(), 1u);
    return done.empty() ? PageMover::Done() : std::move(done[0]);
  }
  void WaitUntilNotCopying(uint64_t ticket) {
    WaitUntilWoken();
    EXPECT_FALSE(mover_->IsCopying(ticket));
  }

  const std::unique_ptr<Backend> processor_;
  testing::GatedDevice device_;
  const std::unique_ptr<HostStore> store_;
  const testing::MoverLanes lanes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int woken_ = 0;
  const PageMark mark_ = MarksOf(1)[0];
  const std::vector<std::byte> payload_ = PayloadOf(mark_, kDevicePageBytes);
  std::unique_ptr<PageMover> mover_;
};

TEST_F(DevicePagesTest, GoAndComeBackLayerByLayer) {
  for (const size_t gap : {size_t{0}, size_t{28}}) {
    const PageMark mark = MarksOf(1, "default", static_cast<int32_t>(gap))[0];
    DevicePage page(PayloadOf(mark, kDevicePageBytes), gap);
    const int64_t before = device_.copies();
    mover_->Write({1, mark, page.pieces(), 1});
    EXPECT_TRUE(Wait().status.ok());
    DevicePage back(gap);
    mover_->Read({2, mark, back.pieces(), 2}, {3, 1});
    EXPECT_TRUE(Wait().status.ok());
    EXPECT_EQ(back.contents(), page.contents());
    // Without a gap one call carries all layers.
    EXPECT_EQ(device_.copies() - before, gap == 0 ? 2 : 4);
  }
}

// The caller does not wait, and learns when the page is its own again.
TEST_F(DevicePagesTest, APageIsInUseUntilItsCopyHasEnded) {
  device_.Close();
  DevicePage page(payload_);
  mover_->Write({1, mark_, page.pieces(), 1});
  device_.WaitForCopies(1);
  EXPECT_TRUE(mover_->IsCopying());
  EXPECT_TRUE(mover_->IsCopying(1));
  EXPECT_FALSE(mover_->IsCopying(2));
  EXPECT_TRUE(mover_->DropWrites().empty());
  EXPECT_TRUE(mover_->IsCopying(1));
  device_.Open();
  WaitUntilNotCopying(1);
  page = DevicePage(std::vector<std::byte>(kDevicePageBytes, std::byte{0x55}));
  EXPECT_TRUE(Wait().fresh);
  std::vector<std::byte> stored(kDevicePageBytes);
  ASSERT_TRUE(store_->Get(mark_, stored, 2).ok());
  EXPECT_EQ(stored, payload_);
}

TEST_F(DevicePagesTest, SoIsThePlaceOfAReadThatIsCancelled) {
  DevicePage page(payload_);
  mover_->Write({1, mark_, page.pieces(), 1});
  Wait();
  device_.Close();
  DevicePage back;
  const PageId id{0, 7};
  mover_->Read({.ticket = 2, .mark = mark_, .pieces = back.pieces(), .use = 2, .id = id}, {3, 1});
  device_.WaitForCopies(1);
  mover_->CancelReads(3);
  EXPECT_TRUE(mover_->IsCopying(2));
  const std::vector<PageMover::Copy> copies = mover_->CopiesOf(3);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_TRUE(copies[0].ticket == 2 && copies[0].id == id);
  EXPECT_TRUE(mover_->CopiesOf(4).empty());
  EXPECT_TRUE(mover_->IsCopyingFor(3));
  EXPECT_FALSE(mover_->IsCopyingFor(4));
  device_.Open();
  WaitUntilNotCopying(2);
  EXPECT_TRUE(mover_->CopiesOf(3).empty());
  EXPECT_FALSE(mover_->IsCopyingFor(3));
  EXPECT_TRUE(mover_->TakeDone().empty());
}

TEST_F(DevicePagesTest, AFailedCopyTurnsTheStoreOff) {
  device_.Fail(absl::UnavailableError("the device is lost"));
  DevicePage page(payload_);
  mover_->Write({1, mark_, page.pieces(), 1});
  EXPECT_EQ(Wait().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(store_->on());
  EXPECT_EQ(store_->stats().off, "the device is lost");
  EXPECT_EQ(store_->stats().io_errors, 1);
  EXPECT_EQ(store_->stats().pages, 0);
  const int64_t before = device_.copies();
  mover_->Write({2, mark_, page.pieces(), 1});
  EXPECT_EQ(Wait().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(device_.copies(), before) << "the device is asked no more";
}

TEST_F(DevicePagesTest, SoDoesOneOnTheWayBack) {
  DevicePage page(payload_);
  mover_->Write({1, mark_, page.pieces(), 1});
  Wait();
  device_.Fail(absl::UnavailableError("the device is lost"));
  mover_->Read({2, mark_, page.pieces(), 2}, {3, 1});
  const PageMover::Done done = Wait();
  EXPECT_TRUE(done.read && done.batch == 3);
  EXPECT_EQ(done.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(store_->on());
}

// A device that has no memory left just now is not broken.
TEST_F(DevicePagesTest, ALackOfMemoryLeavesItOn) {
  device_.Fail(absl::ResourceExhaustedError("no memory"));
  DevicePage page(payload_);
  mover_->Write({1, mark_, page.pieces(), 1});
  EXPECT_EQ(Wait().status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store_->on());
}

TEST_F(DevicePagesTest, AreComparedOnTheHost) {
  Backend* const devices[] = {&device_, &device_};
  const auto comparer = PageComparer::Open(devices, kDevicePageBytes).value();
  EXPECT_EQ(comparer->buffer_bytes(), 2 * kDevicePageBytes);
  DevicePage one(payload_);
  DevicePage same(payload_, 28);
  std::vector<std::byte> changed = payload_;
  changed.back() ^= std::byte{1};
  DevicePage other(changed);
  const std::chrono::seconds most(60);
  EXPECT_EQ(comparer->Same({0, one.pieces()}, {1, same.pieces()}, most).value(), true);
  EXPECT_EQ(comparer->Same({0, one.pieces()}, {1, other.pieces()}, most).value(), false);
  device_.Fail(absl::UnavailableError("the device is lost"));
  EXPECT_THAT(comparer->Same({0, one.pieces()}, {1, same.pieces()}, most).status().message(),
              HasSubstr("is lost"));
}

TEST_F(DevicePagesTest, NoComparisonWaitsForADeviceThatHangs) {
  DevicePage page(payload_);  // first: the comparer may read it until its end
  Backend* const devices[] = {&device_};
  const auto comparer = PageComparer::Open(devices, kDevicePageBytes).value();
  const auto compare = [&](std::chrono::milliseconds most) {
    return comparer->Same({0, page.pieces()}, {0, page.pieces()}, most);
  };
  device_.Close();
  const absl::Status late = compare(std::chrono::milliseconds(1)).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(late.message(), HasSubstr("within 1 ms"));
  const auto begun = [&] {  // the comparer's thread may have been late as well
    return absl::StrContains(compare(std::chrono::milliseconds(1)).status().message(), "still");
  };
  EXPECT_TRUE(testing::Eventually(begun));
  const absl::Status again = compare(std::chrono::milliseconds(60'000)).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(again.message(), HasSubstr("still copies")) << "it does not wait for that too";
  device_.Open();
  // A device that was only slow compares as before.
  EXPECT_TRUE(testing::Eventually([&] {
    const absl::StatusOr<bool> same = compare(std::chrono::milliseconds(60'000));
    return same.ok() && *same;
  }));
}

// A device whose copies are under way until somebody waits for them.
class LateDevice final : public Backend {
 public:
  explicit LateDevice(Backend& processor)
      : processor_(processor), capabilities_(processor.capabilities()) {
    capabilities_.host_accessible = false;
  }

  std::function<absl::Status()> fail;  // what becomes of a second copy; none: it begins too
  std::function<void()> wait = [] {};  // called by Synchronize
  int under_way = 0;

  const BackendCapabilities& capabilities() const override { return capabilities_; }
  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override {
    return processor_.Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int /*threads*/) override {
    return std::make_unique<LateStream>(*this);
  }
  absl::Status Copy(Stream&, void* destination, const void* source, size_t bytes) override {
    if (under_way == 1 && fail) return fail();
    ++under_way;
    std::memcpy(destination, source, bytes);
    return absl::OkStatus();
  }

 private:
  struct LateStream final : Stream {
    explicit LateStream(LateDevice& device) : device(device) {}
    absl::Status Synchronize() override {
      device.under_way = 0;
      device.wait();
      return absl::OkStatus();
    }
    LateDevice& device;
  };

  Backend& processor_;
  BackendCapabilities capabilities_;
};

TEST(PageLaneTest, NothingIsUnderWayAfterAnError) {
  const std::unique_ptr<Backend> processor = CreateCpuBackend().value();
  LateDevice device(*processor);
  Backend* const devices[] = {&device};
  const auto lane = PageLane::Open(devices, kDevicePageBytes).value();
  DevicePage page(/*gap=*/28);
  const std::function<absl::Status()> failures[] = {
      [] { return absl::ResourceExhaustedError("no memory"); },
      []() -> absl::Status { throw std::bad_alloc(); }};
  for (const auto& failure : failures) {
    device.fail = failure;
    EXPECT_EQ(lane->CopyOut(0, page.pieces()).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(device.under_way, 0);
    EXPECT_EQ(lane->CopyIn(0, page.pieces()).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(device.under_way, 0);
  }
}

TEST(PageLaneTest, AComparisonWithoutMemoryFailsAlone) {
  const std::unique_ptr<Backend> processor = CreateCpuBackend().value();
  LateDevice device(*processor);
  Backend* const devices[] = {&device};
  const auto comparer = PageComparer::Open(devices, kDevicePageBytes).value();
  DevicePage page;
  device.wait = [] { throw std::bad_alloc(); };
  const std::chrono::seconds most(60);
  EXPECT_EQ(comparer->Same({0, page.pieces()}, {0, page.pieces()}, most).status().code(),
            absl::StatusCode::kResourceExhausted);
  device.wait = [] {};
  EXPECT_EQ(comparer->Same({0, page.pieces()}, {0, page.pieces()}, most).value(), true);
}

TEST(HostPagesTest, AreComparedInPlace) {
  const std::unique_ptr<Backend> processor = CreateCpuBackend().value();
  Backend* const devices[] = {processor.get()};
  const auto comparer = PageComparer::Open(devices, kDevicePageBytes).value();
  EXPECT_EQ(comparer->buffer_bytes(), 0);
  std::vector<std::byte> bytes(kDevicePageBytes, std::byte{0x55});
  DevicePage one(bytes);
  DevicePage same(bytes, 28);
  const std::chrono::milliseconds most(0);
  EXPECT_EQ(comparer->Same({0, one.pieces()}, {0, same.pieces()}, most).value(), true);
  bytes[kFirstPiece] = std::byte{0x54};
  DevicePage other(bytes);
  EXPECT_EQ(comparer->Same({0, one.pieces()}, {0, other.pieces()}, most).value(), false);
}

}  // namespace
}  // namespace annulus
