#include "server/net/socket_user.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/net/socket_address.h"

namespace annulus::server {
namespace {

using ::testing::HasSubstr;

constexpr char kHead[] =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode\n";

// As the kernel writes it on a little-endian machine.
std::string Line(const std::string& local, const std::string& remote, const std::string& state,
                 int user) {
  return absl::StrCat("   7: ", local, " ", remote, " ", state,
                      " 00000000:00000000 00:00000000 00000000 ", user, "        0 12345 1\n");
}

const std::string kMapped = "0000000000000000FFFF00000100007F";
const std::string kLoopback6 = "00000000000000000000000001000000";

TEST(SocketUser, IsTheOwnerOfTheOtherEnd) {
  const std::string mine = Line("0100007F:1B58", "0100007F:11D7", "01", 42);
  const std::string theirs = Line("0100007F:11D7", "0100007F:1B58", "01", 1007);
  EXPECT_EQ(FindSocketUser(kHead + mine + theirs, "ipv4:127.0.0.1:4567", 7000), 1007u);
  EXPECT_EQ(FindSocketUser(kHead + theirs + mine, "ipv4:127.0.0.1:7000", 4567), 42u);
  const std::string six = Line(kLoopback6 + ":11D7", kLoopback6 + ":1B58", "01", 1008);
  EXPECT_EQ(FindSocketUser(kHead + six, "ipv6:[::1]:4567", 7000), 1008u);
  const std::string mapped = Line(kMapped + ":11D7", kMapped + ":1B58", "01", 1009);
  EXPECT_EQ(FindSocketUser(kHead + mapped, "ipv4:127.0.0.1:4567", 7000), 1009u);
}

TEST(SocketUser, IsUnknownUnlessOneStandingConnectionNamesIt) {
  const auto find = [](const std::string& table) {
    return FindSocketUser(kHead + table, "ipv4:127.0.0.1:4567", 7000);
  };
  EXPECT_FALSE(find("").has_value());
  EXPECT_FALSE(find(Line("0100007F:11D8", "0100007F:1B58", "01", 7)).has_value()) << "its port";
  EXPECT_FALSE(find(Line("0200007F:11D7", "0100007F:1B58", "01", 7)).has_value()) << "its address";
  EXPECT_FALSE(find(Line("0100007F:11D7", "0100007F:1B59", "01", 7)).has_value()) << "this port";
  EXPECT_FALSE(find(Line("0100007F:11D7", "0100007F:1B58", "06", 7)).has_value()) << "has left";
  EXPECT_FALSE(find("   7: 0100007F:11D7 0100007F:1B58 01\n").has_value()) << "a cut line";
  EXPECT_FALSE(find("   7: G100007F:11D7 x 01 a b c d\n").has_value());
  const std::string one = Line("0100007F:11D7", "0100007F:1B58", "01", 7);
  EXPECT_TRUE(find(one + one).has_value());
  EXPECT_FALSE(find(one + Line(kMapped + ":11D7", kMapped + ":1B58", "01", 8)).has_value());
  EXPECT_FALSE(FindSocketUser(kHead + one, "unknown", 7000).has_value());
  EXPECT_FALSE(FindSocketUser(kHead + one, "ipv4:127.0.0.1:70000", 7000).has_value());
}

// Calls `check` with the accepted end of a connection that a process, made by `become`, holds.
void WithPeer(const std::function<bool()>& become,
              const std::function<void(const std::string& peer, uint16_t port)>& check) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const timeval limit{10, 0};
  ASSERT_EQ(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    char byte;
    if (!become()) _exit(1);
    const int own = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(own, reinterpret_cast<sockaddr*>(&address), size) != 0) _exit(1);
    close(ends[1]);
    _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);  // until the test lets go
  }
  const int accepted = accept(listener, nullptr, nullptr);
  EXPECT_GE(accepted, 0);
  check(PeerAddress(accepted), ntohs(address.sin_port));
  close(ends[0]);
  close(ends[1]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  close(accepted);
  close(listener);
}

TEST(SocketUser, AProcessOfTheOwnUserPasses) {
  WithPeer([] { return true; },
           [](const std::string& peer, uint16_t port) {
             EXPECT_EQ(CheckOwnUser(peer, port), absl::OkStatus());
             const absl::Status elsewhere = CheckOwnUser(peer, static_cast<uint16_t>(port ^ 1));
             EXPECT_EQ(elsewhere.code(), absl::StatusCode::kPermissionDenied);
             EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("no telling"));
           });
}

TEST(SocketUser, AnotherUsersProcessIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  WithPeer([] { return setuid(4711) == 0; },
           [](const std::string& peer, uint16_t port) {
             const absl::Status status = CheckOwnUser(peer, port);
             EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
             EXPECT_THAT(std::string(status.message()),
                         HasSubstr("belongs to user 4711, not to user 0"));
           });
}

}  // namespace
}  // namespace annulus::server
