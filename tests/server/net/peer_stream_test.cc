#include "server/net/peer_stream.h"

#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "tests/server/certificates.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

class PeerStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends_), 0);
  }
  void TearDown() override {
    close(ends_[0]);
    Leave();
  }
  void Leave() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }

  int ends_[2] = {-1, -1};
};

TEST_F(PeerStreamTest, SaysThatThePeerHasLeftBeforeItsBytesAreRead) {
  const auto stream = PlainStream(ends_[0]);
  ASSERT_EQ(write(ends_[1], "abc", 3), 3);
  EXPECT_FALSE(stream->peer_has_left());
  Leave();
  EXPECT_TRUE(stream->peer_has_left());
  std::array<char, 8> buffer;
  EXPECT_EQ(stream->Read(buffer.data(), buffer.size()).bytes, 3u);
  EXPECT_EQ(stream->Read(buffer.data(), buffer.size()).outcome, PeerStream::Outcome::kEnded);
}

TEST_F(PeerStreamTest, APeerThatOnlyEndsItsSideHasLeft) {
  const auto stream = PlainStream(ends_[0]);
  ASSERT_EQ(shutdown(ends_[1], SHUT_WR), 0);
  EXPECT_TRUE(stream->peer_has_left());
}

// TLS 1.3 with a client on the other end.
class TlsStreamTest : public PeerStreamTest {
 protected:
  static constexpr char kText[] = "abc";

  void SetUp() override {
    PeerStreamTest::SetUp();
    const TestIdentity identity = MakeIdentity();
    ServerConfig config;
    directory_.Write("cert.pem", identity.certificate);
    directory_.Write("key.pem", identity.key);
    config.tls_certificate = directory_.path() / "cert.pem";
    config.tls_key = directory_.path() / "key.pem";
    auto files = TlsFiles::Open(config);
    ASSERT_TRUE(files.ok()) << files.status();
    streams_ = std::make_unique<TlsStreams>(*std::move(files), TlsStreams::For::kOperators);
    stream_ = streams_->Begin(ends_[0]);
    ASSERT_NE(stream_, nullptr);
    client_.reset(SSL_new(context_.get()));
    SSL_set_fd(client_.get(), ends_[1]);
    SSL_set_connect_state(client_.get());
    while (SSL_do_handshake(client_.get()) != 1 ||
           stream_->Handshake() != PeerStream::Outcome::kMoved) {
      ASSERT_NE(stream_->Handshake(), PeerStream::Outcome::kEnded);
    }
    ERR_clear_error();
    SSL_set0_wbio(client_.get(), BIO_new(BIO_s_mem()));
  }

  // Records without data. They are sent at once, because the system buffers few small messages.
  void SendNewKeys(int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(SSL_key_update(client_.get(), SSL_KEY_UPDATE_NOT_REQUESTED), 1);
      ASSERT_EQ(SSL_do_handshake(client_.get()), 1);
    }
    Flush();
  }
  void SendText() {
    ASSERT_EQ(SSL_write(client_.get(), kText, 3), 3);
    Flush();
  }
  void Flush() {
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(SSL_get_wbio(client_.get()), &bytes);
    ASSERT_EQ(write(ends_[1], bytes, static_cast<size_t>(size)), size);
    (void)BIO_reset(SSL_get_wbio(client_.get()));
  }

  int Unread() const {
    int bytes = 0;
    EXPECT_EQ(ioctl(ends_[0], FIONREAD, &bytes), 0);
    return bytes;
  }
  PeerStream::Result Read() { return stream_->Read(buffer_.data(), buffer_.size()); }
  // Reads until there is more than the end of the bytes to tell.
  PeerStream::Result ReadOn() {
    PeerStream::Result read{PeerStream::Outcome::kWaitToRead};
    while (read.outcome == PeerStream::Outcome::kWaitToRead && Unread() > 0) read = Read();
    return read;
  }

  testing::TempDirectory directory_;
  std::array<char, 64> buffer_{};
  std::unique_ptr<TlsStreams> streams_;
  std::unique_ptr<PeerStream> stream_;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{SSL_CTX_new(TLS_client_method()),
                                                                   &SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&SSL_free)> client_{nullptr, &SSL_free};
};

// Otherwise whoever sends them fast enough keeps the thread of all connections in one read.
TEST_F(TlsStreamTest, AReadTakesOnlySomeRecordsWithoutData) {
  constexpr int kUpdates = 100;
  SendNewKeys(kUpdates);
  SendText();
  const int sent = Unread();
  EXPECT_EQ(Read().outcome, PeerStream::Outcome::kWaitToRead);
  EXPECT_GT(Unread(), sent * 9 / 10);
  EXPECT_EQ(ReadOn().bytes, 3u);
}

TEST_F(TlsStreamTest, RecordsWithoutDataAndWithoutEndFailTheStream) {
  constexpr int kUpdates = 1'000;
  SendNewKeys(kUpdates);
  EXPECT_EQ(ReadOn().outcome, PeerStream::Outcome::kEnded);
}

TEST_F(TlsStreamTest, NewKeysBetweenDataAreNoFlood) {
  constexpr int kRounds = 1'000;
  for (int i = 0; i < kRounds; ++i) {
    SendNewKeys(1);
    SendText();
    ASSERT_EQ(ReadOn().bytes, 3u) << i;
  }
}

}  // namespace
}  // namespace annulus::server
