// Anthropic's Messages over HTTP: answers, streams, documents, errors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/server/http/anthropic/messages_fixture.h"
#include "tests/server/http/parted_answer.h"

namespace annulus::server {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(MessagesTest, AnswersWhole) {
  Start();
  const HttpReceived answer = Post(kMessages, MessagesBody());
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.head, HasSubstr("\r\nrequest-id: r-"));
  const json body = json::parse(answer.body);
  EXPECT_THAT(body["id"].get<std::string>(), StartsWith("msg_r-"));
  EXPECT_EQ(body["type"], "message");
  EXPECT_EQ(body["role"], "assistant");
  EXPECT_EQ(body["model"], "fake");
  EXPECT_EQ(body["content"], json({{{"type", "text"}, {"text", "Hello"}}}));
  EXPECT_EQ(body["stop_reason"], "end_turn");
  EXPECT_TRUE(body["stop_sequence"].is_null());
  EXPECT_EQ(body["usage"]["input_tokens"], Submitted().prompt.size());
  EXPECT_EQ(body["usage"]["output_tokens"], 2);
  EXPECT_EQ(Submitted().sampling.max_tokens, 5);
}

TEST_F(MessagesTest, StreamsEveryEvent) {
  Start({"--http-heartbeat", "20ms"});
  server_->engine().set_scripter([](const RequestSpec& spec) {
    FakeScript script;
    script.queued = {0};
    script.progress_events = 2;
    script.interval = milliseconds(60);
    script.deltas = {"Hel", "lo"};
    script.completion.finish_reason = FinishReason::kStop;
    script.completion.matched_stop = "!";
    script.completion.usage.cached_tokens = 4;
    if (spec.sampling.seed == 9) script.completion.status = absl::UnavailableError("rank 1 failed");
    return script;
  });
  const HttpReceived answer = Post(kMessages, MessagesBody({{"stream", true}}));
  ASSERT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.complete);
  EXPECT_THAT(answer.body, HasSubstr(": annulus {\"processed\":"));
  std::vector<std::string> names;
  std::string text;
  for (const auto& [name, event] : NamedEvents(answer.body)) {
    if (name == "ping") {
      EXPECT_EQ(event, json({{"type", "ping"}}));
      if (names.empty()) names.push_back(name);
      continue;
    }
    names.push_back(name);
    if (name == "message_start") {
      EXPECT_EQ(event["message"]["content"], json::array());
      EXPECT_TRUE(event["message"]["stop_reason"].is_null());
      EXPECT_EQ(event["message"]["usage"]["output_tokens"], 0);
    }
    if (name == "content_block_delta") text += event["delta"]["text"];
    if (name == "message_delta") {
      EXPECT_EQ(event["delta"], json({{"stop_reason", "stop_sequence"}, {"stop_sequence", "!"}}));
      EXPECT_EQ(event["usage"]["input_tokens"], Submitted().prompt.size() - 4);
      EXPECT_EQ(event["usage"]["cache_read_input_tokens"], 4);
      EXPECT_EQ(event["usage"]["output_tokens"], 2);
    }
  }
  EXPECT_EQ(text, "Hello");
  EXPECT_THAT(names, ElementsAre("ping", "message_start", "content_block_start",
                                 "content_block_delta", "content_block_delta", "content_block_stop",
                                 "message_delta", "message_stop"));
  const auto failed =
      NamedEvents(Post(kMessages, MessagesBody({{"stream", true}, {"seed", 9}})).body);
  EXPECT_EQ(failed.back().first, "error");
  EXPECT_EQ(failed.back().second["error"]["type"], "overloaded_error");
}

TEST_F(MessagesTest, ReadsConversations) {
  Start();
  const json body = {
      {"messages",
       {{{"role", "user"},
         {"content", {{{"text", "a"}, {"type", "text"}}, {{"type", "text"}, {"text", "b"}}}}},
        {{"role", "assistant"},
         {"content",
          {{{"type", "thinking"}, {"thinking", "hm"}, {"signature", "x"}},
           {{"type", "text"}, {"text", "c"}}}}},
        {{"role", "user"}, {"content", "d"}}}},
      {"system",
       {{{"type", "text"}, {"text", "s"}, {"cache_control", {{"type", "ephemeral"}}}},
        {{"type", "text"}, {"text", "t"}}}},
      {"model", "fake"},
      {"max_tokens", 7},
      {"stop_sequences", {"x", "y"}},
      {"temperature", 0.5},
      {"top_k", 3},
      {"thinking", {{"type", "disabled"}}},
      {"tools", json::array()},
      {"tool_choice", {{"type", "auto"}}},
      {"metadata", {{"user_id", "somebody"}}},
      {"service_tier", "auto"}};
  ASSERT_EQ(Post(kMessages, body).status, 200);
  EXPECT_EQ(Prompt(), "system:s\nt|user:a\nb|assistant:c|user:d|>");
  EXPECT_THAT(Submitted().sampling.stop, ElementsAre("x", "y"));
  EXPECT_EQ(Submitted().sampling.temperature, 0.5f);
  EXPECT_EQ(Submitted().sampling.top_k, 3);
  ASSERT_EQ(Post(kMessages, MessagesBody({{"system", "s"}})).status, 200);
  EXPECT_EQ(Prompt(), "system:s|user:Hi|>");
}

TEST_F(MessagesTest, ReadsCallsAndTheirResults) {
  Start();
  const json call = {
      {"type", "tool_use"}, {"id", "a1"}, {"name", "search"}, {"input", {{"q", "x"}}}};
  const json now = {{"type", "tool_use"}, {"id", "b2"}, {"name", "now"}, {"input", json::object()}};
  const json results = {
      {{"type", "tool_result"}, {"tool_use_id", "a1"}, {"content", "found"}},
      {{"type", "tool_result"},
       {"tool_use_id", "b2"},
       {"is_error", false},
       {"content", {{{"type", "text"}, {"text", "12"}}, {{"type", "text"}, {"text", "30"}}}}},
      {{"type", "text"}, {"text", "And?"}}};
  const json tools = {{{"name", "search"},
                       {"description", "Finds \"a\\\"]},b."},
                       {"input_schema", {{"type", "object"}}},
                       {"cache_control", {{"type", "ephemeral"}}}},
                      {{"type", "custom"}, {"name", "now"}, {"input_schema", json::object()}}};
  const json body = {
      {"messages",
       {{{"role", "user"}, {"content", "Hi"}},
        {{"role", "assistant"}, {"content", {{{"type", "text"}, {"text", "I look."}}, call, now}}},
        {{"role", "user"}, {"content", results}}}},
      {"tools", tools},
      {"tool_choice", {{"type", "auto"}, {"disable_parallel_tool_use", true}}},
      {"output_config", {{"effort", "max"}}}};
  const HttpReceived answer = Post(kMessages, MessagesBody(body));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(Prompt(), "user:Hi|assistant:I look.|tool:found|tool:12\n30|user:And?|tools>");
  EXPECT_TRUE(Submitted().reading.one_call);
  const ChatRequest chat = server_->engine().with_tools();
  EXPECT_EQ(chat.template_options, R"({"reasoning_effort":"max"})");
  EXPECT_EQ(json::parse(*chat.tools),
            json::parse(R"([{"type": "function", "function": {"name": "search",
              "description": "Finds \"a\\\"]},b.", "parameters": {"type": "object"}}},
              {"type": "function", "function": {"name": "now", "parameters": {}}}])"));
  const json calls = json::parse(*chat.messages[1].tool_calls);
  EXPECT_EQ(calls[0], json::parse(R"({"id": "a1", "type": "function", "function":
              {"name": "search", "arguments": "{\"q\":\"x\"}"}})"));
  EXPECT_EQ(calls[1]["function"]["arguments"], "{}");
  EXPECT_EQ(chat.messages[2].tool_call_id, "a1");
  EXPECT_EQ(chat.messages[3].tool_call_id, "b2");
}

TEST_F(MessagesTest, TheContentMayStandBeforeTheRole) {
  Start();
  const auto message = [](const std::string& content, const std::string& role) {
    return absl::StrCat(R"({"content":)", content, R"(,"role":")", role, "\"}");
  };
  const auto ask = [&](const std::vector<std::string>& messages) {
    return Ask(PostJson(kMessages, absl::StrCat(R"({"model":"fake","max_tokens":5,"messages":[)",
                                                absl::StrJoin(messages, ","), "]}")));
  };
  const std::string result = R"({"type":"tool_result","tool_use_id":"a1","content":"found"})";
  const std::string text = R"({"type":"text","text":"b"})";
  const std::string both = absl::StrCat("[", text, ",", result, ",", result, ",", text, "]");
  const HttpReceived answer = ask({message(both, "user"), message("\"c\"", "assistant"),
                                   message(absl::StrCat("[", text, "]"), "user")});
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(Prompt(), "user:b|tool:found|tool:found|user:b|assistant:c|user:b|>");
  // Errors count the messages as the client does.
  const auto error = [&](const std::string& wrong) {
    const HttpReceived refused = ask({message(both, "user"), wrong});
    EXPECT_EQ(refused.status, 400);
    return json::parse(refused.body)["error"]["message"].get<std::string>();
  };
  EXPECT_THAT(error(message(absl::StrCat("[", result, "]"), "assistant")),
              HasSubstr("messages[1].role: must be \"user\""));
  EXPECT_THAT(error(message(R"([{"type":"image"}])", "user")),
              HasSubstr("messages[1].content[0].type"));
  EXPECT_THAT(error(absl::StrCat(R"({"content":[)", result, "]}")),
              HasSubstr("messages[1].role: is required"));
}

TEST_F(MessagesTest, ConstrainsTheAnswer) {
  Start();
  const json form = {{"format", {{"type", "json_schema"}, {"schema", {{"type", "integer"}}}}}};
  ASSERT_EQ(Post(kMessages, MessagesBody({{"output_config", form}})).status, 200);
  EXPECT_NE(Submitted().output.machine, nullptr);
}

TEST_F(MessagesTest, AnswersWithThinkingAndCalls) {
  Start();
  server_->engine().set_scripter([](const RequestSpec& spec) {
    FakeScript script = PartedAnswer();
    if (spec.sampling.seed == 7) {
      script.parts.pop_back();
      script.completion.calls.pop_back();
      script.completion.calls[0].broken = true;
      script.completion.finish_reason = FinishReason::kLength;
    }
    return script;
  });
  const json blocks = json::parse(R"([
      {"type": "thinking", "thinking": "Hm, \"so\".", "signature": ""},
      {"type": "text", "text": "I look."},
      {"type": "tool_use", "id": "abc123xyz", "name": "search", "input": {"q": "x"}},
      {"type": "tool_use", "id": "def456uvw", "name": "now", "input": {}}])");
  const json whole = json::parse(Post(kMessages, MessagesBody()).body);
  EXPECT_EQ(whole["content"], blocks);
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  // A call that is cut off is no JSON object.
  const json cut = json::parse(Post(kMessages, MessagesBody({{"seed", 7}})).body);
  EXPECT_EQ(cut["content"].size(), 2u);
  EXPECT_EQ(cut["stop_reason"], "max_tokens");

  json streamed = json::array();
  std::vector<std::string> inputs(4);
  size_t open = 0;
  std::string reason;
  for (const auto& [name, event] :
       NamedEvents(Post(kMessages, MessagesBody({{"stream", true}})).body)) {
    if (name == "content_block_start") {
      EXPECT_EQ(event["index"], streamed.size());
      streamed.push_back(event["content_block"]);
      ++open;
    } else if (name == "content_block_stop") {
      EXPECT_EQ(event["index"], streamed.size() - 1);
      --open;
    } else if (name == "content_block_delta") {
      const auto index = event["index"].get<size_t>();
      const json& delta = event["delta"];
      if (delta["type"] == "input_json_delta") inputs[index] += delta["partial_json"];
      for (const std::string member : {"thinking", "text"}) {
        if (!delta.contains(member)) continue;
        streamed[index][member] =
            streamed[index][member].get<std::string>() + delta[member].get<std::string>();
      }
    } else if (name == "message_delta") {
      reason = event["delta"]["stop_reason"];
    }
    EXPECT_LE(open, 1u);
  }
  EXPECT_EQ(open, 0u);
  for (const size_t call : {2, 3}) streamed[call]["input"] = json::parse(inputs[call]);
  EXPECT_EQ(streamed, blocks);
  EXPECT_EQ(reason, "tool_use");
}

// The parser of the answer decides which calls are whole.
TEST_F(MessagesTest, OnlyWholeCallsAreUsesOfTools) {
  Start();
  const std::string odd = R"({"a":"\ud800","b":1e999})";  // JSON that some parsers refuse
  server_->engine().set_scripter([&](const RequestSpec& spec) {
    FakeScript script;
    const bool broken = spec.sampling.seed == 7;
    const std::string arguments = broken ? "{\"a\":" : odd;
    Delta call;
    call.calls = {{0, "abc123xyz", "search", arguments}};
    Delta text;
    text.text = "Hm.";
    script.parts = {call, text};
    script.completion.calls = {{"abc123xyz", "search", arguments, broken}};
    return script;
  });
  const std::string whole = Post(kMessages, MessagesBody()).body;
  EXPECT_THAT(whole, HasSubstr("\"name\":\"search\",\"input\":" + odd + "}"));
  EXPECT_THAT(whole, HasSubstr("\"stop_reason\":\"tool_use\""));
  const json broken = json::parse(Post(kMessages, MessagesBody({{"seed", 7}})).body);
  EXPECT_EQ(broken["content"], json({{{"type", "text"}, {"text", "Hm."}}}));
  EXPECT_EQ(broken["stop_reason"], "end_turn");
  const std::string streamed = Post(kMessages, MessagesBody({{"seed", 7}, {"stream", true}})).body;
  EXPECT_THAT(streamed, HasSubstr("\"stop_reason\":\"end_turn\""));
}

TEST_F(MessagesTest, FramesDocuments) {
  Start();
  server_->engine().set_frames_documents(true);
  ASSERT_TRUE(server_->Upload("stored", "S").ok());
  const json content = {
      {"type", "content"},
      {"content", {{{"type", "text"}, {"text", "c"}}, {{"type", "text"}, {"text", "d"}}}}};
  const json base64 = {{"type", "base64"}, {"media_type", "text/plain"}, {"data", "Yg=="}};
  const json file = {{"type", "file"}, {"file_id", "stored"}};
  const json blocks = {{{"type", "text"}, {"text", "q"}},
                       Document(TextSource("T"), {{"title", "one"}, {"context", "from x"}}),
                       Document(content, {{"title", "two"}}),
                       Document(base64, {{"title", "three"}}),
                       Document(file),
                       Document(file, {{"title", "four"}}),
                       // Comes twice, and stands in the prompt once.
                       Document(TextSource("T"), {{"title", "one"}})};
  const HttpReceived answer = Post(kMessages, MessagesBody(Blocks(blocks)));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const std::string prompt = Prompt();
  EXPECT_THAT(prompt, HasSubstr("[one:T]"));
  EXPECT_THAT(prompt, HasSubstr("[two:c\nd]"));
  EXPECT_THAT(prompt, HasSubstr("[three:b]"));
  EXPECT_THAT(prompt, HasSubstr("[stored:S]"));
  EXPECT_THAT(prompt, HasSubstr("[four:S]"));
  EXPECT_THAT(prompt, HasSubstr("q\nfrom x"));
  EXPECT_EQ(prompt.find("[one:"), prompt.rfind("[one:"));
  EXPECT_EQ(Submitted().documents.size(), 5u);
  // Nothing of it stays.
  EXPECT_EQ(json::parse(Get("/v1/files").body)["data"].size(), 1u);
}

TEST_F(MessagesTest, PinsDocumentsForATime) {
  Start();
  server_->engine().set_frames_documents(true);
  const json blocks = {
      Document(TextSource("one"), {{"cache_control", {{"type", "ephemeral"}, {"ttl", "1h"}}}}),
      Document(TextSource("two"), {{"cache_control", {{"type", "ephemeral"}, {"ttl", "5m"}}}}),
      {{"type", "text"}, {"text", "q"}}};
  json body = MessagesBody(Blocks(blocks));
  body["system"] = "s";
  ASSERT_EQ(Post(kMessages, body).status, 200);
  ASSERT_TRUE(Eventually([&] { return server_->engine().submitted().size() == 2; }));
  const RequestSpec asked = server_->engine().submitted()[0];
  const RequestSpec pin = Submitted();
  EXPECT_TRUE(pin.prefill_only);
  EXPECT_TRUE(pin.pin);
  EXPECT_EQ(pin.ttl, std::chrono::hours(1));
  EXPECT_EQ(pin.documents.size(), 2u);
  // The same prompt, up to the end of the last document.
  ASSERT_LT(pin.prompt.size(), asked.prompt.size());
  EXPECT_TRUE(std::equal(pin.prompt.begin(), pin.prompt.end(), asked.prompt.begin()));
  // Without a time nothing is pinned.
  const json usual =
      json::array({Document(TextSource("one"), {{"cache_control", {{"type", "ephemeral"}}}})});
  ASSERT_EQ(Post(kMessages, MessagesBody(Blocks(usual))).status, 200);
  ASSERT_EQ(Post(kMessages, MessagesBody()).status, 200);
  EXPECT_EQ(server_->engine().submitted().size(), 4u);
}

TEST_F(MessagesTest, CountsTheTokensThatItWouldRead) {
  Start();
  server_->engine().set_frames_documents(true);
  const json blocks =
      Blocks({Document(TextSource("Text"), {{"title", "one"}}), {{"type", "text"}, {"text", "q"}}});
  const HttpReceived counted = Post(kCount, [&] {
    json body = MessagesBody(blocks);
    body.erase("max_tokens");
    return body;
  }());
  ASSERT_EQ(counted.status, 200) << counted.body;
  ASSERT_EQ(Post(kMessages, MessagesBody(blocks)).status, 200);
  EXPECT_EQ(json::parse(counted.body), json({{"input_tokens", Submitted().prompt.size()}}));
  EXPECT_EQ(server_->engine().submitted().size(), 1u);
}

TEST_F(MessagesTest, NamesWhatItRefuses) {
  Start();
  struct Case {
    json more;
    std::string message;
    int status = 400;
  };
  const json pdf = {{"type", "base64"}, {"media_type", "application/pdf"}, {"data", "JVBERi0="}};
  const json hidden = {{"type", "base64"}, {"media_type", "text/plain"}, {"data", "JVBERi0xLjQ="}};
  const std::vector<Case> cases = {
      {{{"max_tokens", nullptr}}, "max_tokens: is required"},
      {{{"max_tokens", 0}}, "max_tokens"},
      {{{"messages", json::array()}}, "messages: is required"},
      {{{"tools", {{{"type", "web_search_20250305"}, {"name", "f"}}}}}, "tools[0].type"},
      {{{"tools", {{{"description", "f"}}}}}, "tools[0].name"},
      {{{"tools", {{"name", "f"}}}}, "tools: must be an array"},
      {{{"tool_choice", {{"type", "any"}}}}, "tool_choice.type"},
      {{{"tool_choice", {{"type", "tool"}}}}, "tool_choice.name"},
      {{{"thinking", {{"type", "enabled"}}}}, "thinking.budget_tokens"},
      {{{"thinking", {{"type", "enabled"}, {"budget_tokens", 5}}}}, "thinking.budget_tokens"},
      {{{"thinking", {{"type", "deep"}}}}, "thinking.type"},
      {{{"output_config", {{"format", {{"type", "xml"}}}}}}, "output_config.format.type"},
      {{{"output_config",
         {{"format", {{"type", "json_schema"}, {"schema", {{"not", json::object()}}}}}}}},
       "output_config.format.schema"},
      {{{"output_config", {{"effort", ""}}}}, "output_config.effort"},
      {{{"output_config", {{"effort", std::string(33, 'x')}}}}, "output_config.effort"},
      {{{"container", "x"}}, "container"},
      {{{"stop_sequences", std::vector<std::string>(17, "s")}}, "stop_sequences[16]"},
      {{{"temperature", 9}}, "temperature"},
      {{{"cache_control", {{"type", "ephemeral"}, {"ttl", "2h"}}}}, "cache_control.ttl"},
      {{{"system", json::array({{{"type", "image"}}})}}, "system.type"},
      {Blocks(json::array({{{"type", "image"}}})), "messages[0].content[0].type"},
      {Blocks(json::array({{{"text", "x"}}})), "messages[0].content[0].type"},
      {Blocks({{{"type", "text"}, {"text", "x"}}, {{"type", "tool_use"}}}),
       "messages[0].content[1].name"},
      {Blocks(json::array({{{"type", "tool_result"}, {"content", {{{"type", "image"}}}}}})),
       "messages[0].content[0].content[0].type"},
      {Blocks(json::array({Document({{"type", "url"}, {"url", "http://x"}})})),
       "messages[0].content[0].source.type"},
      {Blocks(json::array({Document({{"type", "base64"}, {"data", "?"}})})),
       "messages[0].content[0]"},
      {Blocks(json::array({Document(TextSource(""))})),
       "messages[0].content[0]: has an empty document"},
      {Blocks(json::array({Document({{"type", "file"}})})), "file_id"},
      {Blocks(json::array({Document({{"type", "file"}, {"file_id", "none"}})})),
       "there is no file \"none\"", 404},
      {Blocks(json::array({Document(pdf)})), "annulus documents put", 415},
      {Blocks(json::array({Document(hidden)})), "annulus documents put", 415},
      {{{"model", "other"}}, "other", 404},
  };
  for (const Case& wrong : cases) {
    SCOPED_TRACE(wrong.more.dump());
    const HttpReceived answer = Post(kMessages, MessagesBody(wrong.more));
    EXPECT_EQ(answer.status, wrong.status) << answer.body;
    const json error = json::parse(answer.body);
    EXPECT_EQ(error["type"], "error");
    EXPECT_THAT(error["error"]["message"].get<std::string>(), HasSubstr(wrong.message));
    EXPECT_THAT(error["request_id"].get<std::string>(), StartsWith("r-"));
  }
  const json many = std::vector<json>(66, Document(TextSource("x")));
  EXPECT_EQ(Post(kMessages, MessagesBody(Blocks(many))).status, 400);
  EXPECT_TRUE(server_->engine().submitted().empty());
}

TEST_F(MessagesTest, TellsErrorsAsAnthropicDoes) {
  Start();
  absl::Status full = absl::ResourceExhaustedError("the queue is full");
  full.SetPayload(kRetryPayload, absl::Cord("1500"));
  server_->engine().set_submit_error(full);
  const HttpReceived busy = Post(kMessages, MessagesBody());
  EXPECT_EQ(busy.status, 529);
  EXPECT_THAT(busy.head, HasSubstr("retry-after-ms: 1500\r\n"));
  EXPECT_EQ(json::parse(busy.body)["error"]["type"], "overloaded_error");
  // The same on a route of both APIs, by what the client sends.
  const auto unknown = [&](const std::string& headers) {
    return json::parse(Get("/v1/models/none", absl::StrCat("Host: localhost\r\n", headers)).body);
  };
  EXPECT_EQ(unknown("anthropic-version: 2023-06-01\r\n")["error"]["type"], "not_found_error");
  EXPECT_EQ(unknown("anthropic-version: 2023-06-01\r\n")["type"], "error");
  EXPECT_EQ(unknown("")["error"]["code"], "model_not_found");
  const HttpReceived wrong = Get(kMessages);
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(json::parse(wrong.body)["type"], "error");
}

TEST_F(MessagesTest, TakesTokensInBothHeaders) {
  const testing::TempDirectory directory;
  directory.Write("token", "s3cret\n");
  Start({"--auth-token-file", (directory.path() / "token").string()});
  EXPECT_EQ(Post(kMessages, MessagesBody()).status, 401);
  EXPECT_EQ(Post(kMessages, MessagesBody(), "x-api-key: wrong\r\n").status, 401);
  EXPECT_EQ(Post(kMessages, MessagesBody(), "x-api-key: s3cret\r\n").status, 200);
  EXPECT_EQ(Post(kMessages, MessagesBody(), "Authorization: Bearer s3cret\r\n").status, 200);
  EXPECT_EQ(Post(kMessages, MessagesBody(), "x-api-key: s3cret\r\nAuthorization: Bearer wrong\r\n")
                .status,
            401);
}

}  // namespace
}  // namespace annulus::server
