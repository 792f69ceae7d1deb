// What is known of the client behind a connection, and calls of nobody.

#include "server/identity/peer_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"

namespace annulus::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kAddress[] = "ipv4:10.0.0.1:4567";

class PeerBookTest : public ::testing::Test {
 protected:
  void Refuse(PeerBook::Number number, int calls) {
    for (int i = 0; i < calls; ++i) book_.CountRefused(number, now_);
  }
  // Uses up what the address of `number` may do.
  void UseUp(PeerBook::Number number) {
    Refuse(number, static_cast<int>(PeerBook::kRefusedBurst) + 1);
    book_.TakeCondemned();
  }

  PeerBook book_;
  SteadyTime now_{};
};

TEST_F(PeerBookTest, NamesOfCertificatesAreFoundByTheNameOfTheSocket) {
  const auto first = book_.Add(kAddress, {"app.acme.example"});
  const auto second = book_.Add(kAddress, {});
  const std::string peer = absl::StrCat("unix-abstract:", book_.SocketName(first, kAddress));
  EXPECT_EQ(book_.NumberOf(peer), first);
  EXPECT_THAT(book_.CertificateNames(first), ElementsAre("app.acme.example"));
  EXPECT_THAT(book_.CertificateNames(second), IsEmpty());
  EXPECT_EQ(ClientAddress(peer), kAddress);
  book_.Remove(first);
  EXPECT_THAT(book_.CertificateNames(first), IsEmpty());
  EXPECT_EQ(book_.size(), 1u);
}

TEST_F(PeerBookTest, NamesThatTheRelayDidNotGiveAreNobodys) {
  const auto number = book_.Add(kAddress, {"app.acme.example"});
  const PeerBook other;
  for (const std::string& peer :
       {absl::StrCat("unix-abstract:", other.SocketName(number, kAddress)),
        book_.SocketName(number, kAddress),  // not as gRPC names sockets
        absl::StrCat("ipv4:unix-abstract:", book_.SocketName(number, kAddress)),
        std::string("ipv4:10.0.0.1:4567"), std::string("unix:"), std::string()}) {
    EXPECT_EQ(book_.NumberOf(peer), 0u) << peer;
  }
  EXPECT_THAT(book_.CertificateNames(0), IsEmpty());
}

TEST_F(PeerBookTest, RefusedCallsBeyondTheRateCondemnTheirConnection) {
  const auto number = book_.Add(kAddress, {});
  Refuse(number, static_cast<int>(PeerBook::kRefusedBurst));
  EXPECT_THAT(book_.TakeCondemned(), IsEmpty());
  Refuse(number, 100);
  EXPECT_THAT(book_.TakeCondemned(), ElementsAre(number)) << "once";
}

TEST_F(PeerBookTest, TheRateIsAllowedForEver) {
  const auto number = book_.Add(kAddress, {});
  UseUp(book_.Add(kAddress, {}));
  for (int i = 0; i < 100; ++i) {
    now_ += std::chrono::seconds(1);
    Refuse(number, static_cast<int>(PeerBook::kRefusedPerSecond));
  }
  EXPECT_THAT(book_.TakeCondemned(), IsEmpty());
}

// A proxy's connection carries the calls of many.
TEST_F(PeerBookTest, ConnectionsWithMoreGoodCallsStay) {
  UseUp(book_.Add(kAddress, {}));
  const auto proxy = book_.Add(kAddress, {});
  for (int i = 0; i < 100'000; ++i) {
    book_.CountKnown(proxy);
    if (i % 2 == 0) book_.CountRefused(proxy, now_);
  }
  EXPECT_THAT(book_.TakeCondemned(), IsEmpty());
  Refuse(proxy, 2'000);
  EXPECT_THAT(book_.TakeCondemned(), ElementsAre(proxy)) << "good calls of long ago do not help";
}

TEST_F(PeerBookTest, WhoeverComesWithAWrongTokenIsToldSo) {
  UseUp(book_.Add(kAddress, {}));
  const auto newcomer = book_.Add("ipv4:10.0.0.1:80", {});
  Refuse(newcomer, PeerBook::kAnsweredPerConnection);
  EXPECT_THAT(book_.TakeCondemned(), IsEmpty());
  Refuse(newcomer, 1);
  EXPECT_THAT(book_.TakeCondemned(), ElementsAre(newcomer));
}

}  // namespace
}  // namespace annulus::server
