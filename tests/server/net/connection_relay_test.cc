// The relay between clients and gRPC: everything passes but what would take too much memory.

#include "server/net/connection_relay.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/identity/peer_book.h"
#include "server/net/connection_meter.h"
#include "tests/server/http2_peer.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMostHeaderBytes = 1000;
constexpr size_t kMostUnfinished = size_t{16} << 20;

class ConnectionRelayTest : public ::testing::Test {
 protected:
  ConnectionRelayTest()
      : relay_(ConnectionRelay::Start({kMostHeaderBytes, kMostUnfinished}).value()) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    Reconnect();
  }
  ~ConnectionRelayTest() override {
    Drop(client_);
    Drop(server_);
    close(listener_);
  }

  // A client of its own socket, and what gRPC would get.
  void Reconnect(const char* source = "127.0.0.1") {
    Drop(client_);
    Drop(server_);
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    client_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    inet_pton(AF_INET, source, &own.sin_addr);
    ASSERT_EQ(bind(client_, reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
    ASSERT_EQ(connect(client_, reinterpret_cast<sockaddr*>(&address), size), 0);
    fcntl(client_, F_SETFL, O_NONBLOCK);
    const int accepted = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    server_ = relay_->Connect(accepted);
    ASSERT_GE(server_, 0);
  }

  static void Drop(int& descriptor) {
    if (descriptor >= 0) close(descriptor);
    descriptor = -1;
  }

  static bool WaitFor(int descriptor, short event) {
    pollfd socket{descriptor, event, 0};
    return poll(&socket, 1, 10'000) > 0;
  }

  // Sends all of `bytes` into one side while the other is read; what came out.
  static std::string Pass(int from, int to, const std::string& bytes) {
    std::string out;
    std::array<char, 50'000> buffer;
    size_t sent = 0;
    while (out.size() < bytes.size()) {
      const ssize_t size = send(from, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (size > 0) sent += static_cast<size_t>(size);
      const ssize_t got = recv(to, buffer.data(), buffer.size(), 0);
      if (got == 0) break;
      if (got > 0) out.append(buffer.data(), static_cast<size_t>(got));
      if (got < 0 && size <= 0 && !WaitFor(to, POLLIN)) break;
      if (got < 0 && sent == bytes.size() && !WaitFor(to, POLLIN)) break;
    }
    return out;
  }

  static bool IsClosed(int descriptor) {
    return Eventually([&] {
      std::array<char, 50'000> buffer;
      const ssize_t got = recv(descriptor, buffer.data(), buffer.size(), 0);
      return got == 0 || (got < 0 && errno != EAGAIN);
    });
  }

  // Another relay, whose reports NextReport returns.
  void Restart(ConnectionRelay::Limits limits) {
    relay_ = ConnectionRelay::Start(limits, [this](CutOff why, const std::string&) {
               std::lock_guard lock(mutex_);
               reports_.push_back(why);
             }).value();
    Reconnect();
  }
  std::optional<CutOff> NextReport() {
    std::optional<CutOff> next;
    Eventually([&] {
      std::lock_guard lock(mutex_);
      if (reports_.empty()) return false;
      next = reports_.front();
      reports_.pop_front();
      return true;
    });
    return next;
  }

  // Frames of a call of which `size` bytes of a longer message have come.
  static std::string CallWithPart(size_t size) {
    std::string frames = kHttp2Preface + Frame(FrameType::kHeaders, kEndHeaders, 1, "h");
    std::string part = GrpcMessage(std::string(16'000, 'm'), 0, 1 << 30);
    for (; size > part.size(); size -= part.size(), part.assign(16'000, 'm')) {
      frames += Frame(FrameType::kData, 0, 1, part);
    }
    return frames;
  }

  std::mutex mutex_;
  std::list<CutOff> reports_;
  std::unique_ptr<ConnectionRelay> relay_;
  int listener_ = -1;
  int client_ = -1;
  int server_ = -1;
};

TEST_F(ConnectionRelayTest, PassesEverythingBothWays) {
  std::mt19937 random(7);
  std::string frames = kHttp2Preface;
  while (frames.size() < size_t{8} << 20) {
    absl::StrAppend(&frames, Frame(FrameType::kHeaders, kEndHeaders, 1, std::string(900, 'h')),
                    Frame(FrameType::kData, 0, 1, std::string(random() % 16'000, 'd')));
  }
  EXPECT_TRUE(Pass(client_, server_, frames) == frames);
  std::string noise(size_t{8} << 20, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  EXPECT_TRUE(Pass(server_, client_, noise) == noise);
}

TEST_F(ConnectionRelayTest, ALongHeaderBlockEndsItsConnectionOnly) {
  const int other = std::exchange(client_, -1);
  const int other_server = std::exchange(server_, -1);
  Reconnect();
  const std::string begin = kHttp2Preface + Frame(FrameType::kHeaders, 0, 1, std::string(500, 'h'));
  EXPECT_EQ(Pass(client_, server_, begin), begin);
  const std::string more = Frame(FrameType::kContinuation, 0, 1, std::string(500, 'h'));
  ASSERT_GT(send(client_, more.data(), more.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(IsClosed(client_));
  EXPECT_TRUE(IsClosed(server_));
  EXPECT_EQ(relay_->cut_off(), 1);
  EXPECT_EQ(Pass(other, other_server, begin), begin);
  close(other);
  close(other_server);
}

TEST_F(ConnectionRelayTest, TheOneWithMostUnfinishedMessagesGoes) {
  const int other = std::exchange(client_, -1);
  const int other_server = std::exchange(server_, -1);
  const std::string head = kHttp2Preface + Frame(FrameType::kHeaders, kEndHeaders, 1, "h");
  const std::string part = GrpcMessage(std::string(16'000, 'm'), 0, 1 << 30);
  Pass(other, other_server, head + Frame(FrameType::kData, 0, 1, part));
  Reconnect();
  Pass(client_, server_, head + Frame(FrameType::kData, 0, 1, part));
  const std::string more = Frame(FrameType::kData, 0, 1, std::string(16'000, 'm'));
  std::string most;
  while (most.size() + 6 * more.size() < kMostUnfinished) most += more;
  EXPECT_EQ(Pass(client_, server_, most), most);
  EXPECT_EQ(relay_->cut_off(), 0);
  ASSERT_GT(send(client_, most.data(), 3 * more.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(IsClosed(client_));
  EXPECT_EQ(relay_->cut_off(), 1);
  EXPECT_EQ(Pass(other, other_server, more), more);
  close(other);
  close(other_server);
}

// Calls without a message count too: gRPC keeps them and their headers.
TEST_F(ConnectionRelayTest, TheOneWithMostCallsGoes) {
  const std::string header(ConnectionMeter::kMostHeadersKept / ConnectionMeter::kHeaderFactor / 8,
                           'h');
  std::string calls = kHttp2Preface;
  const size_t each = ConnectionMeter::kStreamBytes + (header.size() + 9) * 160;
  for (uint32_t i = 0; (i + 1) * each < kMostUnfinished; ++i) {
    calls += Frame(FrameType::kHeaders, kEndHeaders, 2 * i + 1, header);
  }
  EXPECT_EQ(Pass(client_, server_, calls), calls);
  EXPECT_EQ(relay_->cut_off(), 0);
  const std::string one = Frame(FrameType::kHeaders, kEndHeaders, 100'001, header);
  ASSERT_GT(send(client_, one.data(), one.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(IsClosed(client_));
  EXPECT_EQ(relay_->cut_off(), 1);
}

// However little each of them holds, it adds up.
TEST_F(ConnectionRelayTest, ManySmallConnectionsGoWhereTheyHoldTooMuchTogether) {
  constexpr size_t kEach = ConnectionRelay::kFreeBytes / 2;
  constexpr size_t kCount = kMostUnfinished / kEach + 8;
  const std::string part = CallWithPart(kEach);
  std::vector<int> ends;
  for (size_t i = 0; i < kCount; ++i) {
    Reconnect();
    (void)Pass(client_, server_, part);
    ends.push_back(std::exchange(client_, -1));
    ends.push_back(std::exchange(server_, -1));
  }
  EXPECT_TRUE(Eventually([&] { return relay_->cut_off() >= 8; })) << relay_->cut_off();
  for (const int end : ends) close(end);
}

// A flood from many addresses ends no call of somebody who has two.
TEST_F(ConnectionRelayTest, CallsOfAFewGoOnBesideManyAddresses) {
  constexpr int kAddresses = 130;
  const std::string call = kHttp2Preface + Frame(FrameType::kHeaders, kEndHeaders, 1, "h");
  std::vector<int> ends, calls;
  const auto keep = [&] {
    ends.push_back(std::exchange(server_, -1));
    ends.push_back(std::exchange(client_, -1));
    return ends.back();
  };
  for (int i = 0; i < 2; ++i) {
    Reconnect();
    EXPECT_EQ(Pass(client_, server_, call), call);
    calls.push_back(keep());
  }
  for (int i = 0; i < kAddresses; ++i) {
    Reconnect(absl::StrCat("127.0.1.", i + 1).c_str());
    EXPECT_EQ(Pass(client_, server_, kHttp2Preface), kHttp2Preface);
    keep();
  }
  EXPECT_TRUE(relay_->MakeRoomFor("ipv4:127.0.2.1:1").has_value());
  char byte;
  for (const int open : calls) {
    EXPECT_LT(recv(open, &byte, 1, 0), 0);
    EXPECT_EQ(errno, EAGAIN);
  }
  for (const int end : ends) close(end);
}

TEST_F(ConnectionRelayTest, MakesRoomByTheOneWithoutCallsOfWhoHasMost) {
  constexpr char kOther[] = "ipv4:127.0.0.2:1";
  std::vector<int> ends;
  const auto keep = [&] {
    ends.push_back(std::exchange(server_, -1));
    ends.push_back(std::exchange(client_, -1));
    return ends.back();
  };
  const std::string call = kHttp2Preface + Frame(FrameType::kHeaders, kEndHeaders, 1, "h");
  EXPECT_EQ(Pass(client_, server_, call), call);
  const int first = keep();
  Reconnect();
  EXPECT_EQ(Pass(client_, server_, kHttp2Preface), kHttp2Preface);
  const int idle = keep();
  Reconnect();
  EXPECT_EQ(Pass(client_, server_, call), call);
  const int newest = keep();
  Reconnect("127.0.0.2");
  EXPECT_EQ(Pass(client_, server_, kHttp2Preface), kHttp2Preface);
  const int other = keep();

  EXPECT_TRUE(relay_->MakeRoomFor(kOther).has_value());
  EXPECT_TRUE(IsClosed(idle));
  // Now all of the first address have calls, and it would not have more than the newcomer's.
  EXPECT_FALSE(relay_->MakeRoomFor(kOther).has_value());
  EXPECT_FALSE(relay_->MakeRoomFor("ipv4:127.0.0.1:1").has_value());
  EXPECT_TRUE(relay_->MakeRoomFor("ipv4:127.0.0.3:1").has_value());
  EXPECT_TRUE(IsClosed(newest));
  char byte;
  for (const int open : {first, other}) EXPECT_LT(recv(open, &byte, 1, 0), 0);
  for (const int end : ends) close(end);
}

TEST_F(ConnectionRelayTest, AMessageThatDoesNotComeEndsItsConnectionOnly) {
  std::promise<std::pair<ConnectionRelay::CutOff, std::string>> reported;
  relay_ = ConnectionRelay::Start({kMostHeaderBytes, kMostUnfinished, milliseconds(300)},
                                  [&](ConnectionRelay::CutOff why, const std::string& client) {
                                    reported.set_value({why, client});
                                  })
               .value();
  Reconnect();
  const int other = std::exchange(client_, -1);
  const int other_server = std::exchange(server_, -1);
  const std::string head = kHttp2Preface + Frame(FrameType::kHeaders, kEndHeaders, 1, "h");
  const std::string whole = head + Frame(FrameType::kData, 0, 1, GrpcMessage("message"));
  EXPECT_EQ(Pass(other, other_server, whole), whole);
  Reconnect();
  const std::string part = head + Frame(FrameType::kData, 0, 1, "x");
  EXPECT_EQ(Pass(client_, server_, part), part);
  EXPECT_TRUE(IsClosed(client_));
  EXPECT_TRUE(IsClosed(server_));
  const auto [why, client] = reported.get_future().get();
  EXPECT_EQ(why, ConnectionRelay::CutOff::kSlow);
  EXPECT_TRUE(absl::StartsWith(client, "ipv4:127.0.0.1:")) << client;
  const std::string ping = Frame(FrameType::kPing, 0, 0, "12345678");
  EXPECT_EQ(Pass(other, other_server, ping), ping);
  EXPECT_EQ(relay_->cut_off(), 1);
  close(other);
  close(other_server);
}

TEST_F(ConnectionRelayTest, AReaderThatStandsStillStopsTheSenderAndNobodyElse) {
  fcntl(server_, F_SETFL, O_NONBLOCK);
  const std::string bytes(size_t{1} << 20, 'x');
  size_t taken = 0;
  for (pollfd socket{server_, POLLOUT, 0}; poll(&socket, 1, 300) > 0;) {
    const ssize_t sent = send(server_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) taken += static_cast<size_t>(sent);
    ASSERT_LT(taken, size_t{64} << 20) << "what nobody reads is kept";
  }
  const int slow = std::exchange(client_, -1);
  const int slow_server = std::exchange(server_, -1);
  Reconnect();
  EXPECT_EQ(Pass(client_, server_, kHttp2Preface), kHttp2Preface);
  // It goes on, and gets all that was taken.
  size_t read = 0;
  std::array<char, 50'000> buffer;
  while (read < taken && WaitFor(slow, POLLIN)) {
    const ssize_t got = recv(slow, buffer.data(), buffer.size(), 0);
    if (got <= 0) break;
    read += static_cast<size_t>(got);
  }
  EXPECT_EQ(read, taken);
  close(slow);
  close(slow_server);
}

TEST_F(ConnectionRelayTest, AFloodOfFramesEndsItsConnectionOnly) {
  Restart({kMostHeaderBytes, kMostUnfinished});
  const int other = std::exchange(client_, -1);
  const int other_server = std::exchange(server_, -1);
  EXPECT_EQ(Pass(other, other_server, kHttp2Preface), kHttp2Preface);
  Reconnect();
  std::string pings = kHttp2Preface;
  for (int i = 0; i < 100; ++i) pings += Frame(FrameType::kPing, 0, 0, "12345678");
  ASSERT_GT(send(client_, pings.data(), pings.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(IsClosed(client_));
  EXPECT_TRUE(IsClosed(server_));
  EXPECT_EQ(NextReport(), CutOff::kFlood);
  const std::string ping = Frame(FrameType::kPing, 0, 0, "12345678");
  EXPECT_EQ(Pass(other, other_server, ping), ping);
  close(other);
  close(other_server);
}

// What it sends is left where it is, and so is it after a while.
TEST_F(ConnectionRelayTest, AClientThatDoesNotReadIsNotReadEither) {
  Restart({kMostHeaderBytes, kMostUnfinished * 8, milliseconds(60'000), milliseconds(3'000)});
  const int little = 4096;  // so that its window does not open by itself
  setsockopt(client_, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little));
  EXPECT_EQ(Pass(client_, server_, kHttp2Preface), kHttp2Preface);
  const std::string bytes(size_t{1} << 20, 'x');
  // Until nothing has gone on for longer than a client may pause.
  for (pollfd socket{server_, POLLOUT, 0}; poll(&socket, 1, 500) > 0;) {
    ASSERT_GE(send(server_, bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  }
  const std::string call = Frame(FrameType::kHeaders, kEndHeaders | kEndStream, 1, "h");
  EXPECT_EQ(send(client_, call.data(), call.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(call.size()));
  EXPECT_EQ(NextReport(), CutOff::kUnread);
  std::array<char, 50'000> buffer;
  EXPECT_LE(recv(server_, buffer.data(), buffer.size(), 0), 0) << "nothing came but the end";
}

// gRPC keeps what it has until it has closed its end too.
TEST_F(ConnectionRelayTest, AConnectionThatIsClosedCountsUntilGrpcHasClosedIt) {
  Restart({kMostHeaderBytes, kMostUnfinished});
  const std::string part = CallWithPart(kMostUnfinished - (size_t{1} << 20));
  EXPECT_TRUE(Pass(client_, server_, part) == part);
  ASSERT_EQ(shutdown(server_, SHUT_WR), 0);
  EXPECT_TRUE(IsClosed(client_));
  const int kept = std::exchange(server_, -1);
  Reconnect();
  const std::string more = CallWithPart(kMostUnfinished / 2);
  EXPECT_LT(Pass(client_, server_, more).size(), more.size());
  EXPECT_EQ(NextReport(), CutOff::kMemory);
  close(kept);
  Reconnect();
  EXPECT_TRUE(Pass(client_, server_, more) == more);
}

// Calls that come faster than answers are not lost, and those of others go before.
TEST_F(ConnectionRelayTest, CallsBeyondThePaceWait) {
  Restart({kMostHeaderBytes, kMostUnfinished * 8});
  const int other = std::exchange(client_, -1);
  const int other_server = std::exchange(server_, -1);
  EXPECT_EQ(Pass(other, other_server, kHttp2Preface), kHttp2Preface);
  Reconnect();
  std::string calls = kHttp2Preface;
  std::string answers;
  uint32_t stream = 1;
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 1'000; ++k, stream += 2) {
      calls += Frame(FrameType::kHeaders, kEndHeaders | kEndStream, stream, "h");
      answers += Frame(FrameType::kHeaders, kEndHeaders | kEndStream, stream, "a");
    }
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_TRUE(Pass(client_, server_, calls) == calls);
    EXPECT_TRUE(Pass(server_, client_, answers) == answers);
    if (i == 2) {
      EXPECT_GE(std::chrono::steady_clock::now() - begun, milliseconds(400)) << "1,000 a second";
    }
    calls.clear();
    answers.clear();
    const std::string one = Frame(FrameType::kHeaders, kEndHeaders | kEndStream, 2 * i + 1, "h");
    EXPECT_EQ(Pass(other, other_server, one), one);
  }
  EXPECT_EQ(relay_->cut_off(), 0);
  close(other);
  close(other_server);
}

// No handler sees requests that are no calls, so nobody else counts them.
TEST_F(ConnectionRelayTest, CallsThatGrpcResetsCountAsRefused) {
  constexpr int kRounds = 60;
  constexpr uint32_t kCalls = 60;
  Restart({kMostHeaderBytes, kMostUnfinished});
  EXPECT_EQ(Pass(client_, server_, kHttp2Preface), kHttp2Preface);
  uint32_t stream = 1;
  for (int round = 0; round < kRounds; ++round) {
    std::string calls, answers;
    for (uint32_t i = 0; i < kCalls; ++i, stream += 2) {
      calls += Frame(FrameType::kHeaders, kEndHeaders | kEndStream, stream, "h");
      answers += Frame(FrameType::kReset, 0, stream, std::string(4, '\0'));
    }
    if (Pass(client_, server_, calls).empty()) break;
    (void)Pass(server_, client_, answers);
  }
  EXPECT_EQ(NextReport(), CutOff::kRefused);
}

TEST_F(ConnectionRelayTest, EndsPassBothWays) {
  EXPECT_EQ(Pass(client_, server_, kHttp2Preface), kHttp2Preface);
  Drop(client_);
  EXPECT_TRUE(IsClosed(server_));
  Reconnect();
  EXPECT_EQ(Pass(client_, server_, kHttp2Preface), kHttp2Preface);
  ASSERT_EQ(send(server_, "last words", 10, MSG_NOSIGNAL), 10);
  Drop(server_);
  ASSERT_TRUE(WaitFor(client_, POLLIN));
  std::array<char, 100> buffer;
  EXPECT_EQ(recv(client_, buffer.data(), buffer.size(), 0), 10);
  EXPECT_TRUE(IsClosed(client_));
}

TEST_F(ConnectionRelayTest, LastWordsArriveWhenTheRelayEnds) {
  EXPECT_EQ(Pass(client_, server_, kHttp2Preface), kHttp2Preface);
  ASSERT_EQ(send(server_, "last words", 10, MSG_NOSIGNAL), 10);
  Drop(server_);
  relay_.reset();
  ASSERT_TRUE(WaitFor(client_, POLLIN));
  std::array<char, 100> buffer;
  EXPECT_EQ(recv(client_, buffer.data(), buffer.size(), 0), 10);
  EXPECT_TRUE(IsClosed(client_));
}

TEST_F(ConnectionRelayTest, PeersAreNamedByTheirClients) {
  sockaddr_un name{};
  socklen_t size = sizeof(name);
  ASSERT_EQ(getpeername(server_, reinterpret_cast<sockaddr*>(&name), &size), 0);
  const std::string path(name.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1);
  const std::string address = ClientAddress(absl::StrCat("unix-abstract:", path));
  EXPECT_TRUE(absl::StartsWith(address, "ipv4:127.0.0.1:")) << address;
  EXPECT_EQ(ClientAddress("ipv4:10.0.0.1:80"), "ipv4:10.0.0.1:80");
  EXPECT_EQ(ClientAddress("ipv6:%5B::1%5D:80"), "ipv6:[::1]:80");
}

}  // namespace
}  // namespace annulus::server
