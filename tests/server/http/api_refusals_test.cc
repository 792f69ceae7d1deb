// What the APIs over HTTP refuse, and by whose right.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/http/routes.h"
#include "server/identity/call_roles.h"
#include "tests/server/certificates.h"
#include "tests/server/http/api_fixture.h"
#include "tests/server/http/http_client.h"
#include "tests/server/http/tls_client.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(ApiTest, NamesTheFieldOfWhatItRefuses) {
  Start();
  struct Case {
    const char* path;
    json more;
    std::string param;
  };
  const std::vector<Case> cases = {
      {kChat, {{"temperature", 9}}, "temperature"},
      {kChat, {{"temperature", "hot"}}, "temperature"},
      {kChat, {{"max_tokens", 1.5}}, "max_tokens"},
      {kChat, {{"max_tokens", 1e12}}, "max_tokens"},
      {kChat, {{"max_tokens", nullptr}, {"max_completion_tokens", 0}}, "max_completion_tokens"},
      {kChat, {{"n", 17}}, "n"},
      {kText, {{"n", 0}}, "n"},
      {kChat, {{"tools", {{"type", "function"}}}}, "tools"},
      {kChat, {{"tools", {{{"type", "custom"}}}}}, "tools[0].type"},
      {kChat, {{"tool_choice", "required"}}, "tool_choice"},
      {kChat, {{"reasoning_budget", 5}}, "reasoning_budget"},
      {kChat, {{"reasoning_effort", std::string(33, 'x')}}, "reasoning_effort"},
      {kChat,
       {{"tool_choice", {{"type", "function"}, {"function", {{"name", "f"}}}}}},
       "tool_choice"},
      {kChat, {{"response_format", {{"type", "xml"}}}}, "response_format.type"},
      {kChat, {{"response_format", {{"type", "json_schema"}}}}, "response_format.json_schema"},
      {kChat,
       {{"response_format", {{"json_schema", {{"schema", json::object()}}}, {"type", "text"}}}},
       "response_format.type"},
      {kChat,
       {{"response_format",
         {{"type", "json_schema"}, {"json_schema", {{"schema", {{"not", json::object()}}}}}}}},
       "response_format.json_schema.schema"},
      {kText, {{"structured_outputs", {{"regex", "("}}}}, "structured_outputs.regex"},
      {kText, {{"structured_outputs", {{"choice", json::array()}}}}, "structured_outputs.choice"},
      {kText,
       {{"structured_outputs", {{"choice", {"a"}}, {"regex", "a"}}}},
       "structured_outputs.regex"},
      {kText, {{"structured_outputs", {{"json", "{"}}}}, "structured_outputs.json"},
      {kText, {{"structured_outputs", {{"grammar", "a"}}}}, "structured_outputs.grammar"},
      {kChat,
       {{"continue_final_message", true}, {"add_generation_prompt", true}},
       "continue_final_message"},
      {kChat, {{"store", true}}, "store"},
      {kChat, {{"logprobs", false}, {"top_logprobs", 2}}, "top_logprobs"},
      {kChat, {{"stream_options", {{"include_usage", true}}}}, "stream_options"},
      {kChat, {{"messages", json::array()}}, "messages"},
      {kChat, {{"messages", {{{"role", "bad"}, {"content", "x"}}}}}, "messages"},
      {kChat, {{"messages", {{{"role", "user"}, {"content", 5}}}}}, "messages[0].content"},
      {kChat,
       {{"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}}},
       "messages[0].content[0].type"},
      {kChat, {{"no_such_field", 1}}, "no_such_field"},
      {kChat, {{"annulus", {{"nothing", 1}}}}, "annulus.nothing"},
      {kChat, {{"annulus", {{"documents", {"none"}}}}}, ""},
      {kText, {{"prompt", {"a", "b"}}}, "prompt[1]"},
      {kText, {{"prompt", json::array()}}, "prompt"},
      {kText, {{"prompt", {300}}}, "prompt"},
      {kText, {{"prompt", nullptr}}, "prompt"},
      {kText, {{"echo", true}, {"annulus", {{"documents", {"a"}}}}}, "echo"},
      {kText, {{"echo", true}, {"logprobs", 1}, {"n", 2}}, "n"},
      {kText, {{"best_of", 3}}, "best_of"},
      {kText, {{"logit_bias", {{"x", 1}}}}, "logit_bias.x"},
      {kText, {{"stop", std::vector<std::string>(17, "s")}}, "stop[16]"},
  };
  for (const Case& wrong : cases) {
    SCOPED_TRACE(wrong.more.dump());
    const bool chat = wrong.path == kChat;
    const HttpReceived answer =
        Post(wrong.path, chat ? ChatBody(wrong.more) : TextBody(wrong.more));
    EXPECT_EQ(answer.status, wrong.param.empty() ? 404 : 400) << answer.body;
    const json error = json::parse(answer.body)["error"];
    EXPECT_FALSE(error["message"].get<std::string>().empty());
    if (!wrong.param.empty()) {
      EXPECT_EQ(error["param"], wrong.param) << error;
    }
  }
  EXPECT_EQ(Refused(kChat, ChatBody({{"model", "other"}}), 404)["code"], "model_not_found");
  for (const char* text : {"", "{", "[]", "7", "{\"prompt\":\"\xff\"}", "{\"a\":1,\"a\":1}", "{}}",
                           "{\"prompt\":\"a\",\"prompt\":\"b\"}"}) {
    EXPECT_EQ(Ask(PostJson(kText, text)).status, 400) << text;
  }
}

TEST_F(ApiTest, NamesAllThatItRefuses) {
  Start();
  const json form = Refused(
      kChat, ChatBody({{"temperature", "hot"}, {"nothing", {{"at", {"all"}}}}, {"n", 40}}), 400);
  EXPECT_EQ(form["param"], "n");  // as nlohmann sorts them
  for (const char* part : {"n: must be 1 to 16; ", "nothing: this server does not support",
                           "temperature: must be a number"}) {
    EXPECT_THAT(form["message"].get<std::string>(), HasSubstr(part));
  }
  const json ranges =
      Refused(kChat, ChatBody({{"temperature", 9}, {"top_k", -1}, {"priority", 7}}), 400);
  EXPECT_EQ(ranges["param"], "priority");
  for (const char* part : {"priority: 7 is not allowed", "must be 0 to 2", "must be at least 0"}) {
    EXPECT_THAT(ranges["message"].get<std::string>(), HasSubstr(part));
  }
  // Not without end.
  json many = ChatBody();
  for (int i = 0; i < 100; ++i) many[absl::StrCat("a", i)] = 1;
  const std::string message = Refused(kChat, many, 400)["message"];
  EXPECT_LE(message.size(), 1100u);
}

// Each reason, and whether SDKs are to repeat the request.
TEST_F(ApiTest, TellsReasonsAsHttpDoes) {
  Start({"--max-message-size", "64KiB"});
  server_->engine().set_max_context(100);
  EXPECT_EQ(Refused(kText, TextBody({{"max_tokens", 1000}}), 400)["code"],
            "context_length_exceeded");
  absl::Status full = absl::ResourceExhaustedError("the queue is full");
  full.SetPayload(kRetryPayload, absl::Cord("1500"));
  server_->engine().set_submit_error(full);
  const HttpReceived busy = Post(kText, TextBody());
  EXPECT_EQ(busy.status, 429);
  EXPECT_THAT(busy.head, HasSubstr("Retry-After: 2\r\n"));
  EXPECT_THAT(busy.head, HasSubstr("retry-after-ms: 1500\r\n"));
  EXPECT_THAT(busy.head, Not(HasSubstr("x-should-retry")));
  server_->engine().set_submit_error(absl::UnavailableError("rank 1 failed"));
  EXPECT_EQ(Refused(kText, TextBody(), 503)["code"], "rank_failed");
  server_->engine().set_submit_error(absl::InternalError("secret"));
  const json internal = Refused(kText, TextBody(), 500);
  EXPECT_THAT(internal["message"].get<std::string>(), Not(HasSubstr("secret")));
  server_->engine().set_submit_error(absl::OkStatus());
  EXPECT_EQ(Post(kText, TextBody({{"prompt", std::string(70'000, 'x')}})).status, 413);
  EXPECT_EQ(Post(kText, TextBody(), "Idempotency-Key: a\r\n").status, 200);
  const HttpReceived other = Post(kText, TextBody({{"seed", 1}}), "Idempotency-Key: a\r\n");
  EXPECT_EQ(other.status, 409);
  EXPECT_THAT(other.head, HasSubstr("x-should-retry: false\r\n"));
  EXPECT_THAT(other.head, HasSubstr("x-request-id: a\r\n"));
  server_->server().RequestDrain(milliseconds(0));
  EXPECT_EQ(Refused(kText, TextBody(), 503)["code"], "draining");
}

TEST_F(ApiTest, ServesModelsAndHealth) {
  Start();
  const json models = json::parse(Get("/v1/models").body);
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "fake");
  EXPECT_EQ(json::parse(Get("/v1/models/fake").body)["object"], "model");
  EXPECT_EQ(Get("/v1/models/other").status, 404);
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/version").status, 200);
  EXPECT_EQ(Get("/nothing").status, 404);
  const HttpReceived post = Get(kChat);
  EXPECT_EQ(post.status, 405);
  EXPECT_THAT(post.head, HasSubstr("Allow: POST\r\n"));
  const HttpReceived form =
      Ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
          "Content-Length: 2\r\n\r\n{}");
  EXPECT_EQ(form.status, 415);
}

// A route that nobody decided about would be the administrator's.
TEST(RoutesTest, EveryRouteHasARowOfRoles) {
  for (const Route& route : AllRoutes()) {
    if (route.for_probes) continue;
    EXPECT_THAT(AllMethods(), Contains(route.path));
  }
}

TEST_F(ApiTest, KeepsWebPagesOut) {
  Start({"--http-origins", "https://good.example"});
  EXPECT_EQ(Post(kText, TextBody(), "Origin: https://evil.example\r\n").status, 403);
  EXPECT_EQ(Get("/health", "Host: evil.example\r\n").status, 403);
  EXPECT_EQ(Get("/health", "Host: evil.example:80\r\n").status, 403);
  EXPECT_EQ(Get("/health", "").status, 400);
  for (const char* own : {"localhost", "localhost:8000", "127.0.0.1:1", "[::1]:1"}) {
    EXPECT_EQ(Get("/health", absl::StrCat("Host: ", own, "\r\n")).status, 200) << own;
  }
  const HttpReceived good = Post(kText, TextBody(), "Origin: https://good.example\r\n");
  EXPECT_EQ(good.status, 200);
  EXPECT_THAT(good.head, HasSubstr("Access-Control-Allow-Origin: https://good.example\r\n"));
  const HttpReceived asked =
      Ask("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: "
          "https://good.example\r\n\r\n");
  EXPECT_EQ(asked.status, 204);
  EXPECT_THAT(asked.head, HasSubstr("Access-Control-Allow-Headers: *, Authorization\r\n"));
  EXPECT_EQ(server_->engine().submitted().size(), 1u);
}

TEST_F(ApiTest, NeedsTheTokenBeforeItTakesABody) {
  const testing::TempDirectory directory;
  directory.Write("token", "s3cret\n");
  Start({"--auth-token-file", (directory.path() / "token").string()});
  // No byte of the body was sent.
  const HttpReceived refused =
      Ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
          "Content-Length: 1000\r\n\r\n");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(json::parse(refused.body)["error"]["code"], "invalid_api_key");
  EXPECT_EQ(Get("/v1/models").status, 401);
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Post(kText, TextBody(), "Authorization: Bearer wrong\r\n").status, 401);
  EXPECT_EQ(Post(kText, TextBody(), "Authorization: Bearer s3cret\r\n").status, 200);
}

TEST_F(ApiTest, OverTlsItNeedsTheCertificatesThatCallsNeed) {
  signal(SIGPIPE, SIG_IGN);  // as the daemon does
  const TestIdentity own = MakeIdentity();
  const TestIdentity known = MakeIdentity("caller");
  const TestIdentity stranger = MakeIdentity("stranger");
  const testing::TempDirectory directory;
  directory.Write("cert.pem", own.certificate);
  directory.Write("key.pem", own.key);
  directory.Write("ca.pem", known.certificate);
  Start({"--tls-certificate", directory.path() / "cert.pem", "--tls-key",
         directory.path() / "key.pem", "--tls-client-ca", directory.path() / "ca.pem"});
  server_->engine().set_max_context(1'000'000);
  const auto ask = [&](const std::string& path, const TestIdentity* identity) {
    TlsClient client(server_->http_port());
    client.Encrypt(own.certificate, identity);
    return client.Ask(
        absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
  };
  EXPECT_THAT(ask("/v1/models", &known), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(ask("/v1/models", nullptr), StartsWith("HTTP/1.1 401 Unauthorized"));
  EXPECT_THAT(ask("/health", nullptr), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_EQ(ask("/health", &stranger), "");
  // An answer of several records, after a body of several.
  TlsClient client(server_->http_port());
  ASSERT_TRUE(client.Encrypt(own.certificate, &known));
  const std::string answer = client.Ask(PostJson(
      kText, TextBody({{"prompt", std::string(100'000, 'x')}}).dump(), "Connection: close\r\n"));
  EXPECT_THAT(answer, HasSubstr("\"text\":\"Hello\""));
  // Plain HTTP is no TLS.
  EXPECT_EQ(Get("/health").status, 0);
}

}  // namespace
}  // namespace annulus::server
