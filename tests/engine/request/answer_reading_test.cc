// From a conversation with tools to the deltas of its answer, without a model.

#include "engine/prompt/answer_reading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/prompt/call_arguments.h"
#include "engine/request/request.h"
#include "engine/text/answer/answer_format.h"
#include "tests/engine/text/small_tokenizers.h"
#include "tests/support/manual_clock.h"
#include "tests/support/processor_time.h"

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
    Note("reasoning", delta.reasoning);
    Note("text", delta.text);
    for (const ToolCallDelta& call : delta.calls) {
      Note(absl::StrCat("call ", call.index), call.arguments);
    }
    text += delta.text;
    reasoning += delta.reasoning;
    for (ToolCallDelta& call : delta.calls) calls.push_back(std::move(call));
  }
  void OnDone(Completion done) override { completion = std::move(done); }
  bool HasRoom() const override { return true; }

  std::string text;
  std::string reasoning;
  std::vector<ToolCallDelta> calls;
  std::vector<std::pair<std::string, std::string>> parts;  // in the answer's order
  Completion completion;

 private:
  void Note(const std::string& what, const std::string& bytes) {
    if (bytes.empty()) return;
    if (parts.empty() || parts.back().first != what) parts.emplace_back(what, "");
    parts.back().second += bytes;
  }
};

// Allows so much.
class Bounded final : public MemoryGrant {
 public:
  explicit Bounded(size_t most) : most_(most) {}
  absl::Status Allow(size_t bytes) override {
    asked.push_back(bytes);
    return bytes <= most_ ? absl::OkStatus() : absl::ResourceExhaustedError("no more");
  }
  std::vector<size_t> asked;

 private:
  const size_t most_;
};

class AnswerReadingTest : public ::testing::Test {
 protected:
  AnswerReadingTest() {
    json file = testing::ByteLevelTokenizer();
    for (const char* text : {"<think>", "</think>", "<tool_call>", "</tool_call>", "<|start|>",
                             "<|channel|>", "<|message|>", "\"s"}) {
      json token = file["added_tokens"].back();
      token["id"] = token["id"].get<int>() + 1;
      token["content"] = text;
      file["added_tokens"].push_back(token);
    }
    tokenizer_ = testing::Load(file);
    UseFamily("hermes");
  }

  void UseFamily(const std::string& name) {
    model_.format = AnswerFormat::Make(name, [this](absl::string_view mark) {
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

  // Answers with the ids of `text`, so many in a step, then ends.
  void Answer(const AnswerReading& reading, const std::string& text,
              std::vector<std::string> stops = {}, size_t step = 1) {
    RequestSpec spec;
    spec.prompt = {1};
    spec.sampling.max_tokens = 1'000'000;
    spec.sampling.stop = std::move(stops);
    spec.reading = reading;
    Request request(1, spec, sink_, *tokenizer_, clock_);
    const std::vector<int32_t> ids = tokenizer_->Encode(text, false).value();
    std::optional<FinishReason> finished;
    for (taken_ = 0; taken_ < ids.size() && !finished.has_value();) {
      std::vector<SampledToken> tokens(std::min(step, ids.size() - taken_));
      for (size_t i = 0; i < tokens.size(); ++i) tokens[i].token = ids[taken_ + i];
      const Request::TokenOutcome outcome = request.AddTokens(tokens);
      finished = outcome.finished;
      taken_ += static_cast<size_t>(outcome.taken);
      if (!outcome.status.ok()) return request.Finish(FinishReason::kError, outcome.status);
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

// Guesses give several tokens in a step, and one token may end a call and begin a text.
TEST_F(AnswerReadingTest, DeltasKeepTheOrderOfTheAnswer) {
  struct Case {
    std::string family;
    std::string answer;
    std::vector<std::pair<std::string, std::string>> parts;
  };
  const std::vector<Case> cases = {
      {"hermes",
       R"(<think>A</think>B<tool_call>{"name": "now", "arguments": {"a": 1}}</tool_call>C)"
       R"(<tool_call>{"name": "now", "arguments": {}}</tool_call>D)",
       {{"reasoning", "A"},
        {"text", "B"},
        {"call 0", R"({"a": 1})"},
        {"text", "C"},
        {"call 1", "{}"},
        {"text", "D"}}},
      {"harmony",
       "<|channel|>final<|message|>A<|end|><|start|>assistant<|channel|>analysis<|message|>B<|end|>"
       "<|start|>assistant<|channel|>final<|message|>C",
       {{"text", "A"}, {"reasoning", "B"}, {"text", "C"}}},
      {"llama3",
       R"({"name": "now", "parameters": {"a": "b"so)",
       {{"call 0", R"({"a": "b")"}, {"text", "so"}}}};
  for (const Case& each : cases) {
    UseFamily(each.family);
    const AnswerReading reading = Render("Hi", true).reading;
    for (const size_t step : {1, 2, 3, 16, 1000}) {
      SCOPED_TRACE(absl::StrCat(each.family, ", ", step, " tokens in a step"));
      sink_ = std::make_shared<Sink>();
      Answer(reading, each.answer, {}, step);
      EXPECT_EQ(sink_->parts, each.parts);
    }
  }
}

// What is held back for a stop text comes before a call or reasoning that follows it, and no stop
// is found across them.
TEST_F(AnswerReadingTest, StopsDoNotReachOverCallsAndReasoning) {
  const std::vector<std::pair<std::string, std::string>> call = {
      {"text", "B"}, {"call 0", "{}"}, {"text", "C"}};
  const std::vector<std::pair<std::string, std::string>> thought = {
      {"text", "B"}, {"reasoning", "A"}, {"text", "C"}};
  for (const size_t step : {1, 3, 1000}) {
    SCOPED_TRACE(absl::StrCat(step, " tokens in a step"));
    sink_ = std::make_shared<Sink>();
    UseFamily("hermes");
    Answer(Render("Hi", true).reading,
           R"(B<tool_call>{"name": "now", "arguments": {}}</tool_call>C)", {"BC", "Cx"}, step);
    EXPECT_EQ(sink_->parts, call);
    EXPECT_EQ(sink_->completion.matched_stop, "");
    sink_ = std::make_shared<Sink>();
    UseFamily("harmony");
    Answer(Render("Hi", true).reading,
           "<|channel|>final<|message|>B<|end|><|start|>assistant<|channel|>analysis<|message|>A"
           "<|end|><|start|>assistant<|channel|>final<|message|>C",
           {"BC"}, step);
    EXPECT_EQ(sink_->parts, thought);
  }
}

TEST_F(AnswerReadingTest, ThePromptOpensReasoning) {
  const RenderedChat chat = Render("<|begin|>Hi<think>\n", false);
  EXPECT_TRUE(chat.reading.in_reasoning);
  Answer(chat.reading, "Hm.</think>Hello");
  EXPECT_EQ(sink_->reasoning, "Hm.");
  EXPECT_EQ(sink_->text, "Hello");
}

// The template does not write the mark where the answer goes on: the message holds it.
TEST_F(AnswerReadingTest, ContinuesAMessageInsideItsThinking) {
  const auto in_reasoning = [this](const std::string& content) {
    ChatRequest request;
    request.messages.emplace_back();
    request.messages.back().content = content;
    request.continue_final_message = true;
    request.add_generation_prompt = false;
    RenderedChat chat;
    chat.text = "<|begin|>Hi" + content;
    EXPECT_TRUE(SetReading(model_, request, chat, MemoryGrant::Unlimited()).ok());
    return chat.reading.in_reasoning;
  };
  EXPECT_TRUE(in_reasoning("<think>\nHm, let me"));
  EXPECT_TRUE(in_reasoning("<think>a</think>b<think>c"));
  EXPECT_FALSE(in_reasoning("<think>Hm.</think>Hel"));
  EXPECT_FALSE(in_reasoning("Hello"));
}

TEST_F(AnswerReadingTest, AnswersThinkWhereThePromptHasNotThought) {
  EXPECT_TRUE(Render("<|begin|>Hi", false).reading.may_think);
  EXPECT_FALSE(Render("<|begin|>Hi<think>\n\n</think>\n\n", false).reading.may_think);
  model_.reasoning = false;
  EXPECT_FALSE(Render("<|begin|>Hi", false).reading.may_think);
}

TEST_F(AnswerReadingTest, KnowsStrictToolsEvenOfUnknownFamilies) {
  ChatRequest request;
  const auto strict = [&] {
    RenderedChat chat;
    EXPECT_TRUE(SetReading(model_, request, chat, MemoryGrant::Unlimited()).ok());
    return chat.reading.strict_tools;
  };
  for (const bool known : {true, false}) {
    if (!known) model_.format = nullptr;
    request.tools = R"([{"function": {"name": "f"}}, {"function": {"name": "g", "strict": true}}])";
    EXPECT_TRUE(strict());
    request.tools = R"([{"function": {"name": "f", "strict": false}}])";
    EXPECT_FALSE(strict());
  }
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

TEST_F(AnswerReadingTest, CallsThatBreakOffAreBroken) {
  const auto broken = [this](const std::string& answer) {
    sink_ = std::make_shared<Sink>();
    Answer(Render("Hi", true).reading, answer);
    std::vector<bool> all;
    for (const ToolCall& call : sink_->completion.calls) all.push_back(call.broken);
    return all;
  };
  const std::string begin = R"(<tool_call>{"name": "now", "arguments": {"a": )";
  // Some parsers of JSON take neither of the values.
  const std::string whole = begin + R"(["\ud800", 1e999]}}</tool_call>)";
  EXPECT_THAT(broken(whole), ElementsAre(false));
  EXPECT_THAT(broken(whole + begin + "so"), ElementsAre(false, true));
  EXPECT_THAT(broken(begin + "1"), ElementsAre(true)) << "the answer ends";
  EXPECT_THAT(broken(begin + "1 what" + whole), ElementsAre(true, false));
}

// Whether it is kept as arguments or, as the name comes last, held back.
TEST_F(AnswerReadingTest, WhatIsKeptOfAnAnswerIsAskedFor) {
  for (const std::string begin : {R"(<tool_call>{"name": "now", "arguments": {"a": ")",
                                  R"(<tool_call>{"arguments": {"a": ")"}) {
    const auto memory = std::make_shared<Bounded>(size_t{256} << 10);
    AnswerReading reading = Render("Hi", true).reading;
    reading.memory = memory;
    Answer(reading, begin + std::string(15'000, 'x'));
    EXPECT_THAT(memory->asked, IsEmpty()) << "a short one is counted when it is submitted";
    EXPECT_TRUE(sink_->completion.status.ok());
    const std::string answer = begin + std::string(400'000, 'x');
    Answer(reading, answer);
    EXPECT_EQ(sink_->completion.status.message(), "no more");
    EXPECT_LT(taken_, tokenizer_->Encode(answer, false)->size());
    ASSERT_FALSE(memory->asked.empty());
    EXPECT_TRUE(std::is_sorted(memory->asked.begin(), memory->asked.end()));
    EXPECT_LT(memory->asked.size(), 10u) << "in steps";
  }
  // Text is not kept.
  const auto memory = std::make_shared<Bounded>(0);
  AnswerReading reading = Render("Hi", true).reading;
  reading.memory = memory;
  Answer(reading, "<think>" + std::string(100'000, 'x') + "</think>" + std::string(100'000, 'x'));
  EXPECT_THAT(memory->asked, IsEmpty());
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
    return AdaptCalls(model, request, CancelFlag::Never(), MemoryGrant::Unlimited())
        .value()
        .messages[0];
  };
  const ChatMessage object = adapted(model_);
  EXPECT_EQ(object.tool_calls,
            R"([{"id": "a", "function": {"name": "f", "arguments": {"b": 1, "a": 2}}}])");
  EXPECT_EQ(object.content, "");
  AnswerReading deepseek;
  deepseek.format = AnswerFormat::Make("deepseek", [](absl::string_view) { return false; });
  request.messages[0] = object;
  const ChatMessage text = adapted(deepseek);
  EXPECT_EQ(text.tool_calls,
            R"([{"id": "a", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2}"}}])");
  EXPECT_FALSE(text.content.has_value());
  request.messages[0].tool_calls = "[1, {\"function\": 2}]";
  EXPECT_EQ(adapted(model_).tool_calls, request.messages[0].tool_calls);
}

// Calls of a conversation whose template wants objects (`as_text`: texts).
class CallArgumentsTest : public ::testing::TestWithParam<bool> {
 protected:
  static std::string Call(const std::string& arguments) {
    return R"([{"function": {"name": "f", "arguments": )" + arguments + "}}]";
  }
  static std::string Quoted(const std::string& text) { return json(text).dump(); }
  std::string Adapted(const std::string& calls, const CancelFlag& cancel = CancelFlag::Never()) {
    const auto rewritten = WithArguments(calls, GetParam(), cancel);
    return rewritten.ok() ? *rewritten : rewritten.status().ToString();
  }
};

INSTANTIATE_TEST_SUITE_P(AsText, CallArgumentsTest, ::testing::Bool());

TEST_P(CallArgumentsTest, DeepValuesNeedNoStack) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  const std::string object = R"({"a": )" + deep + "}";
  const std::string as_object = Call(object);
  const std::string as_text = Call(Quoted(object));
  EXPECT_TRUE(Adapted(as_object) == (GetParam() ? as_text : as_object));
  EXPECT_TRUE(Adapted(as_text) == (GetParam() ? as_text : as_object));
  for (const std::string& other : {deep, std::string(100'000, '['), "[" + as_object + "]"}) {
    EXPECT_TRUE(Adapted(other) == other);
  }
}

TEST_P(CallArgumentsTest, ManyMembersTakeLinearTime) {
  const auto seconds = [this](int members) {
    std::string object = "{";
    for (int i = 0; i < members; ++i) object += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
    object += "}";
    const std::string calls = Call(GetParam() ? object : Quoted(object));
    const double start = testing::ThreadSeconds();
    EXPECT_NE(Adapted(calls), calls);
    return testing::ThreadSeconds() - start;
  };
  double least = 1e9;
  for (int round = 0; round < 7 && least > 3; ++round) {
    const double once = seconds(65'000);
    least = std::min(least, seconds(130'000) / once);
  }
  EXPECT_LE(least, 3);  // quadratic time: 4
}

TEST_P(CallArgumentsTest, KeepsWhatATreeWouldLose) {
  const std::string object =
      R"({"a": 123456789012345678901234567890, "b": 1.50, "b": "\u00e9\"\\"})";
  const std::string two = R"([{"function": {"arguments": )" + object + R"(, "arguments": )" +
                          object + R"(}}, {"function": [{"arguments": {}}]}, {"arguments": {}}])";
  const std::string two_texts = R"([{"function": {"arguments": )" + Quoted(object) +
                                R"(, "arguments": )" + Quoted(object) +
                                R"(}}, {"function": [{"arguments": {}}]}, {"arguments": {}}])";
  EXPECT_EQ(Adapted(two), GetParam() ? two_texts : two);
  EXPECT_EQ(Adapted(two_texts), GetParam() ? two_texts : two);
}

// Nothing but an object comes into the calls, or they would end early or say something else.
TEST_P(CallArgumentsTest, TextsThatAreNoObjectStay) {
  for (const char* text : {"\"\"", "\"[1]\"", "\"{\"", "\"{}}\"", "\"{} x\"", "\"{}\\u0000\"",
                           "\"\\ufeff{}\"", "[{}]", "1", "null", "\"{\\\"a\\\": 1e999}\""}) {
    EXPECT_EQ(Adapted(Call(text)), Call(text));
  }
}

TEST_P(CallArgumentsTest, EndsWhenItIsCancelled) {
  CancelFlag cancel;
  cancel.Cancel();
  EXPECT_THAT(Adapted(Call("{}"), cancel), ::testing::HasSubstr("CANCELLED"));
}

}  // namespace
}  // namespace annulus
