// Answers of the APIs over HTTP: texts, chats, choices, fields, reasoning and calls.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/server/http/api_fixture.h"
#include "tests/server/http/http_client.h"
#include "tests/server/http/parted_answer.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

}  // namespace
}  // namespace annulus::server
