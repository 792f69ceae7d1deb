// What hostile clients do below the calls: connections and frames. The server lives on, a stream
// beside it is not disturbed, and nothing stays behind.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/sanitizers.h"
#include "server/config/load_config.h"
#include "tests/server/http2_peer.h"
#include "tests/server/test_server.h"
#include "tests/server/witness.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::system_clock;
using ::testing::HasSubstr;

constexpr char kGeneratePath[] = "/annulus.v1.InferenceService/Generate";
constexpr char kStreamGeneratePath[] = "/annulus.v1.InferenceService/StreamGenerate";
constexpr char kListModels[] = "/annulus.v1.ModelService/ListModels";
constexpr char kUploadPath[] = "/annulus.v1.DocumentService/UploadDocument";
constexpr int kMaxConnections = 64;

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

class HostileTransportTest : public WitnessedTest {
 protected:
  explicit HostileTransportTest(std::vector<std::string> flags = {})
      : WitnessedTest([&] {
          flags.insert(flags.end(), {"--max-message-size", "1MiB", "--max-connections",
                                     absl::StrCat(kMaxConnections)});
          return flags;
        }()) {}

  // Whether a client that comes now is answered before long. It has the flood's address, and so its
  // share: as long as the server has not seen that the flood is gone, it is told to come back.
  bool NewcomerIsServed() {
    const auto stub = v1::InferenceService::NewStub(server_.NewChannel());
    const auto deadline = system_clock::now() + seconds(20);
    grpc::Status status;
    do {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      context.set_deadline(deadline);
      v1::GenerateResponse response;
      status = stub->Generate(&context, TextRequest("x"), &response);
    } while (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
             system_clock::now() < deadline);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return status.ok();
  }

  static std::string StreamMessage(const std::string& text) {
    return TextStreamRequest(text).SerializeAsString();
  }
};

TEST_F(HostileTransportTest, StreamResetsByTheTenThousand) {
  const std::string bad = "\xff";
  const std::string endless = StreamMessage("~");
  for (int connection = 0; connection < 10; ++connection) {
    std::string frames;
    for (uint32_t i = 0; i < 1000; ++i) {
      const uint32_t stream = 2 * i + 1;
      absl::StrAppend(&frames, CallFrames(stream, kStreamGeneratePath, i % 20 == 0 ? endless : bad),
                      Frame(FrameType::kReset, 0, stream, absl::string_view("\0\0\0\x8", 4)));
    }
    Http2Peer peer(server_.address());
    EXPECT_TRUE(peer.Send(frames));
  }
  EXPECT_TRUE(NewcomerIsServed());
  EXPECT_TRUE(Eventually([&] { return server_.engine().active() == 1; }, seconds(30)));
}

TEST_F(HostileTransportTest, ConnectionResetsByTheTenThousand) {
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 10'000; ++i) Http2Peer(server_.address()).Reset();
  EXPECT_TRUE(NewcomerIsServed());
  // The library may keep a descriptor or two for later.
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() <= before + 4; }, seconds(30)))
      << before << " descriptors before, now " << OpenDescriptors();
}

TEST_F(HostileTransportTest, ConnectionsBeyondTheLimitCloseThoseLongestWithoutCalls) {
  std::vector<std::unique_ptr<Http2Peer>> peers;
  for (int i = 0; i < 2 * kMaxConnections; ++i) {
    peers.push_back(std::make_unique<Http2Peer>(server_.address()));
  }
  EXPECT_TRUE(peers.front()->WaitForClose(seconds(10)));
  EXPECT_FALSE(peers.back()->WaitForClose(milliseconds(1)));
  EXPECT_TRUE(NewcomerIsServed());
  // The witness, which has a call, stays connected.
}

TEST_F(HostileTransportTest, FloodsOfFramesDisturbNobody) {
  const std::string half = Frame(FrameType::kHeaders, 0, 1, CallHeaders(kGeneratePath));
  const std::string open = Frame(FrameType::kHeaders, kEndHeaders, 1, CallHeaders(kGeneratePath));
  const std::string field = HeaderField("x-more", std::string(1000, 'y'));
  const std::vector<std::pair<std::string, std::string>> floods = {
      {"", Frame(FrameType::kSettings, 0, 0, "")},
      {"", Frame(FrameType::kPing, 0, 0, "12345678")},
      {"", Frame(FrameType::kPriority, 0, 1, absl::string_view("\0\0\0\0\x10", 5))},
      {"", Frame(FrameType::kWindowUpdate, 0, 0, absl::string_view("\0\0\0\1", 4))},
      {"", Frame(static_cast<FrameType>(0xfa), 0, 0, "unknown")},
      {open, Frame(FrameType::kData, 0, 1, "")},
      {half, Frame(FrameType::kContinuation, 0, 1, field)},
      {half, Frame(FrameType::kContinuation, 0, 1, "")},
  };
  for (size_t i = 0; i < floods.size(); ++i) {
    SCOPED_TRACE(i);
    Http2Peer peer(server_.address());
    peer.Send(floods[i].first);
    std::string frames;
    for (int k = 0; k < 1000; ++k) frames += floods[i].second;
    // The server may well hang up.
    for (int k = 0; k < 10 && peer.Send(frames); ++k) {
    }
    EXPECT_TRUE(Generate(TextRequest("x")).ok());
  }
}

// Before gRPC knows who sends: neither one header that never ends nor many.
TEST_F(HostileTransportTest, EndlessHeaderBlocksTakeNoMemory) {
  const std::string begin = Frame(FrameType::kHeaders, 0, 1, CallHeaders(kGeneratePath));
  std::string literal("\0\x01x\x7f\x80\x80\x80\x80\x08", 9);  // a header of 2 GiB
  const std::string many =
      Frame(FrameType::kContinuation, 0, 1, HeaderField("x-more", std::string(16'000, 'y')));
  const std::string one = Frame(FrameType::kContinuation, 0, 1, std::string(16'000, 'y'));
  const auto flood = [&](const std::string& first, const std::string& frame) {
    Http2Peer peer(server_.address());
    peer.Send(absl::StrCat(begin, first));
    size_t sent = 0;
    while (sent < size_t{90} << 20 && peer.Send(frame)) sent += frame.size();
    EXPECT_LT(sent, size_t{90} << 20);
    EXPECT_TRUE(peer.WaitForClose(seconds(10)));
  };
  const std::string lie = Frame(FrameType::kContinuation, 0, 1, literal);
  flood("", many);
  flood(lie, one);
  const size_t before = ResidentBytes();
  for (int i = 0; i < 5; ++i) {
    flood("", many);
    flood(lie, one);
  }
  // Of 900 MB that were meant to come. The address sanitizer keeps what is freed for a while.
  EXPECT_LT(ResidentBytes(), before + (size_t{kSanitized ? 32 : 2} << 20));
  EXPECT_TRUE(Generate(TextRequest("x")).ok());
}

TEST_F(HostileTransportTest, SlowWritersHoldUpNobody) {
  std::vector<std::unique_ptr<Http2Peer>> peers;
  for (int i = 0; i < 5; ++i) {
    auto& peer = peers.emplace_back(std::make_unique<Http2Peer>(server_.address()));
    for (uint32_t stream = 1; stream < 400; stream += 2) {
      EXPECT_TRUE(
          peer->Send(Frame(FrameType::kHeaders, kEndHeaders, stream, CallHeaders(kGeneratePath))));
    }
  }
  // One call comes byte by byte, and is answered when it is complete.
  const std::string message = GrpcMessage(TextRequest("slow").SerializeAsString());
  for (size_t i = 0; i < message.size(); ++i) {
    const uint8_t flags = i + 1 == message.size() ? kEndStream : 0;
    EXPECT_TRUE(peers[0]->Send(Frame(FrameType::kData, flags, 1, message.substr(i, 1))));
    EXPECT_TRUE(Generate(TextRequest("x")).ok());
  }
  EXPECT_TRUE(peers[0]->WaitForFrame(FrameType::kData, 1, seconds(10)));
  for (auto& peer : peers) peer->Reset();
  EXPECT_TRUE(NewcomerIsServed());
}

TEST_F(HostileTransportTest, LengthsAndFlagsThatLieAreRefused) {
  const std::string message = TextRequest("x").SerializeAsString();
  const uint32_t size = static_cast<uint32_t>(message.size());
  const std::vector<std::string> lies = {
      GrpcMessage(message, 0, 0xffff'ffff), GrpcMessage(message, 0, size + 100),
      GrpcMessage(message, 0, size - 1),    GrpcMessage(message, 1, size),
      GrpcMessage(message, 0xee, size),     std::string("\0\0", 2)};
  for (const char* method : {kGeneratePath, kStreamGeneratePath}) {
    for (size_t i = 0; i < lies.size(); ++i) {
      SCOPED_TRACE(absl::StrCat(method, " ", i));
      Http2Peer peer(server_.address());
      EXPECT_TRUE(
          peer.Send(absl::StrCat(Frame(FrameType::kHeaders, kEndHeaders, 1, CallHeaders(method)),
                                 Frame(FrameType::kData, kEndStream, 1, lies[i]))));
      EXPECT_TRUE(peer.WaitForFrame(FrameType::kHeaders, 1, seconds(10)));  // the status
    }
  }
  EXPECT_TRUE(Generate(TextRequest("x")).ok());
  EXPECT_TRUE(Eventually([&] { return server_.engine().active() == 1; }));
}

class ManyCallsTest : public HostileTransportTest {
 protected:
  ManyCallsTest()
      : HostileTransportTest({"--max-prompts-memory", "32MiB", "--upload-timeout", "1s"}) {}
};

// gRPC keeps a call and its headers, 630 KiB of these, until its message has come: of two
// connections 800 MB, before it has asked anybody for a token.
TEST_F(ManyCallsTest, WithoutTheirMessagesTakeNoMoreThanRequestsMay) {
  std::string block = CallHeaders(kGeneratePath);
  for (int i = 0; i < 3700; ++i) block += HeaderField("a", "");
  const size_t before = ResidentBytes();
  for (int connection = 0; connection < 2; ++connection) {
    Http2Peer peer(server_.address());
    bool open = true;
    for (uint32_t stream = 1; stream < 1200 && open; stream += 2) {
      open = peer.Send(Frame(FrameType::kHeaders, kEndHeaders, stream, block));
    }
    EXPECT_TRUE(peer.WaitForClose(seconds(10)));
    EXPECT_TRUE(Generate(TextRequest("x")).ok());
  }
  // The address sanitizer keeps what was freed for a while.
  EXPECT_LT(ResidentBytes(), before + (size_t{kSanitized ? 400 : 100} << 20));
}

// Byte by byte, and each within the time limit of a silent client.
TEST_F(ManyCallsTest, AMessageThatTricklesEndsItsConnection) {
  Http2Peer peer(server_.address());
  EXPECT_TRUE(
      peer.Send(absl::StrCat(Frame(FrameType::kHeaders, kEndHeaders, 1, CallHeaders(kGeneratePath)),
                             Frame(FrameType::kData, 0, 1, GrpcMessage("", 0, 1'000'000)))));
  bool open = true;
  for (int i = 0; i < 200 && open; ++i) {
    open = peer.Send(Frame(FrameType::kData, 0, 1, "x")) && !peer.WaitForClose(milliseconds(50));
  }
  EXPECT_FALSE(open);
  EXPECT_TRUE(Generate(TextRequest("x")).ok());
}

// The first message has come whole, so it is no longer the relay that waits, but the upload.
TEST_F(ManyCallsTest, ALaterMessageThatTricklesEndsItsUpload) {
  Http2Peer peer(server_.address());
  v1::UploadDocumentRequest header;
  header.mutable_header()->set_name("slow");
  EXPECT_TRUE(
      peer.Send(absl::StrCat(Frame(FrameType::kHeaders, kEndHeaders, 1, CallHeaders(kUploadPath)),
                             Frame(FrameType::kData, 0, 1, GrpcMessage(header.SerializeAsString())),
                             Frame(FrameType::kData, 0, 1, GrpcMessage("", 0, 1'000'000)))));
  bool ended = false;
  for (int i = 0; i < 200 && !ended; ++i) {
    EXPECT_TRUE(peer.Send(Frame(FrameType::kData, 0, 1, "x"))) << i;
    ended = peer.WaitForFrame(FrameType::kReset, 1, milliseconds(50));
  }
  EXPECT_TRUE(ended);
  EXPECT_TRUE(peer.Send(CallFrames(3, kListModels, "")));  // its connection goes on
  EXPECT_TRUE(peer.WaitForFrame(FrameType::kData, 3, seconds(10)));
}

// 200,000 pings of which nobody reads the answers made a daemon of 28 MiB take 1.2 GiB.
TEST_F(HostileTransportTest, AnswersThatNobodyReadsTakeNoMemory) {
  const size_t before = ResidentBytes();
  for (const auto type : {FrameType::kPing, FrameType::kSettings}) {
    std::string frames;
    for (int i = 0; i < 1'000; ++i) {
      frames += Frame(type, 0, 0, type == FrameType::kPing ? "12345678" : "");
    }
    for (int connection = 0; connection < 4; ++connection) {
      Http2Peer peer(server_.address());
      int sent = 0;
      while (sent < 200 && peer.Send(frames)) ++sent;
      EXPECT_TRUE(peer.WaitForClose(seconds(10)));
    }
  }
  EXPECT_LT(ResidentBytes(), before + (size_t{kSanitized ? 64 : 16} << 20));
  EXPECT_TRUE(Generate(TextRequest("x")).ok());
}

// Of 351,000 calls to a method that does not exist gRPC kept 572 MiB.
TEST_F(HostileTransportTest, CallsToUnknownMethodsAreCutOffAndGoodOnesAreNot) {
  const size_t before = ResidentBytes();
  bool open = true;
  Http2Peer flood(server_.address());
  for (uint32_t stream = 1; stream < 700'000 && open;) {
    std::string frames;
    for (int i = 0; i < 100; ++i, stream += 2) frames += CallFrames(stream, "/a.B/Nothing", "");
    open = flood.Send(frames);
    EXPECT_TRUE(Generate(TextRequest("x")).ok());
  }
  EXPECT_FALSE(open);
  EXPECT_LT(ResidentBytes(), before + (size_t{kSanitized ? 200 : 50} << 20));
}

class SlowReaderTransportTest : public HostileTransportTest {
 protected:
  SlowReaderTransportTest() : HostileTransportTest({"--slow-reader-timeout", "1s"}) {}
};

// The answer is ready and the client's window is shut: nothing but the time limit ends such a call.
TEST_F(SlowReaderTransportTest, AnswersThatNobodyReadsAreTornDown) {
  const std::vector<std::pair<std::string, std::string>> calls = {
      {kGeneratePath, TextRequest("x").SerializeAsString()},
      {kStreamGeneratePath, StreamMessage("x")},
      {kListModels, ""}};
  std::vector<std::unique_ptr<Http2Peer>> peers;
  for (const auto& [method, message] : calls) {
    peers.push_back(std::make_unique<Http2Peer>(server_.address(), /*window=*/0));
    EXPECT_TRUE(peers.back()->Send(CallFrames(1, method, message)));
  }
  for (auto& peer : peers) EXPECT_TRUE(peer->WaitForFrame(FrameType::kReset, 1, seconds(20)));
}

// By then gRPC has forgotten who it was.
TEST(SlowReaderLogTest, NamesTheClientOfACallThatWasTornDown) {
  const testing::TempDirectory directory;
  const std::string file = directory.path() / "log";
  const int descriptor = open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  auto log = std::make_unique<Logger>(LogLevel::kInfo, descriptor);
  const auto loaded = LoadConfig(
      {"--listen", "127.0.0.1:0", "--metrics", "off", "--slow-reader-timeout", "500ms"}, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  FakeEngine engine;
  engine.set_slow_reader_timeout(milliseconds(300));
  engine.set_scripter(
      [](const RequestSpec&) { return Endless(milliseconds(0), std::string(4096, 'x')); });
  auto server = Server::Start(loaded->config, *log);
  ASSERT_TRUE(server.ok()) << server.status();
  (*server)->StartServing(engine);
  Http2Peer peer(absl::StrCat("127.0.0.1:", (*server)->port()), /*window=*/0);
  EXPECT_TRUE(
      peer.Send(CallFrames(1, kStreamGeneratePath, TextStreamRequest("x").SerializeAsString())));
  EXPECT_TRUE(peer.WaitForFrame(FrameType::kReset, 1, seconds(20)));
  server->reset();  // waits for the call's end
  log.reset();
  close(descriptor);
  std::ifstream lines(file);
  const std::string text{std::istreambuf_iterator<char>(lines), {}};
  EXPECT_THAT(text, HasSubstr("call_failed call=StreamGenerate"));
  EXPECT_THAT(text, HasSubstr("peer=ipv4:127.0.0.1:"));
}

class SilentPeerTest : public HostileTransportTest {
 protected:
  SilentPeerTest() : HostileTransportTest({"--keepalive-time", "2s"}) {}
};

TEST_F(SilentPeerTest, ConnectionsWithoutASignOfLifeAreDropped) {
  std::vector<std::unique_ptr<Http2Peer>> mute;
  for (int i = 0; i < 10; ++i) {
    mute.push_back(std::make_unique<Http2Peer>(server_.address(), std::nullopt));
  }
  // Peers that began a stream and answer no ping, as after a pulled cable.
  std::vector<std::unique_ptr<Http2Peer>> peers;
  for (int i = 0; i < 10; ++i) {
    peers.push_back(std::make_unique<Http2Peer>(server_.address()));
    EXPECT_TRUE(peers.back()->Send(CallFrames(1, kStreamGeneratePath, StreamMessage("~"))));
  }
  EXPECT_TRUE(Eventually([&] { return server_.engine().active() == 11; }));
  EXPECT_TRUE(Eventually([&] { return server_.engine().active() == 1; }, seconds(20)));
  for (auto& peer : mute) EXPECT_TRUE(peer->WaitForClose(seconds(20)));
}

}  // namespace
}  // namespace annulus::server
