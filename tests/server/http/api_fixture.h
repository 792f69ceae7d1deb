#ifndef ANNULUS_TESTS_SERVER_HTTP_API_FIXTURE_H_
#define ANNULUS_TESTS_SERVER_HTTP_API_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"

namespace annulus::server {

// The data of the events of a stream, comments left out.
inline std::vector<std::string> EventsOf(const std::string& body) {
  std::vector<std::string> events;
  for (absl::string_view event : absl::StrSplit(body, "\n\n", absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&event, "data: ")) events.emplace_back(event);
  }
  return events;
}

inline constexpr char kChat[] = "/v1/chat/completions";
inline constexpr char kText[] = "/v1/completions";

inline nlohmann::json ChatBody(const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json body = {
      {"model", "fake"}, {"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 5}};
  body.update(more);
  return body;
}

inline nlohmann::json TextBody(const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json body = {{"prompt", "Hi"}, {"max_tokens", 5}};
  body.update(more);
  return body;
}

// A server with a fake engine whose APIs tests ask over HTTP.
class ApiTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> flags = {},
             std::unique_ptr<const Authenticator> authenticator = nullptr) {
    flags.insert(flags.end(), {"--http", "127.0.0.1:0"});
    server_ = std::make_unique<TestServer>(flags, std::move(authenticator));
    server_->engine().set_chat_template(true);
    server_->Serve();
  }
  HttpReceived Ask(const std::string& bytes) { return HttpPeer(server_->http_port()).Ask(bytes); }
  HttpReceived Post(const std::string& path, const nlohmann::json& body,
                    const std::string& headers = "") {
    return Ask(PostJson(path, body.dump(), headers));
  }
  HttpReceived Get(const std::string& path, const std::string& headers = "Host: localhost\r\n") {
    return Ask(absl::StrCat("GET ", path, " HTTP/1.1\r\n", headers, "\r\n"));
  }
  // The error of a refused request.
  nlohmann::json Refused(const std::string& path, const nlohmann::json& body, int status) {
    const HttpReceived answer = Post(path, body);
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_TRUE(answer.complete);
    return nlohmann::json::parse(answer.body).at("error");
  }
  RequestSpec Submitted() { return server_->engine().submitted().back(); }

  std::unique_ptr<TestServer> server_;
};

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_HTTP_API_FIXTURE_H_
