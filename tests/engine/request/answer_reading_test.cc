// From a conversation with tools to the deltas of its answer, without a model.

#include "engine/prompt/answer_reading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/request/request.h"
#include "engine/text/answer/answer_format.h"
#include "tests/engine/text/small_tokenizers.h"
#include "tests/support/manual_clock.h"

namespace annulus {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kTools[] = R"([{"type": "function", "function": {"name": "now"}}])";

// Keeps what a request tells.
class Sink final : public TokenSink {
 public:
  void OnQueued(int) override {}
  void OnProgress(const PromptProgress&) override {}
  void OnDelta(Delta delta) override {
    text += delta.text;
    reasoning += delta.reasoning;
    for (ToolCallDelta& call : delta.calls) calls.push_back(std::move(call));
  }
  void OnDone(Completion done) override { completion = std::move(done); }
  bool HasRoom() const override { return true; }

  std::string text;
  std::string reasoning;
  std::vector<ToolCallDelta> calls;
  Completion completion;
};

class AnswerReadingTest : public ::testing::Test {
 protected:
  AnswerReadingTest() {
    json file = testing::ByteLevelTokenizer();
    for (const char* mark : {"<think>", "</think>", "<tool_call>", "</tool_call>"}) {
      json token = file["added_tokens"].back();
      token["id"] = token["id"].get<int>() + 1;
      token["content"] = mark;
      file["added_tokens"].push_back(token);
    }
    tokenizer_ = testing::Load(file);
    model_.format = AnswerFormat::Make("hermes", [this](absl::string_view mark) {
      return tokenizer_->IsControl(tokenizer_->Encode(mark, false)->front());
    });
  }

  RenderedChat Render(const std::string& text, bool with_tools) {
    ChatRequest request;
    if (with_tools) request.tools = kTools;
    RenderedChat chat;
    chat.text = text;
    EXPECT_TRUE(SetReading(model_, request, chat, MemoryGrant::Unlimited()).ok());
    return chat;
  }

  // Answers with the ids of `text`, then ends.
  void Answer(const AnswerReading& reading, const std::string& text,
              std::vector<std::string> stops = {}) {
    RequestSpec spec;
    spec.prompt = {1};
    spec.sampling.max_tokens = 1000;
    spec.sampling.stop = std::move(stops);
    spec.reading = reading;
    Request request(1, spec, sink_, *tokenizer_, clock_);
    const std::vector<int32_t> ids = tokenizer_->Encode(text, false).value();
    std::optional<FinishReason> finished;
    for (size_t i = 0; i < ids.size() && !finished.has_value(); ++i) {
      SampledToken token;
      token.token = ids[i];
      finished = request.AddTokens({&token, 1}).finished;
      taken_ = i + 1;
    }
    request.Finish(finished.value_or(FinishReason::kStop), absl::OkStatus());
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  testing::ManualClock clock_;
  AnswerReading model_;
  std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
  size_t taken_ = 0;
};

TEST_F(AnswerReadingTest, PartsAnAnswer) {
  const RenderedChat chat = Render("<|begin|>Hi", true);
  Answer(chat.reading,
         "<think>\nHm.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"now\", \"arguments\": "
         "{\"a\": \"é\"}}\n</tool_call>");
  EXPECT_EQ(sink_->reasoning, "Hm.");
  EXPECT_EQ(sink_->text, "I look.");
  ASSERT_FALSE(sink_->calls.empty());
  EXPECT_EQ(sink_->calls.front().name, "now");
  std::string arguments;
  for (const ToolCallDelta& call : sink_->calls) arguments += call.arguments;
  EXPECT_EQ(arguments, "{\"a\": \"é\"}");
  ASSERT_EQ(sink_->completion.calls.size(), 1);
  EXPECT_EQ(sink_->completion.calls[0].arguments, arguments);
  EXPECT_EQ(sink_->completion.calls[0].id, sink_->calls.front().id);
  EXPECT_THAT(sink_->completion.broken_calls, IsEmpty());
  const auto thought = tokenizer_->Encode("<think>\nHm.\n</think>", false);
  EXPECT_EQ(sink_->completion.usage.reasoning_tokens, static_cast<int64_t>(thought->size()));
}

TEST_F(AnswerReadingTest, ThePromptOpensReasoning) {
  const RenderedChat chat = Render("<|begin|>Hi<think>\n", false);
  EXPECT_TRUE(chat.reading.in_reasoning);
  Answer(chat.reading, "Hm.</think>Hello");
  EXPECT_EQ(sink_->reasoning, "Hm.");
  EXPECT_EQ(sink_->text, "Hello");
}

TEST_F(AnswerReadingTest, WithoutToolsNothingIsACall) {
  const std::string call = "<tool_call>{\"name\": \"now\"}</tool_call>";
  Answer(Render("Hi", false).reading, call);
  EXPECT_EQ(sink_->text, call);
  EXPECT_THAT(sink_->completion.calls, IsEmpty());
}

TEST_F(AnswerReadingTest, OneCallEndsTheAnswer) {
  AnswerReading reading = Render("Hi", true).reading;
  reading.one_call = true;
  const std::string call = "<tool_call>{\"name\": \"now\", \"arguments\": {}}";
  Answer(reading, call + "</tool_call>" + call);
  EXPECT_EQ(sink_->completion.calls.size(), 1);
  EXPECT_EQ(taken_, tokenizer_->Encode(call, false)->size());
}

// A mask, or a stop text, that binds the thinking ruins it.
TEST_F(AnswerReadingTest, StopTextsDoNotBindTheThinking) {
  Answer(Render("Hi", true).reading, "<think>STOP</think>Go STOP on", {"STOP"});
  EXPECT_EQ(sink_->reasoning, "STOP");
  EXPECT_EQ(sink_->text, "Go ");
  EXPECT_EQ(sink_->completion.matched_stop, "STOP");
}

TEST_F(AnswerReadingTest, ABrokenCallIsTextWithAReason) {
  Answer(Render("Hi", true).reading, "<tool_call>now()</tool_call>");
  EXPECT_EQ(sink_->text, "<tool_call>now()</tool_call>");
  EXPECT_THAT(sink_->completion.broken_calls, ElementsAre("the call is not valid JSON"));
}

TEST_F(AnswerReadingTest, RefusesToolsWithoutNames) {
  ChatRequest request;
  request.tools = "[{}]";
  RenderedChat chat;
  const absl::Status status = SetReading(model_, request, chat, MemoryGrant::Unlimited());
  EXPECT_EQ(status.message(),
            "messages.tools: tool 0 of the list has no function.name; each needs one");
}

TEST_F(AnswerReadingTest, HistoryHasArgumentsAsTheTemplateWants) {
  ChatRequest request;
  ChatMessage message;
  message.role = "assistant";
  message.tool_calls =
      R"([{"id": "a", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2}"}}])";
  request.messages = {message};
  const auto adapted = [&](const AnswerReading& model) {
    return AdaptCalls(model, request, MemoryGrant::Unlimited()).value().messages[0];
  };
  const ChatMessage object = adapted(model_);
  EXPECT_EQ(object.tool_calls, R"([{"id":"a","function":{"name":"f","arguments":{"b":1,"a":2}}}])");
  EXPECT_EQ(object.content, "");
  AnswerReading deepseek;
  deepseek.format = AnswerFormat::Make("deepseek", [](absl::string_view) { return false; });
  request.messages[0] = object;
  const ChatMessage text = adapted(deepseek);
  EXPECT_EQ(text.tool_calls,
            R"([{"id":"a","function":{"name":"f","arguments":"{\"b\":1,\"a\":2}"}}])");
  EXPECT_FALSE(text.content.has_value());
  request.messages[0].tool_calls = "[1, {\"function\": 2}]";
  EXPECT_EQ(adapted(model_).tool_calls, "[1,{\"function\":2}]");
}

}  // namespace
}  // namespace annulus
