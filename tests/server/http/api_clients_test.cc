// Clients of the APIs over HTTP: heartbeats, clients that go away, retries, many connections.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/grpc/named_tenants.h"
#include "tests/server/http/api_fixture.h"
#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(ApiTest, BeatsDuringLongPromptsAndBreaksOffWhatFails) {
  Start({"--http-heartbeat", "20ms"});
  server_->engine().set_scripter([](const RequestSpec& spec) {
    FakeScript script;
    script.queued = {0};
    script.progress_events = 2;
    script.interval = milliseconds(100);
    script.deltas = {"Hello"};
    if (spec.sampling.seed == 9) script.completion.status = absl::UnavailableError("rank 1 failed");
    return script;
  });
  const HttpReceived stream = Post(kChat, ChatBody({{"stream", true}}));
  EXPECT_THAT(stream.body, HasSubstr(": annulus {\"processed\":"));
  EXPECT_EQ(EventsOf(stream.body).back(), "[DONE]");
  const HttpReceived whole = Post(kChat, ChatBody());
  EXPECT_TRUE(whole.complete);
  EXPECT_THAT(whole.head, HasSubstr("Transfer-Encoding: chunked"));
  EXPECT_THAT(whole.body, StartsWith("\n\n"));
  EXPECT_EQ(json::parse(whole.body)["choices"][0]["message"]["content"], "Hello");

  const HttpReceived failed = Post(kChat, ChatBody({{"stream", true}, {"seed", 9}}));
  EXPECT_TRUE(failed.complete);
  EXPECT_EQ(json::parse(EventsOf(failed.body).back())["error"]["code"], "rank_failed");
  const HttpReceived broken = Post(kChat, ChatBody({{"seed", 9}}));
  EXPECT_EQ(broken.status, 200);
  EXPECT_FALSE(broken.complete);
}

TEST_F(ApiTest, StopsTheWorkOfClientsThatLeave) {
  Start();
  server_->engine().set_scripter(
      [](const RequestSpec&) { return Endless(milliseconds(1), "word "); });
  HttpPeer peer(server_->http_port());
  peer.Send(PostJson(kChat, ChatBody({{"stream", true}, {"max_tokens", nullptr}}).dump()));
  ASSERT_TRUE(peer.ReadUntil("word"));
  peer.Leave();
  EXPECT_TRUE(server_->engine().WaitUntilIdle(milliseconds(10'000)));
  EXPECT_EQ(server_->engine().cancelled().size(), 1u);
}

TEST_F(ApiTest, ParksRequestsWhoseClientsDoNotRead) {
  Start({"--slow-reader-timeout", "1s"});
  server_->engine().set_slow_reader_timeout(milliseconds(300));
  server_->engine().set_scripter(
      [](const RequestSpec&) { return Endless(milliseconds(0), std::string(4096, 'x')); });
  HttpPeer peer(server_->http_port());
  peer.LimitReceiving(4096);
  peer.Send(PostJson(kText, TextBody({{"stream", true}}).dump()));
  // The engine ends it, as over gRPC.
  EXPECT_TRUE(Eventually([&] { return server_->engine().submitted().size() == 1; }));
  EXPECT_TRUE(server_->engine().WaitUntilIdle(milliseconds(10'000)));
  EXPECT_TRUE(server_->engine().cancelled().empty());
}

TEST_F(ApiTest, SameRequestsByNameAreOne) {
  Start();
  const HttpReceived first = Post(kText, TextBody(), "Idempotency-Key: name\r\n");
  const HttpReceived second = Post(kText, TextBody(), "Idempotency-Key: name\r\n");
  EXPECT_EQ(json::parse(first.body)["choices"], json::parse(second.body)["choices"]);
  EXPECT_EQ(server_->engine().submitted().size(), 1u);
}

// Numbers, so that a gap or a repetition shows.
FakeScript Numbers(int count, milliseconds interval) {
  FakeScript script;
  script.queued = {0};
  script.interval = interval;
  for (int i = 0; i < count; ++i) script.deltas.push_back(absl::StrCat(i, ","));
  return script;
}

TEST_F(ApiTest, ARequestWithAKeyOutlivesItsConnection) {
  Start();
  server_->engine().set_scripter([](const RequestSpec&) { return Numbers(100, milliseconds(5)); });
  const std::string key = "Idempotency-Key: name\r\n";
  {
    HttpPeer peer(server_->http_port());
    peer.Send(PostJson(kText, TextBody({{"stream", true}}).dump(), key));
    ASSERT_TRUE(peer.ReadUntil("3,"));
  }
  const HttpReceived again = Post(kText, TextBody(), key);
  ASSERT_EQ(again.status, 200) << again.body;
  EXPECT_THAT(json::parse(again.body)["choices"][0]["text"].get<std::string>(),
              StartsWith("0,1,2,3,4,5,"));
  EXPECT_EQ(json::parse(again.body)["usage"]["completion_tokens"], 100);
  EXPECT_EQ(server_->engine().submitted().size(), 1u);
  EXPECT_TRUE(server_->engine().cancelled().empty());
}

TEST_F(ApiTest, ARequestWithAKeyLingersNoLongerThanAsked) {
  Start({"--http-linger", "300ms"});
  server_->engine().set_scripter(
      [](const RequestSpec&) { return Endless(milliseconds(1), "word "); });
  const auto begun = std::chrono::steady_clock::now();
  HttpPeer peer(server_->http_port());
  peer.Send(PostJson(kText, TextBody({{"stream", true}}).dump(), "Idempotency-Key: name\r\n"));
  ASSERT_TRUE(peer.ReadUntil("word"));
  peer.Leave();
  EXPECT_TRUE(server_->engine().WaitUntilIdle(milliseconds(10'000)));
  EXPECT_GE(std::chrono::steady_clock::now() - begun, milliseconds(300));
  EXPECT_EQ(server_->engine().cancelled().size(), 1u);
}

// Lets each tenant run one request at a time.
class OneAtATime final : public Authenticator {
 public:
  absl::StatusOr<Caller> Authenticate(const CallContext&) const override {
    Caller caller;
    caller.quotas.running_requests = 1;
    return caller;
  }
};

// A request that lingers is the tenant's: others wait for it, but its own retry takes its place.
TEST_F(ApiTest, ARequestThatLingersHasAPlaceInTheQuotas) {
  Start({}, std::make_unique<OneAtATime>());
  server_->engine().set_scripter([](const RequestSpec&) { return Numbers(200, milliseconds(5)); });
  const std::string key = "Idempotency-Key: name\r\n";
  {
    HttpPeer peer(server_->http_port());
    peer.Send(PostJson(kText, TextBody({{"stream", true}}).dump(), key));
    ASSERT_TRUE(peer.ReadUntil("3,"));
  }
  EXPECT_EQ(Refused(kText, TextBody(), 429)["code"], "rate_limit_exceeded");
  EXPECT_EQ(Post(kText, TextBody(), "Idempotency-Key: other\r\n").status, 429);
  EXPECT_EQ(Post(kText, TextBody(), key).status, 200);
  EXPECT_EQ(server_->engine().submitted().size(), 1u);
  EXPECT_EQ(Post(kText, TextBody()).status, 200);
}

TEST_F(ApiTest, ReplaysStreams) {
  Start();
  server_->engine().set_scripter([](const RequestSpec&) { return Numbers(20, milliseconds(2)); });
  const json more = {{"stream", true}, {"stream_options", {{"include_usage", true}}}};
  HttpPeer peer(server_->http_port());
  peer.Send(PostJson(kChat, ChatBody(more).dump(), "Idempotency-Key: name\r\n"));
  ASSERT_TRUE(peer.ReadUntil("3,"));
  const std::vector<std::string> running = EventsOf(Get("/v1/streams/name").body);
  const std::vector<std::string> first = EventsOf(peer.ReadAnswer().body);
  ASSERT_EQ(first.size(), 24u);  // role, twenty texts, end, usage and the last one
  EXPECT_EQ(running, first);
  for (const size_t from : {size_t{0}, size_t{3}, size_t{22}, size_t{24}, size_t{100}}) {
    const HttpReceived later = Get(absl::StrCat("/v1/streams/name?from=", from));
    EXPECT_EQ(later.status, 200);
    EXPECT_TRUE(later.complete);
    EXPECT_THAT(later.head, HasSubstr("x-request-id: name\r\n"));
    const std::vector<std::string> rest(first.begin() + std::min(from, first.size()), first.end());
    EXPECT_EQ(EventsOf(later.body), rest) << from;
  }
  EXPECT_EQ(server_->engine().submitted().size(), 1u);

  const HttpReceived unknown = Get("/v1/streams/other");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(json::parse(unknown.body)["error"]["code"], "request_not_found");
  const HttpReceived number = Get("/v1/streams/name?from=first");
  EXPECT_EQ(number.status, 400);
  EXPECT_EQ(json::parse(number.body)["error"]["param"], "from");
  EXPECT_EQ(Post(kChat, ChatBody(), "Idempotency-Key: whole\r\n").status, 200);
  EXPECT_EQ(Get("/v1/streams/whole").status, 400);
}

// What a client could not be told, its next try is told; the one after that tries again.
TEST_F(ApiTest, ARetryMeetsTheFailureThatBrokeItsAnswerOff) {
  Start({"--http-heartbeat", "20ms"});
  server_->engine().set_scripter([](const RequestSpec&) {
    FakeScript script = Numbers(1, milliseconds(200));
    script.completion.status = absl::UnavailableError("rank 1 failed");
    return script;
  });
  const std::string retry = "x-stainless-retry-count: 1\r\n";
  for (const std::string& named : {std::string(), std::string("Idempotency-Key: name\r\n")}) {
    const size_t before = server_->engine().submitted().size();
    EXPECT_FALSE(Post(kText, TextBody(), named).complete);
    // Another call with the same content is another request.
    if (named.empty()) {
      EXPECT_FALSE(Post(kText, TextBody()).complete);
    }
    const size_t submitted = server_->engine().submitted().size();
    EXPECT_EQ(submitted, before + (named.empty() ? 2 : 1));
    const HttpReceived told = Post(kText, TextBody(), named + retry);
    EXPECT_EQ(told.status, 503) << told.body;
    EXPECT_EQ(json::parse(told.body)["error"]["code"], "rank_failed");
    EXPECT_EQ(server_->engine().submitted().size(), submitted);
    EXPECT_FALSE(Post(kText, TextBody(), named + retry).complete);
    EXPECT_EQ(server_->engine().submitted().size(), submitted + 1);
  }
}

// An answer that no client has received is there for a retry, and for nobody else.
TEST_F(ApiTest, ARetryGetsTheAnswerThatWasNotDelivered) {
  Start();
  server_->engine().set_scripter([](const RequestSpec&) {
    FakeScript script;
    script.deltas = {std::string(12 << 20, 'x')};  // more than the sockets hold
    return script;
  });
  HttpPeer peer(server_->http_port());
  peer.LimitReceiving(4096);
  peer.Send(PostJson(kText, TextBody().dump()));
  ASSERT_TRUE(peer.ReadUntil("HTTP/1.1 200"));
  peer.Leave();
  const std::string retry = "x-stainless-retry-count: 1\r\n";
  EXPECT_TRUE(Post(kText, TextBody({{"seed", 1}}), retry).complete);  // other content
  EXPECT_EQ(server_->engine().submitted().size(), 2u);
  EXPECT_TRUE(Post(kText, TextBody(), retry).complete);
  EXPECT_EQ(server_->engine().submitted().size(), 2u);
  // It was delivered now.
  EXPECT_TRUE(Post(kText, TextBody(), retry).complete);
  EXPECT_EQ(server_->engine().submitted().size(), 3u);
}

// As over gRPC: calls that nobody has to be known for end with their connection.
TEST_F(ApiTest, ConnectionsWithTooManyRefusedRequestsAreClosed) {
  Start({}, std::make_unique<NamedTenants>());
  HttpPeer stranger(server_->http_port());
  int answered = 0;
  while (answered < 5000) {
    const bool lost = answered % 2 == 0;
    const HttpReceived answer =
        stranger.Ask(lost ? "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
                          : "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
    if (answer.status == 0) break;
    EXPECT_EQ(answer.status, lost ? 404 : 401);
    ++answered;
  }
  EXPECT_GE(answered, 1000);
  EXPECT_LT(answered, 5000);
  EXPECT_TRUE(stranger.ReadToEnd());
  // Those of the same address that are known go on.
  EXPECT_EQ(Get("/v1/models", "Host: localhost\r\nx-tenant: a\r\n").status, 200);
}

// Bodies that do not come to their end take a part of the memory for requests, not all.
TEST_F(ApiTest, UnfinishedBodiesOfOneClientLeaveMemoryForOthers) {
  Start({"--max-prompts-memory", "8MiB", "--max-message-size", "1MiB"},
        std::make_unique<NamedTenants>());
  json pad;  // which reading takes no memory for
  for (int i = 0; i < 9000; ++i) pad[absl::StrCat(i)] = std::string(90, 'x');
  const std::string body = TextBody({{"metadata", pad}}).dump();
  const std::string whole = PostJson(kText, body, "x-tenant: a\r\n");
  const std::string most = whole.substr(0, whole.size() - 1);
  std::vector<std::unique_ptr<HttpPeer>> peers;
  for (int i = 0; i < 3; ++i) {
    peers.push_back(std::make_unique<HttpPeer>(server_->http_port()));
    ASSERT_TRUE(peers.back()->Send(most));
  }
  // Two have room. Which of them are read to their end first is not known.
  const auto answered = [](const auto& peer) { return peer->CanRead(); };
  std::vector<std::unique_ptr<HttpPeer>>::iterator refused;
  ASSERT_TRUE(Eventually([&] {
    refused = std::find_if(peers.begin(), peers.end(), answered);
    return refused != peers.end();
  }));
  const HttpReceived refusal = (*refused)->ReadAnswer();
  EXPECT_EQ(refusal.status, 429);
  EXPECT_EQ(json::parse(refusal.body)["error"]["code"], "queue_full");
  EXPECT_THAT(refusal.body, HasSubstr("that have not come whole"));
  peers.erase(refused);
  EXPECT_EQ(Ask(PostJson(kText, TextBody().dump(), "x-tenant: b\r\n")).status, 200);
  for (const auto& peer : peers) {
    EXPECT_EQ(peer->Ask(whole.substr(whole.size() - 1)).status, 200);
  }
}

TEST_F(ApiTest, ManyRequestsOfOneConnectionAndOfMany) {
  Start();
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      HttpPeer peer(server_->http_port());
      for (int j = 0; j < 20; ++j) {
        const json body = ChatBody({{"stream", (i + j) % 2 == 0}});
        const HttpReceived answer = peer.Ask(PostJson(kChat, body.dump()));
        ASSERT_EQ(answer.status, 200) << answer.body;
        ASSERT_TRUE(answer.complete);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(server_->engine().submitted().size(), 160u);
}

}  // namespace
}  // namespace annulus::server
