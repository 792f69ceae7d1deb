// The APIs over HTTP: answers, refusals, heartbeats, clients that go away.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/http/routes.h"
#include "server/identity/call_roles.h"
#include "tests/server/certificates.h"
#include "tests/server/grpc/named_tenants.h"
#include "tests/server/http/api_fixture.h"
#include "tests/server/http/http_client.h"
#include "tests/server/http/parted_answer.h"
#include "tests/server/http/tls_client.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kText[] = "/v1/completions";

json ChatBody(const json& more = json::object()) {
  json body = {
      {"model", "fake"}, {"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 5}};
  body.update(more);
  return body;
}

json TextBody(const json& more = json::object()) {
  json body = {{"prompt", "Hi"}, {"max_tokens", 5}};
  body.update(more);
  return body;
}

TEST_F(ApiTest, AnswersAChatWhole) {
  Start();
  const HttpReceived answer = Post(kChat, ChatBody());
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(answer.head, HasSubstr("x-request-id: r-"));
  const json body = json::parse(answer.body);
  EXPECT_THAT(body["id"].get<std::string>(), StartsWith("chatcmpl-r-"));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["model"], "fake");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hello");
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["usage"]["prompt_tokens"], Submitted().prompt.size());
  EXPECT_EQ(body["usage"]["completion_tokens"], 2);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_TRUE(server_->engine().WaitUntilIdle(milliseconds(5000)));
}

TEST_F(ApiTest, StreamsAChatInChunks) {
  Start();
  const HttpReceived answer =
      Post(kChat, ChatBody({{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  ASSERT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.complete);
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/event-stream"));
  const std::vector<std::string> events = EventsOf(answer.body);
  ASSERT_EQ(events.size(), 6u) << answer.body;
  EXPECT_EQ(json::parse(events[0])["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(json::parse(events[1])["choices"][0]["delta"]["content"], "Hel");
  EXPECT_EQ(json::parse(events[2])["choices"][0]["delta"]["content"], "lo");
  EXPECT_TRUE(json::parse(events[2])["usage"].is_null());
  EXPECT_EQ(json::parse(events[3])["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json::parse(events[4])["usage"]["completion_tokens"], 2);
  EXPECT_TRUE(json::parse(events[4])["choices"].empty());
  EXPECT_EQ(events[5], "[DONE]");
  EXPECT_EQ(json::parse(events[0])["id"], json::parse(events[4])["id"]);
}

TEST_F(ApiTest, CompletesTextsAndIds) {
  Start();
  const HttpReceived answer = Post(kText, TextBody({{"logprobs", 1}}));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json choice = json::parse(answer.body)["choices"][0];
  EXPECT_EQ(choice["text"], "Hello");
  EXPECT_EQ(choice["logprobs"]["tokens"], json({"token", "token"}));
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], json({-0.5, -0.5}));
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][1], json({{"alternative", -0.5}}));
  EXPECT_EQ(choice["logprobs"]["text_offset"], json({0, 5}));
  EXPECT_THAT(Submitted().prompt, ElementsAre(256, 'H', 'i'));
  for (const json& prompt : {json({72, 105}), json::array({json({72, 105})})}) {
    EXPECT_EQ(Post(kText, TextBody({{"prompt", prompt}})).status, 200) << prompt;
    EXPECT_THAT(Submitted().prompt, ElementsAre(72, 105));
  }
  const HttpReceived stream = Post(
      kText, TextBody({{"stream", true}, {"stream_options", {{"continuous_usage_stats", true}}}}));
  const std::vector<std::string> events = EventsOf(stream.body);
  ASSERT_EQ(events.size(), 4u) << stream.body;
  EXPECT_EQ(json::parse(events[1])["choices"][0]["text"], "lo");
  EXPECT_EQ(json::parse(events[1])["usage"]["completion_tokens"], 2);
  EXPECT_EQ(json::parse(events[1])["usage"]["prompt_tokens"], 3);
}

TEST_F(ApiTest, EchoesThePromptWithItsLogProbabilities) {
  Start();
  const json body = {{"prompt", "Hi"}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 1}};
  const json choice = json::parse(Post(kText, body).body)["choices"][0];
  EXPECT_EQ(choice["text"], "HiHello");
  const json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json({"<s>", "H", "i", "token", "token"}));
  EXPECT_EQ(logprobs["token_logprobs"], json({nullptr, -0.25, -0.5, -0.5, -0.5}));
  EXPECT_EQ(logprobs["top_logprobs"][0], nullptr);
  EXPECT_EQ(logprobs["top_logprobs"][2], json({{"i", -0.5}}));
  EXPECT_EQ(logprobs["text_offset"], json({0, 3, 4, 5, 10}));
  // Ids, no log probabilities, several choices.
  const json ids = {{"prompt", {72, 105}}, {"echo", true}, {"n", 2}};
  const json choices = json::parse(Post(kText, ids).body)["choices"];
  EXPECT_EQ(choices[1]["text"], "HiHello");
  EXPECT_EQ(choices[1]["logprobs"], nullptr);
  EXPECT_FALSE(Submitted().sampling.prompt_logprobs.has_value());

  json stream = body;
  stream["stream"] = true;
  std::string text;
  json tokens = json::array();
  for (const std::string& event : EventsOf(Post(kText, stream).body)) {
    if (event == "[DONE]") break;
    const json part = json::parse(event)["choices"][0];
    text += part["text"].get<std::string>();
    if (part["logprobs"].is_null()) continue;
    for (const json& token : part["logprobs"]["tokens"]) tokens.push_back(token);
  }
  EXPECT_EQ(text, "HiHello");
  EXPECT_EQ(tokens, logprobs["tokens"]);
}

TEST_F(ApiTest, TakesEveryFieldThatTheEngineHas) {
  Start();
  const HttpReceived answer =
      Post(kChat, ChatBody({{"temperature", 0.5},
                            {"top_p", 0.25},
                            {"top_k", 3},
                            {"min_p", 0.125},
                            {"min_tokens", 2},
                            {"max_completion_tokens", 7},
                            {"max_tokens", nullptr},
                            {"frequency_penalty", 0.5},
                            {"presence_penalty", -0.5},
                            {"repetition_penalty", 1.5},
                            {"seed", -1},
                            {"stop", {"a", "b"}},
                            {"stop_token_ids", {1, 2}},
                            {"ignore_eos", true},
                            {"logit_bias", {{"7", -1.5}}},
                            {"logprobs", true},
                            {"top_logprobs", 2},
                            {"priority", 1},
                            {"n", 1},
                            {"user", "somebody"},
                            {"metadata", {{"deep", {{"deeper", {1, 2}}}}}},
                            {"store", false},
                            {"tools", json::array()},
                            {"tool_choice", "none"},
                            {"response_format", {{"type", "text"}}},
                            {"chat_template_kwargs", {{"enable", {1, "\"\n", nullptr, true, 0.5}}}},
                            {"annulus", {{"speculation", "off"}, {"ignore_cache", true}}}}));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const RequestSpec spec = Submitted();
  const SamplingParams& sampling = spec.sampling;
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_p, 0.25f);
  EXPECT_EQ(sampling.top_k, 3);
  EXPECT_EQ(sampling.min_p, 0.125f);
  EXPECT_EQ(sampling.min_tokens, 2);
  EXPECT_EQ(sampling.max_tokens, 7);
  EXPECT_EQ(sampling.frequency_penalty, 0.5f);
  EXPECT_EQ(sampling.presence_penalty, -0.5f);
  EXPECT_EQ(sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(sampling.seed, UINT64_MAX);
  EXPECT_THAT(sampling.stop, ElementsAre("a", "b"));
  EXPECT_THAT(sampling.stop_token_ids, ElementsAre(1, 2));
  EXPECT_TRUE(sampling.ignore_eos);
  EXPECT_EQ(sampling.logit_bias.at(7), -1.5f);
  EXPECT_EQ(sampling.logprobs, 2);
  EXPECT_EQ(spec.priority, 1);
  EXPECT_TRUE(spec.ignore_cache);
  const json logprobs = json::parse(answer.body)["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(logprobs[0]["token"], "token");
  EXPECT_EQ(logprobs[0]["bytes"], json({'t', 'o', 'k', 'e', 'n'}));
  EXPECT_EQ(logprobs[1]["top_logprobs"][0]["token"], "alternative");
  // A part of a character has no text of its own, but bytes.
  EXPECT_EQ(logprobs[1]["top_logprobs"][0]["bytes"], json({0xe2, 0x80}));
}

// Every choice is a request of its own with the seed of its number, and all are there at once.
TEST_F(ApiTest, GivesSeveralChoices) {
  Start();
  const HttpReceived answer = Post(kChat, ChatBody({{"n", 3}, {"seed", 7}, {"logprobs", true}}));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json body = json::parse(answer.body);
  ASSERT_EQ(body["choices"].size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["message"]["content"], "Hello");
    EXPECT_EQ(body["choices"][i]["logprobs"]["content"].size(), 2u);
    EXPECT_EQ(body["choices"][i]["finish_reason"], "stop");
  }
  EXPECT_EQ(body["usage"]["completion_tokens"], 6);
  const std::vector<RequestSpec> submitted = server_->engine().submitted();
  ASSERT_EQ(submitted.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(submitted[i].sampling.seed, 7 + i);
    EXPECT_EQ(submitted[i].prompt, submitted[0].prompt);
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], submitted[0].prompt.size());
  // A draw of the server's own, and the cache for all but the first.
  ASSERT_EQ(Post(kText, TextBody({{"n", 2}, {"annulus", {{"ignore_cache", true}}}})).status, 200);
  const std::vector<RequestSpec> drawn = server_->engine().submitted();
  EXPECT_EQ(*drawn[4].sampling.seed, *drawn[3].sampling.seed + 1);
  EXPECT_TRUE(drawn[3].ignore_cache);
  EXPECT_FALSE(drawn[4].ignore_cache);
}

TEST_F(ApiTest, StreamsSeveralChoices) {
  Start();
  const json more = {{"n", 2}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
  const HttpReceived answer = Post(kChat, ChatBody(more));
  EXPECT_TRUE(answer.complete);
  const std::vector<std::string> events = EventsOf(answer.body);
  ASSERT_EQ(events.size(), 10u) << answer.body;  // role, two texts, end; usage and the last one
  std::vector<std::string> texts(2);
  std::vector<int> ends(2);
  for (size_t i = 0; i < 8; ++i) {
    const json choice = json::parse(events[i])["choices"][0];
    const json& content = choice["delta"].value("content", json(""));
    texts.at(choice["index"]) += content.get<std::string>();
    ends.at(choice["index"]) += choice["finish_reason"].is_null() ? 0 : 1;
  }
  EXPECT_THAT(texts, ElementsAre("Hello", "Hello"));
  EXPECT_THAT(ends, ElementsAre(1, 1));
  EXPECT_EQ(json::parse(events[8])["usage"]["completion_tokens"], 4);
  EXPECT_EQ(events[9], "[DONE]");
}

// What one choice is refused for ends the others, and is told as the answer's error.
TEST_F(ApiTest, AChoiceThatFailsEndsTheOthers) {
  Start();
  std::atomic<int> asked{0};
  server_->engine().set_scripter([&asked](const RequestSpec&) {
    FakeScript script;
    script.deltas = {"text"};
    script.interval = milliseconds(1);
    script.endless = asked++ != 1;
    if (!script.endless) script.completion.status = absl::UnavailableError("rank 1 failed");
    return script;
  });
  const json error = Refused(kChat, ChatBody({{"n", 3}}), 503);
  EXPECT_EQ(error["code"], "rank_failed");
  EXPECT_TRUE(server_->engine().WaitUntilIdle(milliseconds(5000)));
  // And a client that goes away ends all.
  asked = 2;
  {
    HttpPeer peer(server_->http_port());
    peer.Send(PostJson(kChat, ChatBody({{"n", 3}, {"stream", true}}).dump()));
    ASSERT_TRUE(peer.ReadUntil("text"));
  }
  EXPECT_TRUE(server_->engine().WaitUntilIdle(milliseconds(5000)));
}

TEST_F(ApiTest, ContinuesTheLastMessage) {
  Start();
  const json messages = {{{"role", "user"}, {"content", "Hi"}},
                         {{"role", "assistant"}, {"content", "It is"}}};
  const HttpReceived answer =
      Post(kChat, ChatBody({{"messages", messages}, {"continue_final_message", true}}));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const std::vector<int32_t> prompt = Submitted().prompt;
  EXPECT_EQ(std::string(prompt.begin(), prompt.end()), "user:Hi|assistant:It is");
}

TEST_F(ApiTest, TokenizesAndDetokenizes) {
  Start();
  const json text = json::parse(Post("/tokenize", {{"model", "fake"}, {"prompt", "Hi"}}).body);
  EXPECT_EQ(text, json({{"count", 3},
                        {"max_model_len", server_->engine().model().max_context},
                        {"tokens", {256, 'H', 'i'}},
                        {"token_strs", nullptr}}));
  const json plain = {{"prompt", ""}, {"add_special_tokens", false}};
  EXPECT_EQ(json::parse(Post("/tokenize", plain).body)["tokens"], json::array());
  // The ids of a chat are those that it is answered with.
  json chat = ChatBody();
  ASSERT_EQ(Post(kChat, chat).status, 200);
  chat.erase("max_tokens");
  EXPECT_EQ(json::parse(Post("/tokenize", chat).body)["tokens"], json(Submitted().prompt));

  const json ids = {{"tokens", {'H', 256, 'i'}}};
  EXPECT_EQ(Post("/detokenize", ids).body, "{\"prompt\":\"H<s>i\"}");
  EXPECT_EQ(Refused("/detokenize", {{"tokens", {300}}}, 400)["param"], "tokens");
  EXPECT_EQ(Refused("/tokenize", json::object(), 400)["param"], "prompt");
  json both = chat;
  both["prompt"] = "Hi";
  EXPECT_EQ(Refused("/tokenize", both, 400)["param"], "prompt");
  EXPECT_EQ(Refused("/tokenize", {{"prompt", "Hi"}, {"model", "other"}}, 404)["code"],
            "model_not_found");
  EXPECT_EQ(Refused("/tokenize", {{"prompt", "Hi"}, {"return_token_strs", true}}, 400)["param"],
            "return_token_strs");
}

// Work that had not begun when its client went away is never done.
TEST_F(ApiTest, TokenizesNothingForClientsThatWentAway) {
  Start({"--metrics", "127.0.0.1:0"});
  server_->engine().set_tokenize_delay(milliseconds(100));
  constexpr int kCalls = 40;
  for (int i = 0; i < kCalls; ++i) {
    HttpPeer(server_->http_port()).Send(PostJson("/tokenize", R"({"prompt": "Hi"})"));
  }
  std::map<std::string, double> samples;
  const auto ended = [&](const std::string& code) {
    return samples["annulus_http_requests_total{route=\"/tokenize\",code=\"" + code + "\"}"];
  };
  EXPECT_TRUE(Eventually([&] {
    samples = ScrapeSamples(server_->metrics_address());
    return ended("OK") + ended("CANCELLED") == kCalls;
  }));
  EXPECT_GT(ended("CANCELLED"), 0);
}

TEST_F(ApiTest, ConstrainsTheAnswer) {
  Start();
  const json schema = {{"type", "object"}, {"properties", {{"a", {{"type", "integer"}}}}}};
  const std::vector<json> forms = {
      {{"response_format", {{"type", "json_object"}}}},
      {{"response_format",
        {{"type", "json_schema"},
         {"json_schema", {{"name", "n"}, {"strict", true}, {"schema", schema}}}}}},
      {{"structured_outputs", {{"json", schema}}}},
      {{"structured_outputs", {{"json", schema.dump()}}}},
      {{"structured_outputs", {{"regex", "a+"}}}},
      {{"structured_outputs", {{"choice", {"yes", "no"}}}}},
  };
  for (const json& form : forms) {
    for (const bool chat : {true, false}) {
      const HttpReceived answer =
          Post(chat ? kChat : kText, chat ? ChatBody(form) : TextBody(form));
      ASSERT_EQ(answer.status, 200) << form << answer.body;
      EXPECT_NE(Submitted().output.machine, nullptr) << form;
    }
  }
  ASSERT_EQ(Post(kChat, ChatBody({{"response_format", {{"type", "text"}}}})).status, 200);
  EXPECT_EQ(Submitted().output.machine, nullptr);
}

TEST_F(ApiTest, AnswersWithReasoningAndCalls) {
  Start();
  server_->engine().set_scripter([](const RequestSpec&) { return PartedAnswer(); });
  const json tools = {{{"type", "function"}, {"function", {{"name", "now"}}}}};
  const json body = json::parse(Post(kChat, ChatBody({{"tools", tools}})).body);
  const json& choice = body["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "I look.");
  EXPECT_EQ(choice["message"]["reasoning_content"], "Hm, \"so\".");
  const json call = {{"id", "abc123xyz"},
                     {"type", "function"},
                     {"function", {{"name", "search"}, {"arguments", "{\"q\": \"x\"}"}}}};
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 2);
  EXPECT_EQ(choice["message"]["tool_calls"][0], call);
  EXPECT_EQ(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 3);
}

TEST_F(ApiTest, StreamsReasoningAndCalls) {
  Start();
  server_->engine().set_scripter([](const RequestSpec&) { return PartedAnswer(); });
  const HttpReceived answer = Post(kChat, ChatBody({{"stream", true}}));
  std::string reasoning, content, end;
  std::vector<std::string> names(2), arguments(2), ids(2);
  for (const std::string& event : EventsOf(answer.body)) {
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    const json& delta = choice["delta"];
    reasoning += delta.value("reasoning_content", "");
    content += delta.value("content", "");
    if (choice["finish_reason"].is_string()) end = choice["finish_reason"];
    if (!delta.contains("tool_calls")) continue;
    for (const json& call : delta["tool_calls"]) {
      const auto index = call["index"].get<size_t>();
      ids[index] += call.value("id", "");
      names[index] += call["function"].value("name", "");
      arguments[index] += call["function"].value("arguments", "");
    }
  }
  EXPECT_EQ(reasoning, "Hm, \"so\".");
  EXPECT_EQ(content, "I look.");
  EXPECT_EQ(end, "tool_calls");
  EXPECT_THAT(ids, ElementsAre("abc123xyz", "def456uvw"));
  EXPECT_THAT(names, ElementsAre("search", "now"));
  EXPECT_THAT(arguments, ElementsAre("{\"q\": \"x\"}", "{}"));
}

TEST_F(ApiTest, TakesToolsAndWhatAnswersHad) {
  Start();
  const json tools = {{{"type", "function"}, {"function", {{"name", "now"}, {"strict", false}}}}};
  const json calls = {
      {{"id", "a"}, {"type", "function"}, {"function", {{"name", "now"}, {"arguments", "{}"}}}}};
  const json messages = {{{"role", "user"}, {"content", "Hi"}},
                         {{"role", "assistant"},
                          {"content", nullptr},
                          {"reasoning_content", "Hm."},
                          {"tool_calls", calls}},
                         {{"role", "tool"}, {"tool_call_id", "a"}, {"content", "12:00"}}};
  const HttpReceived answer = Post(kChat, ChatBody({{"tools", tools},
                                                    {"tool_choice", "auto"},
                                                    {"parallel_tool_calls", false},
                                                    {"messages", messages}}));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(Submitted().reading.one_call);
  EXPECT_EQ(server_->engine().with_tools().messages[1].reasoning, "Hm.");
}

TEST_F(ApiTest, TakesWhatVllmSaysOfReasoning) {
  Start();
  const json tools = {{{"type", "function"}, {"function", {{"name", "now"}}}}};
  const json messages = {{{"role", "user"}, {"content", "Hi"}},
                         {{"role", "assistant"}, {"content", "Yes"}, {"reasoning", "Hm."}},
                         {{"role", "user"}, {"content", "And?"}}};
  const auto options = [&](json more) {
    more.update({{"tools", tools}, {"messages", messages}});
    const HttpReceived answer = Post(kChat, ChatBody(more));
    EXPECT_EQ(answer.status, 200) << answer.body;
    const ChatRequest chat = server_->engine().with_tools();
    EXPECT_EQ(chat.messages[1].reasoning, "Hm.");
    return chat.template_options.value_or("none");
  };
  EXPECT_EQ(options({{"reasoning_effort", nullptr}}), "none");
  EXPECT_EQ(options({{"reasoning_effort", "low"}}), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(options({{"reasoning_effort", "low"}, {"chat_template_kwargs", json::object()}}),
            R"({"reasoning_effort":"low"})");
  EXPECT_EQ(options({{"chat_template_kwargs", {{"a", 1}}}, {"reasoning_effort", "\""}}),
            R"({"reasoning_effort":"\"","a":1})");
}

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
