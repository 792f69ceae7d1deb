#include "server/net/connection_acceptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netdb.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Keeps what it is handed.
class ConnectionAcceptorTest : public ::testing::Test {
 protected:
  ~ConnectionAcceptorTest() override {
    acceptor_.reset();
    for (const int descriptor : taken_) close(descriptor);
    for (const int descriptor : clients_) close(descriptor);
  }

  void SetUp() override {
    auto acceptor = ConnectionAcceptor::Listen("127.0.0.1:0");
    ASSERT_TRUE(acceptor.ok()) << acceptor.status();
    acceptor_ = *std::move(acceptor);
  }
  void Start(int max_connections) {
    acceptor_->Start(max_connections, [this](int connection) {
      std::lock_guard lock(mutex_);
      taken_.push_back(connection);
    });
  }
  // A client's socket, which is connected once the system has put it into the backlog.
  int Client() {
    clients_.push_back(Connect(absl::StrCat("127.0.0.1:", acceptor_->port())));
    EXPECT_GE(clients_.back(), 0);
    return clients_.back();
  }
  size_t taken() {
    std::lock_guard lock(mutex_);
    return taken_.size();
  }
  void CloseTaken(size_t index) {
    std::lock_guard lock(mutex_);
    close(taken_[index]);
    taken_.erase(taken_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  std::unique_ptr<ConnectionAcceptor> acceptor_;
  std::mutex mutex_;
  std::vector<int> taken_;
  std::vector<int> clients_;
};

TEST_F(ConnectionAcceptorTest, HandsOverWorkingConnections) {
  Start(8);
  const int client = Client();
  ASSERT_TRUE(Eventually([&] { return taken() == 1; }));
  EXPECT_EQ(send(taken_[0], "x", 1, 0), 1);
  char byte = 0;
  EXPECT_EQ(recv(client, &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
}

TEST_F(ConnectionAcceptorTest, TakesANameForAnAddress) {
  addrinfo* found = nullptr;
  if (getaddrinfo("localhost", nullptr, nullptr, &found) != 0) {
    GTEST_SKIP() << "this machine does not know the name localhost";
  }
  freeaddrinfo(found);
  const auto acceptor = ConnectionAcceptor::Listen("localhost:0");
  ASSERT_TRUE(acceptor.ok()) << acceptor.status();
  EXPECT_GT((*acceptor)->port(), 0);
}

TEST_F(ConnectionAcceptorTest, AddressesThatCannotBeHadAreClearErrors) {
  const std::string same = absl::StrCat("127.0.0.1:", acceptor_->port());
  for (const std::string& address : {same, std::string("256.0.0.1:1"), std::string("8.8.8.8:0")}) {
    const auto other = ConnectionAcceptor::Listen(address);
    EXPECT_EQ(other.status().code(), absl::StatusCode::kUnavailable) << address;
    EXPECT_THAT(std::string(other.status().message()), HasSubstr(address));
  }
}

TEST_F(ConnectionAcceptorTest, ClosesWhatComesBeyondTheLimitUntilThereIsRoom) {
  Start(2);
  Client();
  Client();
  ASSERT_TRUE(Eventually([&] { return taken() == 2; }));
  char byte;
  EXPECT_EQ(recv(Client(), &byte, 1, 0), 0);
  EXPECT_EQ(acceptor_->refused(), 1);
  CloseTaken(0);
  EXPECT_TRUE(Eventually([&] {
    Client();
    return taken() == 2;
  }));
}

TEST_F(ConnectionAcceptorTest, AsksForRoomBeyondTheLimit) {
  std::vector<std::string> asked;
  acceptor_->Start(
      1,
      [this](int connection) {
        std::lock_guard lock(mutex_);
        taken_.push_back(connection);
      },
      [&](const std::string& client) -> std::optional<int> {
        int first = -1;
        {
          std::lock_guard lock(mutex_);
          asked.push_back(client);
          if (asked.size() > 1) return std::nullopt;
          first = taken_.front();
        }
        CloseTaken(0);
        return first;
      });
  char byte;
  const int first = Client();
  ASSERT_TRUE(Eventually([&] { return taken() == 1; }));
  Client();
  EXPECT_EQ(recv(first, &byte, 1, 0), 0);
  EXPECT_EQ(recv(Client(), &byte, 1, 0), 0);
  EXPECT_EQ(taken(), 1u);
  EXPECT_EQ(acceptor_->refused(), 1);
  std::lock_guard lock(mutex_);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_THAT(asked[0], HasSubstr("127.0.0.1:"));
}

TEST_F(ConnectionAcceptorTest, ConnectionsThatWereResetAreNotHandedOver) {
  const linger at_once{1, 0};
  for (int i = 0; i < 3; ++i) {
    setsockopt(Client(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(clients_.back());
    clients_.pop_back();
  }
  Client();
  Start(8);
  EXPECT_TRUE(Eventually([&] { return taken() == 1; }));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(taken(), 1u);
  EXPECT_EQ(acceptor_->refused(), 0);
}

TEST_F(ConnectionAcceptorTest, GoesOnAfterAllDescriptorsWereInUse) {
  Start(8);
  for (int i = 0; i < 5; ++i) clients_.push_back(socket(AF_INET, SOCK_STREAM, 0));
  const int last = dup(0);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{static_cast<rlim_t>(last), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (const int client : clients_) {
    EXPECT_TRUE(Connect(absl::StrCat("127.0.0.1:", acceptor_->port()), client));
  }
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(taken(), 0u);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(Eventually([&] { return taken() == 5; }));
  close(last);
}

TEST(MakeRoomForConnectionsTest, TellsHowManyFit) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(MakeRoomForConnections(10, 3), 10);
  const int fit = MakeRoomForConnections(100'000'000, 1);
  EXPECT_LT(fit, 100'000'000);
  EXPECT_GE(fit, static_cast<int>(limit.rlim_cur / 2));
  EXPECT_LE(MakeRoomForConnections(100'000'000, 3), fit / 3 + 1);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

// In a process of its own, whose kernel has no IPv6.
[[noreturn]] void ListenWithoutIpv6() {
  const sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                               BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
                               BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
                               BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
                               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
                               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(rules), const_cast<sock_filter*>(rules)};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) std::_Exit(2);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) std::_Exit(2);
  const auto acceptor = ConnectionAcceptor::Listen("[::]:0");
  if (!acceptor.ok()) std::_Exit(3);
  const int client = Connect(absl::StrCat("127.0.0.1:", (*acceptor)->port()));
  std::_Exit(client >= 0 ? 0 : 4);
}

TEST(ListenTest, EveryAddressIsThoseOfIpv4WhereTheKernelHasNoIpv6) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ListenWithoutIpv6(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace annulus::server
