// OpenAI's Responses over HTTP, without state: answers, every event of a stream, what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/errors.h"
#include "tests/server/http/api_fixture.h"
#include "tests/server/http/parted_answer.h"

namespace annulus::server {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kResponses[] = "/v1/responses";

json ResponsesBody(const json& more = json::object()) {
  json body = {{"model", "fake"}, {"input", "Hi"}, {"max_output_tokens", 5}};
  body.update(more);
  return body;
}

class ResponsesTest : public ApiTest {};

TEST_F(ResponsesTest, AnswersWhole) {
  Start();
  const HttpReceived answer =
      Post(kResponses, ResponsesBody({{"temperature", 0.5}, {"stop", "END"}}));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json body = json::parse(answer.body);
  EXPECT_THAT(body["id"].get<std::string>(), StartsWith("resp_r-"));
  EXPECT_EQ(body["object"], "response");
  EXPECT_EQ(body["status"], "completed");
  EXPECT_TRUE(body["error"].is_null());
  EXPECT_EQ(body["output"].size(), 1u);
  const json& message = body["output"][0];
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["content"][0]["type"], "output_text");
  EXPECT_EQ(message["content"][0]["text"], "Hello");
  EXPECT_EQ(body["temperature"], 0.5);
  EXPECT_EQ(body["max_output_tokens"], 5);
  EXPECT_THAT(Submitted().sampling.stop, ElementsAre("END"));
  EXPECT_EQ(body["usage"]["input_tokens"], Submitted().prompt.size());
  EXPECT_EQ(body["usage"]["output_tokens"], 2);
  EXPECT_EQ(body["usage"]["input_tokens_details"]["cached_tokens"], 0);
  server_->engine().set_scripter([](const RequestSpec&) {
    FakeScript script;
    script.deltas = {"cut"};
    script.completion.finish_reason = FinishReason::kLength;
    return script;
  });
  const json cut = json::parse(Post(kResponses, ResponsesBody()).body);
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
}

TEST_F(ResponsesTest, StreamsEveryEvent) {
  Start();
  server_->engine().set_scripter([](const RequestSpec& spec) {
    FakeScript script;
    script.deltas = {"Hel", "lo"};
    if (spec.sampling.seed == 9) script.completion.status = absl::UnavailableError("rank 1 failed");
    script.interval = std::chrono::milliseconds(20);  // a failure at once would be no stream
    return script;
  });
  const HttpReceived answer =
      Post(kResponses, ResponsesBody({{"stream", true}, {"stop", nullptr}}));
  ASSERT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.complete);
  std::vector<std::string> names;
  std::string text;
  int64_t sequence = 0;
  for (const absl::string_view event : absl::StrSplit(answer.body, "\n\n", absl::SkipEmpty())) {
    if (event.front() == ':') continue;  // a comment, for those who wait long
    const std::pair<std::string, std::string> lines =
        absl::StrSplit(event, absl::MaxSplits('\n', 1));
    const json data = json::parse(lines.second.substr(6));
    names.push_back(lines.first.substr(7));
    EXPECT_EQ(data["type"], names.back());
    EXPECT_EQ(data["sequence_number"], sequence++);
    if (names.back() == "response.output_text.delta") text += data["delta"];
    if (names.back() == "response.output_text.done") {
      EXPECT_EQ(data["text"], "Hello");
    }
    if (names.back() == "response.output_item.done") {
      EXPECT_EQ(data["item"]["content"][0]["text"], "Hello");
    }
    if (names.back() == "response.created") {
      EXPECT_EQ(data["response"]["status"], "in_progress");
    }
    if (names.back() == "response.completed") {
      EXPECT_EQ(data["response"]["output"][0]["content"][0]["text"], "Hello");
      EXPECT_EQ(data["response"]["usage"]["output_tokens"], 2);
    }
  }
  EXPECT_EQ(text, "Hello");
  EXPECT_THAT(names, ElementsAre("response.created", "response.in_progress",
                                 "response.output_item.added", "response.content_part.added",
                                 "response.output_text.delta", "response.output_text.delta",
                                 "response.output_text.done", "response.content_part.done",
                                 "response.output_item.done", "response.completed"));
  const std::string failed = Post(kResponses, ResponsesBody({{"stream", true}, {"seed", 9}})).body;
  const json error = json::parse(failed.substr(failed.rfind("data: ") + 6));
  EXPECT_EQ(error["type"], "error");
  EXPECT_EQ(error["code"], "rank_failed");
  EXPECT_EQ(error["error"]["code"], "rank_failed");
}

TEST_F(ResponsesTest, ReadsItemsAndFiles) {
  Start();
  server_->engine().set_frames_documents(true);
  const json body = {
      {"instructions", "s"},
      {"input",
       {{{"role", "user"},
         {"content",
          {{{"type", "input_file"}, {"filename", "one"}, {"file_data", "VGV4dA=="}},
           {{"text", "a"}, {"type", "input_text"}},
           {{"type", "input_text"}, {"text", "b"}}}}},
        {{"type", "reasoning"},
         {"id", "rs_1"},
         {"summary", json::array()},
         {"content", {{{"type", "reasoning_text"}, {"text", "hm"}}}},
         {"encrypted_content", "x"}},
        {{"type", "message"},
         {"id", "msg_1"},
         {"status", "completed"},
         {"role", "assistant"},
         {"content", {{{"type", "output_text"}, {"text", "c"}, {"annotations", json::array()}}}}},
        {{"role", "developer"}, {"content", "e"}},
        {{"role", "user"}, {"content", "d"}}}},
      {"include", {"reasoning.encrypted_content", "message.output_text.logprobs"}},
      {"top_logprobs", 1},
      {"stop", {"x", "y"}},
      {"reasoning", {{"effort", nullptr}, {"summary", "auto"}}},
      {"text", {{"format", {{"type", "text"}}}, {"verbosity", "medium"}}},
      {"tools",
       {{{"type", "web_search"}, {"filters", {{"deep", {1}}}}},
        {{"type", "web_search"}},
        {{"type", "file_search"}, {"vector_store_ids", {"x"}}}}},
      {"tool_choice", "auto"},
      {"parallel_tool_calls", false},
      {"store", false},
      {"metadata", {{"a", "b"}}},
      {"truncation", "disabled"},
      {"prompt_cache_key", "key"},
      {"previous_response_id", nullptr}};
  const HttpReceived answer = Post(kResponses, body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.head, HasSubstr("annulus-ignored-tools: web_search, file_search\r\n"));
  std::string prompt;
  for (const int32_t id : Submitted().prompt) {
    if (id < 256) prompt.push_back(static_cast<char>(id));
  }
  EXPECT_THAT(prompt, HasSubstr("system:s|user:"));
  EXPECT_THAT(prompt, HasSubstr("[one:Text]"));
  EXPECT_THAT(prompt, HasSubstr("a\nb|assistant:c|system:e|user:d|"));
  EXPECT_EQ(Submitted().sampling.logprobs, 1);
  EXPECT_THAT(Submitted().sampling.stop, ElementsAre("x", "y"));
  const json part = json::parse(answer.body)["output"][0]["content"][0];
  EXPECT_EQ(part["logprobs"][0]["token"], "token");
}

TEST_F(ResponsesTest, NamesWhatItRefuses) {
  Start();
  const auto items = [](const json& item) { return json({{"input", json::array({item})}}); };
  const auto part = [&](const json& part) {
    return items({{"role", "user"}, {"content", json::array({part})}});
  };
  struct Case {
    json more;
    std::string param;
    int status = 400;
  };
  const std::vector<Case> cases = {
      {{{"previous_response_id", "resp_1"}}, "previous_response_id"},
      {{{"conversation", "conv_1"}}, "conversation"},
      {{{"conversation", {{"id", "conv_1"}}}}, "conversation"},
      {{{"background", true}}, "background"},
      {{{"store", true}}, "store"},
      {{{"prompt", {{"id", "p"}}}}, "prompt"},
      {{{"truncation", "auto"}}, "truncation"},
      {{{"max_output_tokens", 0}}, "max_output_tokens"},
      {{{"temperature", 9}}, "temperature"},
      {{{"reasoning", {{"effort", ""}}}}, "reasoning.effort"},
      {{{"text", {{"format", {{"type", "json_schema"}}}}}}, "text.format.schema"},
      {{{"text", {{"format", {{"type", "xml"}}}}}}, "text.format.type"},
      {{{"text", {{"format", {{"type", "json_schema"}, {"schema", {{"not", json::object()}}}}}}}},
       "text.format.schema"},
      {{{"tools", {{{"type", "function"}}}}}, "tools[0].name"},
      {{{"tools", {{{"type", "custom"}, {"name", "f"}}}}}, "tools[0].type"},
      {{{"tools", {{{"type", "bad\r\nheader: x"}}}}}, "tools[0].type"},
      {{{"tool_choice", "required"}}, "tool_choice"},
      {{{"input", json::array()}}, "input"},
      {{{"input", nullptr}}, "input"},
      {{{"tool_choice", {{"type", "allowed_tools"}}}}, "tool_choice"},
      {items({{"type", "function_call"}}), "input[0].name"},
      {items({{"type", "function_call_output"}, {"output", {{{"type", "input_image"}}}}}),
       "input[0].output[0].type"},
      {items({{"type", "item_reference"}, {"id", "x"}}), "input[0].type"},
      {items({{"content", "x"}}), "input[0].role"},
      {part({{"type", "input_image"}}), "input[0].content[0].type"},
      {part({{"type", "input_file"}}), "input[0].content[0]"},
      {part({{"type", "input_file"}, {"file_data", "?"}}), "input[0].content[0].file_data"},
      {part({{"type", "input_file"}, {"file_id", "none"}}), "", 404},
      {part({{"type", "input_file"}, {"file_data", "data:application/pdf;base64,JVBERi0="}}),
       "input[0].content[0].file_data", 415},
  };
  for (const Case& wrong : cases) {
    SCOPED_TRACE(wrong.more.dump());
    const HttpReceived answer = Post(kResponses, ResponsesBody(wrong.more));
    EXPECT_EQ(answer.status, wrong.status) << answer.body;
    const json error = json::parse(answer.body)["error"];
    if (!wrong.param.empty()) {
      EXPECT_EQ(error["param"], wrong.param) << error;
    }
  }
  // What the engine refuses has this API's name.
  server_->engine().set_submit_error(FieldError("sampling.logprobs", "must be 0 to 20"));
  const json error = Refused(kResponses, ResponsesBody({{"top_logprobs", 50}}), 400);
  EXPECT_EQ(error["param"], "top_logprobs") << error;
  EXPECT_TRUE(server_->engine().submitted().empty());
}

TEST_F(ResponsesTest, ReadsCallsAndTheirOutputs) {
  Start();
  const json tools = {{{"type", "function"},
                       {"name", "search"},
                       {"parameters", {{"type", "object"}}},
                       {"description", "Finds."},
                       {"strict", nullptr}},
                      {{"type", "web_search"}}};
  const json input = {
      {{"role", "user"}, {"content", "Hi"}},
      {{"type", "reasoning"},
       {"summary", json::array()},
       {"content", {{{"type", "reasoning_text"}, {"text", "hm"}}}}},
      {{"type", "message"},
       {"role", "assistant"},
       {"content", {{{"type", "output_text"}, {"text", "I look."}}}}},
      {{"type", "function_call"},
       {"id", "fc_1"},
       {"call_id", "a1"},
       {"name", "search"},
       {"arguments", "{\"q\": \"x\"}"},
       {"status", "completed"}},
      {{"type", "function_call"}, {"call_id", "b2"}, {"name", "search"}, {"arguments", "{}"}},
      {{"type", "function_call_output"}, {"call_id", "a1"}, {"output", "found"}},
      {{"type", "function_call_output"},
       {"call_id", "b2"},
       {"output", {{{"type", "input_text"}, {"text", "more"}}}}},
      {{"type", "function_call"}, {"call_id", "c3"}, {"name", "search"}, {"arguments", "{}"}},
      {{"type", "function_call_output"}, {"call_id", "c3"}, {"output", ""}}};
  const HttpReceived answer = Post(kResponses, ResponsesBody({{"input", input},
                                                              {"tools", tools},
                                                              {"tool_choice", "auto"},
                                                              {"reasoning", {{"effort", "high"}}},
                                                              {"parallel_tool_calls", false}}));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.head, HasSubstr("annulus-ignored-tools: web_search\r\n"));
  EXPECT_EQ(json::parse(answer.body)["parallel_tool_calls"], false);
  EXPECT_TRUE(Submitted().reading.one_call);
  const ChatRequest chat = server_->engine().with_tools();
  EXPECT_EQ(chat.template_options, R"({"reasoning_effort":"high"})");
  EXPECT_EQ(json::parse(*chat.tools),
            json::parse(R"([{"type": "function", "function": {"name": "search",
              "description": "Finds.", "parameters": {"type": "object"}}}])"));
  std::vector<std::string> roles;
  for (const ChatMessage& message : chat.messages) roles.push_back(message.role);
  EXPECT_THAT(roles, ElementsAre("user", "assistant", "tool", "tool", "assistant", "tool"));
  EXPECT_EQ(chat.messages[1].reasoning, "hm");
  EXPECT_EQ(chat.messages[1].content, "I look.");
  const json calls = json::parse(*chat.messages[1].tool_calls);
  EXPECT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0], json::parse(R"({"id": "a1", "type": "function", "function":
              {"name": "search", "arguments": "{\"q\": \"x\"}"}})"));
  EXPECT_EQ(chat.messages[3].content, "more");
  EXPECT_EQ(chat.messages[3].tool_call_id, "b2");
  EXPECT_FALSE(chat.messages[4].content.has_value());
  const json form = {{"format",
                      {{"type", "json_schema"},
                       {"name", "n"},
                       {"strict", true},
                       {"schema", {{"type", "integer"}}}}}};
  for (const json& text : {form, json({{"format", {{"type", "json_object"}}}})}) {
    ASSERT_EQ(Post(kResponses, ResponsesBody({{"text", text}})).status, 200);
    EXPECT_NE(Submitted().output.machine, nullptr);
  }
}

TEST_F(ResponsesTest, AnswersWithReasoningAndCalls) {
  Start();
  server_->engine().set_scripter([](const RequestSpec&) { return PartedAnswer(); });
  const json whole = json::parse(Post(kResponses, ResponsesBody()).body);
  ASSERT_EQ(whole["output"].size(), 4u);
  EXPECT_EQ(whole["output"][0]["type"], "reasoning");
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], "Hm, \"so\".");
  EXPECT_EQ(whole["output"][1]["content"][0]["text"], "I look.");
  EXPECT_EQ(whole["output"][2]["type"], "function_call");
  EXPECT_EQ(whole["output"][2]["call_id"], "abc123xyz");
  EXPECT_EQ(whole["output"][2]["name"], "search");
  EXPECT_EQ(whole["output"][2]["arguments"], "{\"q\": \"x\"}");
  EXPECT_EQ(whole["output"][3]["arguments"], "{}");
  EXPECT_EQ(whole["usage"]["output_tokens_details"]["reasoning_tokens"], 3);

  const HttpReceived answer = Post(kResponses, ResponsesBody({{"stream", true}}));
  std::vector<std::string> deltas(4);
  json done = json::array();
  json last;
  for (const absl::string_view event : absl::StrSplit(answer.body, "\n\n", absl::SkipEmpty())) {
    last = json::parse(event.substr(event.find("data: ") + 6));
    const std::string type = last["type"];
    if (type == "response.output_item.added") {
      EXPECT_EQ(last["output_index"], done.size());
      EXPECT_EQ(last["item"]["status"], "in_progress");
    }
    if (absl::EndsWith(type, ".delta")) {
      deltas[last["output_index"].get<size_t>()] += last["delta"].get<std::string>();
    }
    if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(last["arguments"], deltas[last["output_index"].get<size_t>()]);
    }
    if (type == "response.output_item.done") done.push_back(last["item"]);
  }
  EXPECT_THAT(deltas, ElementsAre("Hm, \"so\".", "I look.", "{\"q\": \"x\"}", "{}"));
  EXPECT_EQ(last["type"], "response.completed");
  EXPECT_EQ(last["response"]["output"], done);
  for (size_t i = 0; i < done.size(); ++i) {
    done[i].erase("id");
    json same = whole["output"][i];
    same.erase("id");
    EXPECT_EQ(done[i], same);
  }
}

// Agents run calls that are completed: none that breaks off.
TEST_F(ResponsesTest, CallsThatBreakOffAreIncomplete) {
  Start();
  server_->engine().set_scripter([](const RequestSpec&) {
    Delta broken;
    broken.calls = {{0, "abc123xyz", "search", "{\"q\": \"x"}};
    Delta text;
    text.text = "Well.";
    Delta whole;
    whole.calls = {{1, "def456uvw", "now", "{}"}};
    FakeScript script;
    script.parts = {broken, text, whole};
    return script;
  });
  const json answer = json::parse(Post(kResponses, ResponsesBody()).body);
  EXPECT_EQ(answer["status"], "completed");
  std::vector<std::string> states;
  for (const json& item : answer["output"]) states.push_back(item["status"]);
  EXPECT_THAT(states, ElementsAre("incomplete", "completed", "completed"));
  const std::string streamed = Post(kResponses, ResponsesBody({{"stream", true}})).body;
  states.clear();
  for (const absl::string_view event : absl::StrSplit(streamed, "\n\n", absl::SkipEmpty())) {
    const json data = json::parse(event.substr(event.find("data: ") + 6));
    if (data["type"] == "response.output_item.done") states.push_back(data["item"]["status"]);
  }
  EXPECT_THAT(states, ElementsAre("incomplete", "completed", "completed"));
}

// One conversation is the same prompt over every door; RenderPrompt judges.
TEST_F(ResponsesTest, ConversationsAreTheSamePromptOverEveryDoor) {
  Start();
  server_->engine().set_frames_documents(true);
  ASSERT_TRUE(server_->Upload("doc", "Text", nullptr, 1000, "one").ok());
  v1::RenderPromptRequest request;
  v1::GenerationSpec& spec = *request.mutable_spec();
  spec.add_documents("doc");
  const std::vector<std::pair<std::string, std::string>> turns = {
      {"system", "Be brief."}, {"user", "a\nb"}, {"assistant", "c"}, {"user", "d"}};
  json messages = json::array();
  for (const auto& [role, content] : turns) {
    v1::Message& message = *spec.mutable_messages()->add_messages();
    message.set_role(role);
    message.set_content(content);
    messages.push_back({{"role", role}, {"content", content}});
  }
  v1::RenderPromptResponse rendered;
  grpc::ClientContext call;
  ASSERT_TRUE(server_->inference()->RenderPrompt(&call, request, &rendered).ok());
  const std::vector<int32_t> expected(rendered.token_ids().begin(), rendered.token_ids().end());

  const json rest = {messages[2], messages[3]};
  const auto with_first = [&](const json& parts) {
    json all = json::array({{{"role", "user"}, {"content", parts}}});
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  };
  const json lines = {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}};
  json chat_parts = lines, message_parts = lines;
  chat_parts.insert(chat_parts.begin(), json({{"type", "file"}, {"file", {{"file_id", "doc"}}}}));
  message_parts.insert(
      message_parts.begin(),
      json({{"type", "document"},
            {"title", "one"},
            {"source", {{"type", "text"}, {"media_type", "text/plain"}, {"data", "Text"}}}}));
  const json input_parts = {
      {{"type", "input_file"}, {"filename", "one"}, {"file_data", "VGV4dA=="}},
      {{"type", "input_text"}, {"text", "a"}},
      {{"type", "input_text"}, {"text", "b"}}};
  json chat = with_first(chat_parts);
  chat.insert(chat.begin(), json({{"role", "developer"}, {"content", "Be brief."}}));
  const std::vector<std::pair<std::string, json>> asked = {
      {"/v1/chat/completions", {{"messages", messages}, {"annulus", {{"documents", {"doc"}}}}}},
      {"/v1/chat/completions", {{"messages", chat}}},
      {"/v1/messages",
       {{"system", "Be brief."}, {"messages", with_first(message_parts)}, {"max_tokens", 9}}},
      {"/v1/responses", {{"instructions", "Be brief."}, {"input", with_first(input_parts)}}},
      {"/v1/responses", {{"input", messages}, {"annulus", {{"documents", {"doc"}}}}}},
  };
  for (const auto& [path, body] : asked) {
    SCOPED_TRACE(body.dump());
    const HttpReceived answer = Post(path, body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(Submitted().prompt, expected);
  }
}

}  // namespace
}  // namespace annulus::server
