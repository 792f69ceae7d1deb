// The listener of the HTTP APIs: requests in turn, and clients that are slow, silent or gone.

#include "server/http/http_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/http/http_client.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// What happened to the exchanges of a service, for tests to wait for.
class Record {
 public:
  void Note(const std::string& what) {
    std::lock_guard lock(mutex_);
    notes_.push_back(what);
    changed_.notify_all();
  }
  bool Wait(const std::string& what) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(20), [&] { return CountLocked(what) > 0; });
  }
  int Count(const std::string& what) {
    std::lock_guard lock(mutex_);
    return CountLocked(what);
  }

 private:
  int CountLocked(const std::string& what) const {
    return static_cast<int>(std::count(notes_.begin(), notes_.end(), what));
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> notes_;
};

// Answers with what the body says: "echo", "wait" (never), "stream N" (N bytes without end).
class Exchange final : public HttpExchange {
 public:
  Exchange(std::shared_ptr<HttpReply> reply, Record& record)
      : reply_(std::move(reply)), record_(record) {}

  void Start(BodyBytes body) override {
    std::string text;
    for (const std::string& piece : body.TakePieces()) text += piece;
    record_.Note("start");
    if (text == "wait") return;
    if (text == "stream") {
      streams_ = true;
      HttpAnswer answer;
      return reply_->Send(SerializeHead(answer, BodyFrame::kChunked, true), HttpReply::End::kMore);
    }
    reply_->Send(Serialize({.body = text}, true, true), HttpReply::End::kLast);
  }
  void Refuse(const absl::Status& status) override {
    record_.Note("refuse");
    reply_->Send(Serialize({.status = 400, .body = std::string(status.message())}, false, true),
                 HttpReply::End::kLast);
  }
  void OnWritten() override {
    record_.Note("written");
    if (streams_) reply_->Send(Chunk(std::string(100'000, 'x')), HttpReply::End::kMore);
  }
  void OnBeat() override { record_.Note("beat"); }
  void OnGone() override { record_.Note("gone"); }
  void OnOver() override { record_.Note("over"); }

 private:
  const std::shared_ptr<HttpReply> reply_;
  Record& record_;
  bool streams_ = false;
};

class Service final : public HttpService {
 public:
  explicit Service(Record& record) : record_(record) {}
  Opening Open(HttpRequest request, const std::string&, std::shared_ptr<HttpReply> reply) override {
    if (request.path == "/now") return HttpAnswer{.body = "now"};
    if (request.path == "/hold") {  // the listener's thread, until the test lets go
      record_.Note("held");
      record_.Wait("let go");
      return HttpAnswer{.body = "held"};
    }
    return std::make_shared<Exchange>(std::move(reply), record_);
  }
  HttpAnswer OnFault(const HttpFault& fault) override {
    return {.status = fault.status, .body = fault.message};
  }

 private:
  Record& record_;
};

std::string Post(const std::string& body) {
  return absl::StrCat("POST / HTTP/1.1\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
}
constexpr char kNow[] = "GET /now HTTP/1.1\r\n\r\n";

class HttpListenerTest : public ::testing::Test {
 protected:
  HttpListenerTest() { options_.limits.request = {16 << 10, 1 << 20}; }

  void Start() {
    auto listener = HttpListener::Start(options_, service_, budget_, nullptr);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }
  HttpPeer Connect() { return HttpPeer(listener_->port()); }

  HttpListener::Options options_{
      .address = "127.0.0.1:0", .max_connections = 1000, .limits = HttpLimits()};
  Record record_;
  Service service_{record_};
  std::shared_ptr<MemoryBudget> budget_ = std::make_shared<MemoryBudget>(size_t{8} << 20);
  std::unique_ptr<HttpListener> listener_;
};

TEST_F(HttpListenerTest, AnswersRequestsOfAConnectionInTurn) {
  Start();
  HttpPeer peer(listener_->port());
  EXPECT_EQ(peer.Ask(Post("one")).body, "one");
  std::string many;
  for (int i = 0; i < 2000; ++i) many += i % 3 == 0 ? Post(absl::StrCat(i)) : std::string(kNow);
  std::thread sender([&] { peer.Send(many); });
  for (int i = 0; i < 2000; ++i) {
    const HttpReceived answer = peer.ReadAnswer();
    ASSERT_EQ(answer.body, i % 3 == 0 ? absl::StrCat(i) : "now");
    EXPECT_THAT(answer.head, StartsWith("HTTP/1.1 200 OK\r\n"));
  }
  sender.join();
  EXPECT_THAT(peer.Ask("GET /now HTTP/1.1\r\nConnection: close\r\n\r\n").head,
              HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(peer.ReadToEnd());
  EXPECT_EQ(HttpPeer(listener_->port()).Ask("HEAD /now HTTP/1.0\r\n\r\n").complete, false);
}

TEST_F(HttpListenerTest, TakesBodiesInChunksAndAfterContinue) {
  Start();
  HttpPeer peer(listener_->port());
  const std::string text(300'000, 'x');
  peer.Send("POST / HTTP/1.1\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(peer.ReadAnswer().status, 100);
  for (size_t at = 0; at < text.size(); at += 50'000) peer.Send(Chunk(text.substr(at, 50'000)));
  peer.Send(kLastChunk);
  EXPECT_EQ(peer.ReadAnswer().body, text);
  EXPECT_TRUE(Eventually([&] { return budget_->used() == 0; }));
}

TEST_F(HttpListenerTest, HoldsMemoryForBodiesBeforeItTakesThem) {
  Start();
  HttpPeer holding(listener_->port());
  holding.Send("POST / HTTP/1.1\r\nContent-Length: 1048576\r\n\r\n" + std::string(1 << 19, 'x'));
  EXPECT_TRUE(Eventually([&] { return budget_->used() >= 1 << 19; }));
  EXPECT_LT(budget_->used(), (1 << 19) + (1 << 17));
  ASSERT_TRUE(budget_->TryTake(budget_->available()));
  const HttpReceived refused = HttpPeer(listener_->port()).Ask(Post("no room"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("bytes of memory"));
  EXPECT_THAT(refused.head, HasSubstr("Connection: close"));
}

TEST_F(HttpListenerTest, RefusesWhatIsNoRequestAndWhatIsTooLong) {
  Start();
  EXPECT_EQ(HttpPeer(listener_->port()).Ask("nonsense\r\n\r\n").status, 400);
  EXPECT_EQ(
      HttpPeer(listener_->port()).Ask("POST / HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n").status,
      413);
  EXPECT_EQ(
      HttpPeer(listener_->port()).Ask("GET / HTTP/1.1\r\nX: " + std::string(20'000, 'x')).status,
      431);
  HttpPeer chunks(listener_->port());
  const HttpReceived broken =
      chunks.Ask("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXY\r\n");
  EXPECT_EQ(broken.status, 400);
  EXPECT_EQ(record_.Count("start"), 0);
  EXPECT_TRUE(chunks.ReadToEnd());
}

TEST_F(HttpListenerTest, ClosesConnectionsThatAreSilentOrSlow) {
  options_.limits.idle_time = milliseconds(400);
  options_.limits.head_time = milliseconds(200);
  options_.limits.body_time = milliseconds(200);
  Start();
  const auto start = steady_clock::now();
  HttpPeer idle(listener_->port()), head(listener_->port()), body(listener_->port());
  head.Send("GET /now HT");
  body.Send("POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\nx");
  EXPECT_EQ(head.ReadAnswer().status, 408);
  EXPECT_EQ(body.ReadAnswer().status, 400);
  EXPECT_EQ(record_.Count("refuse"), 1);
  EXPECT_GE(steady_clock::now() - start, milliseconds(200));
  EXPECT_TRUE(idle.ReadToEnd());
  EXPECT_GE(steady_clock::now() - start, milliseconds(400));
  // One that has been answered may be idle as long again.
  HttpPeer used(listener_->port());
  EXPECT_EQ(used.Ask(kNow).status, 200);
  EXPECT_TRUE(used.ReadToEnd());
  EXPECT_EQ(used.received(), "");
}

TEST_F(HttpListenerTest, TellsOfClientsThatGoAway) {
  Start();
  HttpPeer peer(listener_->port());
  peer.Send(Post("wait"));
  ASSERT_TRUE(record_.Wait("start"));
  EXPECT_EQ(record_.Count("gone"), 0);
  peer.Leave();
  EXPECT_TRUE(record_.Wait("gone"));
  EXPECT_TRUE(record_.Wait("over"));
  HttpPeer answered(listener_->port());
  EXPECT_EQ(answered.Ask(Post("x")).body, "x");
  EXPECT_TRUE(Eventually([&] { return record_.Count("over") == 2; }));
  EXPECT_EQ(record_.Count("gone"), 1);
}

TEST_F(HttpListenerTest, WaitsForReadersOneMessageLongAndNotForEver) {
  options_.limits.unread_time = milliseconds(300);
  Start();
  HttpPeer peer(listener_->port());
  peer.LimitReceiving(4096);
  peer.Send(Post("stream"));
  EXPECT_TRUE(record_.Wait("gone"));
  // What the sockets of both sides hold, and one message more.
  EXPECT_LT(record_.Count("written"), 200);
}

TEST_F(HttpListenerTest, BeatsWhileNothingElseIsWritten) {
  options_.limits.heartbeat = milliseconds(20);
  Start();
  HttpPeer peer(listener_->port());
  peer.Send(Post("wait"));
  EXPECT_TRUE(Eventually([&] { return record_.Count("beat") >= 3; }));
}

TEST_F(HttpListenerTest, TheOldestConnectionWithoutARequestMakesRoom) {
  options_.max_connections = 10;
  Start();
  HttpPeer busy(listener_->port());
  busy.Send(Post("wait"));
  ASSERT_TRUE(record_.Wait("start"));
  std::vector<std::unique_ptr<HttpPeer>> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(std::make_unique<HttpPeer>(listener_->port()));
  EXPECT_TRUE(silent.front()->ReadToEnd());
  EXPECT_EQ(silent.back()->Ask(kNow).body, "now");
  EXPECT_EQ(record_.Count("gone"), 0);
}

// However many others come, who asks all the time and who has few connections keeps them.
TEST_F(HttpListenerTest, TheLongestIdleConnectionOfWhoHasMostMakesRoom) {
  options_.max_connections = 4;
  Start();
  HttpPeer other(listener_->port(), "127.0.0.2");
  HttpPeer steady(listener_->port());
  HttpPeer first(listener_->port());
  HttpPeer second(listener_->port());
  for (HttpPeer* peer : {&other, &first, &second, &steady}) EXPECT_EQ(peer->Ask(kNow).body, "now");
  HttpPeer third(listener_->port());
  EXPECT_TRUE(first.ReadToEnd());
  HttpPeer fourth(listener_->port());
  EXPECT_TRUE(second.ReadToEnd());
  for (HttpPeer* peer : {&other, &steady, &third, &fourth}) EXPECT_EQ(peer->Ask(kNow).body, "now");
}

// Many may come and leave while the listener's thread is busy.
TEST_F(HttpListenerTest, NothingBeginsForAClientThatHasLeft) {
  Start();
  HttpPeer holds(listener_->port());
  holds.Send("GET /hold HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(record_.Wait("held"));
  HttpPeer leaves(listener_->port());
  leaves.Send(Post("wait"));
  leaves.Leave();
  record_.Note("let go");
  EXPECT_EQ(holds.ReadAnswer().body, "held");
  EXPECT_TRUE(record_.Wait("over"));
  EXPECT_EQ(record_.Count("refuse"), 1);
  EXPECT_EQ(record_.Count("start"), 0);
}

// A connection that waits for a request would have to make room otherwise.
TEST_F(HttpListenerTest, ClientsThatHaveLeftMakeRoomFirst) {
  options_.max_connections = 3;
  Start();
  HttpPeer stays(listener_->port());
  EXPECT_EQ(stays.Ask(kNow).body, "now");
  HttpPeer leaves(listener_->port());
  leaves.Send(Post("wait"));
  ASSERT_TRUE(record_.Wait("start"));
  HttpPeer holds(listener_->port());
  holds.Send("GET /hold HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(record_.Wait("held"));
  leaves.Leave();
  HttpPeer comes(listener_->port());
  record_.Note("let go");
  EXPECT_EQ(comes.Ask(kNow).body, "now");
  EXPECT_EQ(stays.Ask(kNow).body, "now");
}

TEST_F(HttpListenerTest, BodiesThatDoNotComeMakeRoomForOtherClients) {
  options_.max_connections = 3;
  Start();
  std::vector<std::unique_ptr<HttpPeer>> slow;
  for (int i = 0; i < 3; ++i) {
    slow.push_back(std::make_unique<HttpPeer>(listener_->port()));
    const std::string head = "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n";
    ASSERT_EQ(slow.back()->Ask(head).status, 100);
  }
  HttpPeer same(listener_->port());
  EXPECT_TRUE(same.ReadToEnd());
  HttpPeer other(listener_->port(), "127.0.0.2");
  EXPECT_EQ(other.Ask(Post("echo")).body, "echo");
  EXPECT_TRUE(slow.back()->ReadToEnd());
  slow.front()->Send("something");
  EXPECT_EQ(slow.front()->ReadAnswer().body, "something");
}

// Connections that send a byte a second hold up nobody.
TEST_F(HttpListenerTest, ThousandSlowConnectionsDelayNobody) {
  options_.limits.head_time = seconds(60);
  options_.max_connections = 2000;
  Start();
  std::vector<std::unique_ptr<HttpPeer>> slow;
  for (int i = 0; i < 1000; ++i) {
    slow.push_back(std::make_unique<HttpPeer>(listener_->port()));
    ASSERT_TRUE(slow.back()->Send("G"));
  }
  HttpPeer peer(listener_->port());
  for (int i = 0; i < 200; ++i) {
    slow[static_cast<size_t>(i * 5)]->Send("E");
    ASSERT_EQ(peer.Ask(kNow).body, "now");
  }
}

TEST_F(HttpListenerTest, StopsAtOnceAndTellsTheExchanges) {
  Start();
  HttpPeer idle(listener_->port()), busy(listener_->port());
  busy.Send(Post("wait"));
  ASSERT_TRUE(record_.Wait("start"));
  listener_.reset();
  EXPECT_EQ(record_.Count("gone"), 1);
  EXPECT_EQ(record_.Count("over"), 1);
  EXPECT_TRUE(idle.ReadToEnd());
}

}  // namespace
}  // namespace annulus::server
