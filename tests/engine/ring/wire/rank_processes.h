#ifndef ANNULUS_TESTS_ENGINE_RING_WIRE_RANK_PROCESSES_H_
#define ANNULUS_TESTS_ENGINE_RING_WIRE_RANK_PROCESSES_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/ring/wire/ucx_carrier.h"
#include "engine/ring/wire/ucx_library.h"
#include "engine/ring/wire/wire_ring.h"

namespace annulus::testing {

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

inline std::string RunRank(int rank, int ranks, Line& line, const Body& body) {
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

// A ring whose ranks are processes: forked here, they report by sockets. The process of the test
// itself has no thread and does not load UCX, so that its children can.
class RankProcesses : public ::testing::Test {
 protected:
  ~RankProcesses() override { EndAll(); }

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

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_RING_WIRE_RANK_PROCESSES_H_
