#ifndef ANNULUS_TESTS_SERVER_HTTP_ANTHROPIC_MESSAGES_FIXTURE_H_
#define ANNULUS_TESTS_SERVER_HTTP_ANTHROPIC_MESSAGES_FIXTURE_H_

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/server/http/api_fixture.h"

namespace annulus::server {

inline constexpr char kMessages[] = "/v1/messages";
inline constexpr char kCount[] = "/v1/messages/count_tokens";

inline nlohmann::json MessagesBody(const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json body = {
      {"model", "fake"}, {"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 5}};
  body.update(more);
  return body;
}

inline nlohmann::json Blocks(const nlohmann::json& blocks) {
  return {{"messages", {{{"role", "user"}, {"content", blocks}}}}};
}

inline nlohmann::json Document(const nlohmann::json& source,
                               const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json block = {{"type", "document"}, {"source", source}};
  block.update(more);
  return block;
}

inline nlohmann::json TextSource(const std::string& text) {
  return {{"type", "text"}, {"media_type", "text/plain"}, {"data", text}};
}

// Name and data of each event.
inline std::vector<std::pair<std::string, nlohmann::json>> NamedEvents(const std::string& body) {
  std::vector<std::pair<std::string, nlohmann::json>> events;
  for (const absl::string_view event : absl::StrSplit(body, "\n\n", absl::SkipEmpty())) {
    if (event[0] == ':') continue;
    const std::pair<std::string, std::string> lines =
        absl::StrSplit(event, absl::MaxSplits('\n', 1));
    events.emplace_back(lines.first.substr(7), nlohmann::json::parse(lines.second.substr(6)));
    EXPECT_EQ(events.back().second["type"], events.back().first);
  }
  return events;
}

class MessagesTest : public ApiTest {
 protected:
  // The text of the newest prompt.
  std::string Prompt() {
    std::string text;
    for (const int32_t id : Submitted().prompt) {
      if (id < 256) text.push_back(static_cast<char>(id));
    }
    return text;
  }
};

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_HTTP_ANTHROPIC_MESSAGES_FIXTURE_H_
