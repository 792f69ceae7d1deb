// Requests whose clients leave or come again: places in the quotas, several choices, replays.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/http/api_fixture.h"

namespace annulus::server {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr char kCompletions[] = "/v1/completions";
constexpr char kKey[] = "Idempotency-Key: name\r\n";

json Question(const json& more = json::object()) {
  json body = {{"prompt", "Hi"}, {"max_tokens", 5}};
  body.update(more);
  return body;
}

class LeavingTest : public ApiTest {
 protected:
  // Sends a request for a stream, and waits until its answer has begun.
  std::unique_ptr<HttpPeer> Begin(const json& more, const std::string& headers) {
    auto peer = std::make_unique<HttpPeer>(server_->http_port());
    json body = Question(more);
    body["stream"] = true;
    peer->Send(PostJson(kCompletions, body.dump(), headers));
    EXPECT_TRUE(peer->ReadUntil("word"));
    return peer;
  }
};

// Lets each tenant run so many requests at a time.
class FewAtATime final : public Authenticator {
 public:
  explicit FewAtATime(int most) : most_(most) {}
  absl::StatusOr<Caller> Authenticate(const CallContext&) const override {
    Caller caller;
    caller.quotas.running_requests = most_;
    return caller;
  }

 private:
  const int most_;
};

// Otherwise the first could leave, and the other's request would run without a place.
TEST_F(LeavingTest, WhoFollowsARunningRequestNeedsAPlaceInTheQuotas) {
  Start({}, std::make_unique<FewAtATime>(1));
  server_->engine().set_scripter(
      [](const RequestSpec&) { return Endless(milliseconds(1), "word "); });
  auto first = Begin(json::object(), kKey);
  EXPECT_EQ(Post(kCompletions, Question({{"stream", true}}), kKey).status, 429);
  EXPECT_EQ(Get("/v1/streams/name").status, 429);
  first->Leave();
  // Now it lingers, and the next call takes its place. Before the server hears so, it is refused.
  const std::string again = PostJson(kCompletions, Question({{"stream", true}}).dump(), kKey);
  std::unique_ptr<HttpPeer> second;
  EXPECT_TRUE(Eventually([&] {
    second = std::make_unique<HttpPeer>(server_->http_port());
    second->Send(again);
    return second->ReadUntil("\r\n\r\n") && second->received().find("HTTP/1.1 200") == 0;
  }));
  EXPECT_EQ(Post(kCompletions, Question()).status, 429);
  EXPECT_EQ(server_->engine().submitted().size(), 1u);
}

TEST_F(LeavingTest, EveryChoiceTakesThePlaceOfTheOneThatItFollows) {
  constexpr int kChoices = 8;  // the more, the longer the first has ended before the last has
  Start({"--metrics", "127.0.0.1:0"}, std::make_unique<FewAtATime>(kChoices));
  server_->engine().set_scripter(
      [](const RequestSpec&) { return Endless(milliseconds(1), "word "); });
  auto first = Begin({{"n", kChoices}}, kKey);
  for (int choice = 0; choice < kChoices; ++choice) {
    EXPECT_TRUE(first->ReadUntil(absl::StrCat("\"index\":", choice))) << "it may not run yet";
  }
  first->Leave();
  ASSERT_TRUE(Eventually([&] {
    return ScrapeSamples(server_->metrics_address()).at("annulus_active_generations") == 0;
  })) << "the server has not heard that the client left";
  HttpPeer second(server_->http_port());
  second.Send(PostJson(kCompletions, Question({{"n", kChoices}, {"stream", true}}).dump(), kKey));
  EXPECT_TRUE(second.ReadUntil("word")) << second.received();
  EXPECT_EQ(server_->engine().submitted().size(), size_t{kChoices});
}

// A client that has all events but the error must not take the stream for complete.
TEST_F(LeavingTest, AReplayFromBeyondTheEndTellsTheError) {
  Start();
  server_->engine().set_scripter([](const RequestSpec&) {
    FakeScript script;
    script.deltas.assign(400, "word ");
    script.interval = milliseconds(5);
    script.completion.status = absl::UnavailableError("rank 1 failed");
    return script;
  });
  auto first = Begin(json::object(), kKey);
  const HttpReceived replay = Get("/v1/streams/name?from=100000");
  EXPECT_EQ(replay.status, 200) << replay.body;
  EXPECT_TRUE(replay.complete);
  const std::vector<std::string> events = EventsOf(replay.body);
  ASSERT_EQ(events.size(), 1u) << replay.body;
  EXPECT_EQ(json::parse(events[0])["error"]["code"], "rank_failed");
}

TEST_F(LeavingTest, NamesInPathsMayBeEncoded) {
  Start();
  ASSERT_EQ(Post(kCompletions, Question({{"stream", true}}), kKey).status, 200);
  EXPECT_EQ(Get("/v1/streams/n%61m%65").status, 200);
  EXPECT_EQ(Get("/v1/models/f%61ke").status, 200);
  EXPECT_EQ(Get("/v1/streams/na%2Fme").status, 404);
  for (const char* const path : {"/v1/streams/name%", "/v1/streams/%6", "/v1/models/%zz"}) {
    EXPECT_EQ(Get(path).status, 400) << path;
  }
}

}  // namespace
}  // namespace annulus::server
