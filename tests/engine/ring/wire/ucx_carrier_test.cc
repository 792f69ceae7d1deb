#include "engine/ring/wire/ucx_carrier.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/ring/wire/ucx_library.h"
#include "engine/ring/wire/wire.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "tests/support/eventually.h"
#include "tests/support/manual_clock.h"
#include "tests/support/thinned.h"
#include "tests/support/wire_rings.h"

namespace annulus {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr uint64_t kUcxEpoch = 5;

class NoSink final : public CarrierSink {
  void OnFrame(std::span<const std::byte>, size_t, size_t, uint64_t) override {}
  void OnLost(int, const absl::Status&) override {}
};

// Holds the carrier's thread in the first frame, as a process that is stopped there.
class HoldingSink final : public CarrierSink {
 public:
  void OnFrame(std::span<const std::byte>, size_t, size_t, uint64_t) override {
    std::unique_lock lock(mutex_);
    holds_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, 60s, [this] { return goes_on_; });
  }
  void OnLost(int peer, const absl::Status& why) override {
    std::lock_guard lock(mutex_);
    lost_[peer] = std::string(why.message());
    changed_.notify_all();
  }
  bool AwaitHeld() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 60s, [this] { return holds_; });
  }
  void GoOn() {
    std::lock_guard lock(mutex_);
    goes_on_ = true;
    changed_.notify_all();
  }
  // Of so many peers, [rank].
  std::map<int, std::string> AwaitLost(size_t peers) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 60s, [&] { return lost_.size() >= peers; });
    return lost_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool holds_ = false;
  bool goes_on_ = false;
  std::map<int, std::string> lost_;
};

class UcxCarrierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Status possible = testing::CanTest(testing::WireKind::kUcx);
    if (!possible.ok()) GTEST_SKIP() << possible.message();
    for (int rank = 0; rank < 2; ++rank) {
      wires_.push_back(
          std::make_unique<Wire>(OpenUcxCarrier("lo").value(), rank, 2, kUcxEpoch, clock_));
      addresses_.push_back(wires_.back()->address());
    }
    for (const auto& wire : wires_) ASSERT_TRUE(wire->Connect(addresses_).ok());
  }

  SteadyTime Later() const { return clock_.Now() + 60s; }

  // A message gets from rank 1 to rank 0.
  void ExpectThatItWorks() {
    std::vector<std::byte> sent(100000, std::byte{3}), into(sent.size());
    const size_t sizes[] = {sent.size()};
    ASSERT_TRUE(wires_[0]->Expect(1, 7, sizes, into.data()).ok());
    ASSERT_TRUE(wires_[1]->Send(0, 7, {{sent.data(), sent.size()}}).ok());
    const auto came = wires_[0]->Receive(1, 7, sizes, Later());
    ASSERT_TRUE(came.ok()) << came.status();
    EXPECT_EQ(into, sent);
    EXPECT_TRUE(wires_[1]->Flush(Later()).ok());
  }

  const Clock& clock_ = Clock::Real();
  std::vector<std::unique_ptr<Wire>> wires_;
  std::vector<std::string> addresses_;
};

TEST(UcxLibraryTest, NamesThePackageIfItIsNotThere) {
  const absl::Status status = OpenUcx("libucp-nowhere.so.0").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("libucp-nowhere.so.0"), HasSubstr("Debian and Ubuntu: libucx0")));
}

// By itself it takes over SIGHUP and the signals of crashes.
TEST_F(UcxCarrierTest, LeavesSignalsAlone) {
  for (const int signal : {SIGHUP, SIGILL, SIGTERM, kSanitized ? SIGHUP : SIGSEGV}) {
    struct sigaction action;
    ASSERT_EQ(sigaction(signal, nullptr, &action), 0);
    EXPECT_EQ(action.sa_handler, SIG_DFL) << signal;
  }
}

TEST_F(UcxCarrierTest, RefusesDevicesThatAreNotThere) {
  const absl::Status status = OpenUcxCarrier("annulus-nowhere0").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("annulus-nowhere0"));
}

TEST_F(UcxCarrierTest, NoByteOfAnAddressMayDiffer) {
  NoSink sink;
  const auto carrier = OpenUcxCarrier("lo").value();
  carrier->Start(sink);
  std::vector<std::string> addresses = addresses_;
  for (size_t byte = 0; byte < addresses_[1].size(); ++byte) {
    addresses[1] = addresses_[1];
    addresses[1][byte] ^= 1;
    EXPECT_EQ(carrier->Connect(0, addresses).code(), absl::StatusCode::kInvalidArgument) << byte;
    if (byte == 0) continue;  // an empty one is that of a rank without a host
    addresses[1] = addresses_[1].substr(0, byte);
    EXPECT_EQ(carrier->Connect(0, addresses).code(), absl::StatusCode::kInvalidArgument) << byte;
  }
  EXPECT_EQ(carrier->Connect(0, {{"", addresses_[1] + "0"}}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(UcxCarrierTest, APeerThatGoesEndsTheWaitForIt) {
  std::vector<std::byte> into(64);
  const size_t sizes[] = {64};
  ExpectThatItWorks();
  ASSERT_TRUE(wires_[0]->Expect(1, 8, sizes, into.data()).ok());
  wires_[1].reset();
  const absl::Status status = wires_[0]->Receive(1, 8, sizes, Later()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 has lost rank 1: its link failed"));
}

// A long message stays with its sender; neither flushing nor ending waits for the peer's goodwill.
TEST_F(UcxCarrierTest, ALongMessageLeavesWhenItIsReceived) {
  testing::ManualClock clock;
  auto sender = std::make_unique<Wire>(OpenUcxCarrier("lo").value(), 1, 2, kUcxEpoch, clock);
  ASSERT_TRUE(sender->Connect({{addresses_[0], ""}}).ok());
  std::vector<std::byte> sent(kMostEagerBytes, std::byte{9}), into(sent.size());
  const size_t sizes[] = {sent.size()};
  ASSERT_TRUE(sender->Send(0, 7, {{sent.data(), sent.size()}}).ok());
  absl::Status flushed;
  std::thread flushes([&] { flushed = sender->Flush(clock.Now() + 1h); });
  ASSERT_TRUE(clock.WaitForWaiters(1));
  clock.Advance(1h);
  flushes.join();
  EXPECT_EQ(flushed.code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(wires_[0]->Expect(1, 7, sizes, into.data()).ok());
  ASSERT_TRUE(wires_[0]->Receive(1, 7, sizes, Later()).ok());
  EXPECT_TRUE(sender->Flush(clock.Now() + 1h).ok());
  ASSERT_TRUE(sender->Send(0, 8, {{sent.data(), sent.size()}}).ok());
  sender.reset();
}

// All that is under way when a wire goes: sent and not expected, half received, expected.
TEST_F(UcxCarrierTest, EndsWithTransfersUnderWay) {
  std::vector<std::byte> sent(size_t{8} << 20, std::byte{1}), into(sent.size());
  const size_t sizes[] = {sent.size()};
  for (int n = 0; n < 8; ++n) {
    ASSERT_TRUE(wires_[1]->Send(0, n, {{sent.data(), sent.size()}}).ok());
    ASSERT_TRUE(wires_[0]->Send(1, n, {{sent.data(), sent.size()}}).ok());
  }
  for (int n = 0; n < 4; ++n) ASSERT_TRUE(wires_[0]->Expect(1, n, sizes, into.data()).ok());
  ASSERT_TRUE(wires_[0]->Receive(1, 0, sizes, Later()).ok());
  wires_[0].reset();
  std::ranges::fill(into, std::byte{2});
  wires_[1].reset();
  EXPECT_EQ(into, std::vector<std::byte>(into.size(), std::byte{2}));
}

// Peers may have given them up, and UCX may end a process that finds so: kMakingLinks of
// ucx_carrier.cc.
TEST_F(UcxCarrierTest, LinksThatPeersGaveUpWhileTheProcessStoodStillAreLost) {
  HoldingSink held;
  NoSink none;
  std::vector<std::unique_ptr<Carrier>> carriers;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < 3; ++rank) {
    carriers.push_back(OpenUcxCarrier("lo").value());
    carriers.back()->Start(rank == 0 ? static_cast<CarrierSink&>(held) : none);
    addresses.push_back(carriers.back()->address());
  }
  ASSERT_TRUE(carriers[2]->Connect(2, {{addresses[0], "", ""}}).ok());
  ASSERT_TRUE(carriers[0]->Connect(0, addresses).ok());
  carriers[2]->Send(0, {}, {}, [](const absl::Status&) {});
  ASSERT_TRUE(held.AwaitHeld());
  ASSERT_TRUE(carriers[1]->Connect(1, {{addresses[0], "", addresses[2]}}).ok());
  std::this_thread::sleep_for(1'700ms);  // the carrier takes the machine's time
  carriers[1].reset();
  held.GoOn();
  const auto lost = held.AwaitLost(2);
  EXPECT_THAT(lost, ElementsAre(Pair(1, HasSubstr("this process stood still for")),
                                Pair(2, HasSubstr("so they are made anew"))));
}

// Whoever reaches the port and speaks UCX's protocol may send any frame.
TEST_F(UcxCarrierTest, FramesOfStrangersAreDropped) {
  NoSink sink;
  const auto stranger = OpenUcxCarrier("lo").value();
  stranger->Start(sink);
  ASSERT_TRUE(stranger->Connect(1, {{addresses_[0], ""}}).ok());
  std::mt19937_64 random(testing::TestSeed());
  const std::vector<std::byte> bytes(200000, std::byte{5});
  constexpr int kFrames = 500;
  for (int n = 0; n < kFrames; ++n) {
    FrameHeaderBytes header;
    for (std::byte& byte : header) byte = static_cast<std::byte>(random());
    const size_t length = random() % 2 == 0 ? random() % 64 : random() % bytes.size();
    stranger->Send(0, header, {{bytes.data(), length}}, [](const absl::Status&) {});
  }
  EXPECT_TRUE(testing::Eventually([&] { return wires_[0]->counters().strays == kFrames; }));
  ExpectThatItWorks();
}

// The TCP ports on which this process listens.
std::set<int> ListeningPorts() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    own.insert(std::filesystem::read_symlink(entry, ignored).string());
  }
  std::set<int> ports;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string slot, local, remote, state, queues, timer, retries, user, timeout, inode;
    words >> slot >> local >> remote >> state >> queues >> timer >> retries >> user >> timeout >>
        inode;
    if (state != "0A" || !own.contains("socket:[" + inode + "]")) continue;
    ports.insert(std::stoi(local.substr(local.find(':') + 1), nullptr, 16));
  }
  return ports;
}

// A browser or a port scan.
TEST_F(UcxCarrierTest, OtherProtocolsAtItsPortChangeNothing) {
  std::mt19937_64 random(testing::TestSeed());
  const std::set<int> ports = ListeningPorts();
  ASSERT_GE(ports.size(), 2);
  for (const int port : ports) {
    for (int turn = 0; turn < 20; ++turn) {
      const int guest = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      ASSERT_GE(guest, 0);
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<uint16_t>(port));
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      ASSERT_EQ(connect(guest, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
      std::string said = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
      if (turn > 0) {
        said.resize(random() % 2000);
        for (char& c : said) c = static_cast<char>(random());
      }
      // It may hang up before all is said.
      EXPECT_LE(send(guest, said.data(), said.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(said.size()));
      close(guest);
    }
  }
  ExpectThatItWorks();
}

}  // namespace
}  // namespace annulus
