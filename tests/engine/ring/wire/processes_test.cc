// Rings whose ranks are processes. They are forked here and report by sockets; this process itself
// has no thread and does not load UCX, so that its children can.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/ring/wire/ucx_carrier.h"
#include "engine/ring/wire/ucx_library.h"
#include "engine/ring/wire/wire_ring.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"

namespace annulus {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// One end of a socket between a test and a rank: texts of any length.
class Line {
 public:
  explicit Line(int socket) : socket_(socket) {}
  ~Line() { close(socket_); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  // False if the other end is gone.
  bool Say(const std::string& text) {
    const uint64_t bytes = text.size();
    return Move<true>(const_cast<uint64_t*>(&bytes), sizeof(bytes)) &&
           Move<true>(const_cast<char*>(text.data()), text.size());
  }
  // "gone" if the other end is.
  std::string Hear() {
    uint64_t bytes = 0;
    if (!Move<false>(&bytes, sizeof(bytes))) return "gone";
    std::string text(bytes, '\0');
    return Move<false>(text.data(), text.size()) ? text : "gone";
  }

 private:
  template <bool kSend>
  bool Move(void* data, size_t bytes) {
    auto* at = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t moved =
          kSend ? send(socket_, at, bytes, MSG_NOSIGNAL) : recv(socket_, at, bytes, 0);
      if (moved <= 0) return false;
      at += moved;
      bytes -= static_cast<size_t>(moved);
    }
    return true;
  }

  const int socket_;
};

// What a rank does in its process; its result goes to the test.
using Body = std::function<std::string(RingChannel&, WireRing&, Line&)>;

std::string RunRank(int rank, int ranks, Line& line, const Body& body) {
  WireRingSetup setup;
  setup.ranks = ranks;
  setup.local = {rank};
  setup.open = [] { return OpenUcxCarrier("lo"); };
  setup.exchange = [&](uint64_t,
                       std::vector<std::string> own) -> absl::StatusOr<std::vector<std::string>> {
    line.Say(own[0]);
    std::vector<std::string> all(ranks);
    for (std::string& address : all) address = line.Hear();
    return all;
  };
  const auto ring = WireRing::Create(std::move(setup), Clock::Real());
  if (!ring.ok()) return ring.status().ToString();
  return body((*ring)->channel(rank), **ring, line);
}

class ProcessesTest : public ::testing::Test {
 protected:
  ~ProcessesTest() override { EndAll(); }

  void SetUp() override {
    // In a process of its own: this one stays without UCX.
    const pid_t probe = fork();
    ASSERT_GE(probe, 0);
    if (probe == 0) _exit(LoadUcx().ok() ? 0 : 1);
    int how = 0;
    ASSERT_EQ(waitpid(probe, &how, 0), probe);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0) GTEST_SKIP() << "libucx0 is not installed";
  }

  void Start(int ranks, const Body& body) {
    EndAll();
    for (int rank = 0; rank < ranks; ++rank) {
      int sockets[2];
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        alarm(120);
        lines_.clear();
        close(sockets[0]);
        Line line(sockets[1]);
        line.Say(RunRank(rank, ranks, line, body));
        _exit(0);
      }
      close(sockets[1]);
      children_.push_back(child);
      lines_.push_back(std::make_unique<Line>(sockets[0]));
    }
  }

  // Lets the ranks form an epoch.
  void ExchangeAddresses() {
    const std::vector<std::string> all = HearAll();
    for (const auto& line : lines_) {
      for (const std::string& address : all) line->Say(address);
    }
  }
  std::vector<std::string> HearAll() {
    std::vector<std::string> heard;
    for (const auto& line : lines_) heard.push_back(line->Hear());
    return heard;
  }
  // All ranks have come here, and go on together.
  void ExpectAll(const std::string& text) {
    for (const std::string& heard : HearAll()) EXPECT_EQ(heard, text);
    for (const auto& line : lines_) line->Say("go on");
  }

  void EndAll() {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    children_.clear();
    lines_.clear();
  }

  std::vector<pid_t> children_;               // [rank]
  std::vector<std::unique_ptr<Line>> lines_;  // [rank]
};

std::vector<std::byte> BytesOf(int rank, int round, size_t size) {
  std::vector<std::byte> bytes(size);
  auto value = static_cast<unsigned>(1000 * rank + round);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>((value = value * 69069 + 1) >> 16);
  return bytes;
}

// Everybody sends everybody a message in each round, of lengths that travel in different ways.
absl::Status RunRounds(RingChannel& channel, Stream& stream, int rounds) {
  const std::vector<size_t> sizes = {64, 1, 100000, 65536, 1000003};
  std::vector<std::vector<std::byte>> own;
  for (int round = 0; round < rounds; ++round) {
    own.push_back(BytesOf(channel.rank(), round, sizes[round % sizes.size()]));
    const size_t part_bytes[] = {own.back().size()};
    std::vector<RingMessage> sent;
    std::vector<RingExpectation> expected;
    std::vector<std::vector<std::byte>> into(channel.size());
    const auto tag = static_cast<uint64_t>(round);
    for (int peer = 0; peer < channel.size(); ++peer) {
      if (peer == channel.rank()) continue;
      into[peer].resize(part_bytes[0]);
      sent.push_back({peer, tag, {{own.back().data(), own.back().size()}}});
      expected.push_back({peer, tag, {part_bytes[0]}, into[peer].data()});
    }
    const SteadyTime deadline = Clock::Real().Now() + 60s;
    absl::Status status = channel.Post(stream, sent, expected, deadline);
    for (int peer = 0; peer < channel.size() && status.ok(); ++peer) {
      if (peer == channel.rank()) continue;
      status = channel.Receive(stream, peer, tag, part_bytes, deadline).status();
      if (status.ok() && into[peer] != BytesOf(peer, round, part_bytes[0])) {
        status = absl::DataLossError("other bytes");
      }
    }
    if (!status.ok()) return status;
  }
  return channel.Flush(Clock::Real().Now() + 60s);
}

TEST_F(ProcessesTest, RoundsOfAllWithAllEndInEachEpoch) {
  for (const int ranks : {2, 4}) {
    Start(ranks, [](RingChannel& channel, WireRing& ring, Line& line) -> std::string {
      const auto backend = CreateCpuBackend().value();
      const auto stream = backend->CreateStream(1).value();
      for (const int rounds : {30, 7}) {
        absl::Status status = RunRounds(channel, *stream, rounds);
        line.Say(status.ok() ? "done" : status.ToString());
        line.Hear();
        channel.Abort(absl::CancelledError("the ring forms anew"));
        status = ring.Reset();
        if (!status.ok()) return status.ToString();
      }
      return "ended";
    });
    ExchangeAddresses();
    ExpectAll("done");
    ExchangeAddresses();
    ExpectAll("done");
    ExchangeAddresses();
    ExpectAll("ended");
  }
}

class KilledPeerTest : public ProcessesTest {
 protected:
  // Kills rank 1 of 2 while rank 0 waits for it; returns after how long rank 0 knew.
  std::chrono::milliseconds KillOne() {
    Start(2, [](RingChannel& channel, WireRing&, Line& line) -> std::string {
      const auto backend = CreateCpuBackend().value();
      const auto stream = backend->CreateStream(1).value();
      std::vector<std::byte> into(64);
      const size_t sizes[] = {into.size()};
      const int peer = 1 - channel.rank();
      const RingExpectation expected{peer, 2, {into.size()}, into.data()};
      const SteadyTime deadline = Clock::Real().Now() + 60s;
      absl::Status status = channel.Post(*stream, {}, {&expected, 1}, deadline);
      line.Say("waits");
      line.Hear();
      if (channel.rank() == 1) line.Hear();  // nothing comes
      status.Update(channel.Receive(*stream, peer, 2, sizes, deadline).status());
      const auto end = Clock::Real().Now().time_since_epoch();
      line.Say(std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(end).count()));
      return status.ToString();
    });
    ExchangeAddresses();
    ExpectAll("waits");
    const auto start = std::chrono::duration_cast<std::chrono::milliseconds>(
        Clock::Real().Now().time_since_epoch());
    kill(children_[1], SIGKILL);
    const std::string end = lines_[0]->Hear();
    EXPECT_THAT(lines_[0]->Hear(), HasSubstr("UNAVAILABLE: rank 0 has lost rank 1"));
    return std::chrono::milliseconds(std::stoll(end)) - start;
  }
};

// Once in five times, as other tests run beside this.
TEST_F(KilledPeerTest, IsSeenWithin100Milliseconds) {
  std::chrono::milliseconds best = 1h;
  for (int turn = 0; turn < 5 && best >= 100ms; ++turn) best = std::min(best, KillOne());
  RecordProperty("milliseconds", static_cast<int>(best.count()));
  EXPECT_LT(best, 100ms);
}

}  // namespace
}  // namespace annulus
