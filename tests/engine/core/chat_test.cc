// From messages to token ids, without a model.
#include "engine/prompt/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;

constexpr char kTemplate[] =
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}{{ x }}{% if add_generation_prompt %}<a>{% endif "
    "%}";

class ChatTest : public ::testing::Test {
 protected:
  static ChatMessage Message(const std::string& role, const std::string& content) {
    ChatMessage message;
    message.role = role;
    message.content = content;
    return message;
  }

  void Load(const std::string& source) {
    directory_.Write("chat_template.jinja", source);
    directory_.Write("tokenizer_config.json", R"({"bos_token": "<s>"})");
    auto templates =
        TemplateDirectory::Load(directory_.path(), *ReadTokenizerConfig(directory_.path()));
    ASSERT_TRUE(templates.ok()) << templates.status();
    templates_ = *std::move(templates);
  }

  absl::StatusOr<RenderedChat> Render(const ChatRequest& request) const {
    return RenderChat(templates_, *tokenizer_, request, std::tm{}, CancelFlag::Never(),
                      MemoryGrant::Unlimited());
  }

  // The message of the refusal, which begins with the field.
  std::string Refusal(const ChatRequest& request) const {
    const auto chat = Render(request);
    if (chat.ok()) return absl::StrCat("no refusal but ", chat->text);
    EXPECT_EQ(chat.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(chat.status().message());
    const auto field = chat.status().GetPayload(kFieldPayload);
    EXPECT_TRUE(field.has_value()) << message;
    EXPECT_EQ(message.substr(0, message.find(": ")), std::string(field.value_or(absl::Cord())));
    return message;
  }

  testing::TempDirectory directory_;
  TemplateDirectory templates_;
  const std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
};

TEST_F(ChatTest, DocumentsHaveTheirPlaceBeforeTheFirstUserMessage) {
  Load(kTemplate);
  ChatRequest request;
  request.messages = {Message("system", " S "), Message("user", "\n U"), Message("user", "V")};
  auto chat = Render(request);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->text, "<s><system>S<user>U<user>V<a>");

  request.documents = {{"a", ""}, {"b", ""}};
  chat = Render(request);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->text, "<s><system>S<user>\n U<user>V<a>");
  EXPECT_EQ(std::string(chat->token_ids.begin(), chat->token_ids.end()), chat->text);
  ASSERT_EQ(chat->places.size(), 2u);
  for (const DocumentPlace& place : chat->places) {
    EXPECT_EQ(place.at, std::string("<s><system>S<user>").size());
    EXPECT_EQ(place.frame_end, place.at);
  }

  // A message that holds what marks the place does not mislead.
  request.messages[1].content =
      "\xEE\x80\x80"
      "documents 0"
      "\xEE\x80\x81";
  chat = Render(request);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->places[0].at, std::string("<s><system>S<user>").size());
  EXPECT_THAT(chat->text, HasSubstr(*request.messages[1].content));
}

TEST_F(ChatTest, TheLastMessageIsContinued) {
  Load(kTemplate);
  ChatRequest request;
  request.add_generation_prompt = false;
  request.continue_final_message = true;
  request.messages = {Message("user", " U "), Message("assistant", " It is<a ")};
  auto chat = Render(request);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->text, "<s><user>U<assistant>It is<a");
  EXPECT_EQ(std::string(chat->token_ids.begin(), chat->token_ids.end()), chat->text);
  // With documents, too.
  request.documents = {{"a", ""}};
  chat = Render(request);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->places.at(0).at, std::string("<s><user>").size());
  EXPECT_EQ(chat->text, "<s><user> U<assistant>It is<a");
  // White space at the end stays if the template keeps it; what the content ends with also stands
  // behind it.
  request.documents.clear();
  Load("{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>\n{% endfor %}");
  request.messages[1].content = "</s>\n";
  chat = Render(request);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->text, "<user> U </s>\n<assistant></s>\n");

  request.messages[1].content = " \n";
  EXPECT_THAT(Refusal(request), HasSubstr("messages.messages[1].content: is empty"));
  request.messages[1].content = std::nullopt;
  EXPECT_THAT(Refusal(request), HasSubstr("messages.messages[1].content: is empty"));
  request.messages[1].content = "text";
  Load("{% for m in messages %}<{{ m.role }}>{% endfor %}");
  EXPECT_THAT(Refusal(request), HasSubstr("cannot be continued"));
}

// All the marks that could be chosen, in one message: another one is found without trying each.
TEST_F(ChatTest, ManyMarksInMessagesTakeNoTime) {
  Load(kTemplate);
  ChatRequest request;
  std::string marks;
  for (int i = 0; i < 100'000; ++i) {
    absl::StrAppend(&marks, "\xEE\x80\x80", "documents ", i, "\xEE\x80\x81");
  }
  request.messages = {Message("user", marks)};
  request.documents = {{"a", ""}};
  const auto chat = Render(request);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->places.at(0).at, std::string("<s><user>").size());
}

TEST_F(ChatTest, ACancelledRenderingIsCancelled) {
  Load(kTemplate);
  ChatRequest request;
  request.messages = {Message("user", "U")};
  CancelFlag cancel;
  cancel.Cancel();
  EXPECT_EQ(
      RenderChat(templates_, *tokenizer_, request, std::tm{}, cancel, MemoryGrant::Unlimited())
          .status()
          .code(),
      absl::StatusCode::kCancelled);
}

TEST_F(ChatTest, NoPlaceForDocumentsIsRefused) {
  ChatRequest request;
  request.documents = {{"a", ""}};
  request.messages = {Message("system", "S")};
  Load(kTemplate);
  EXPECT_THAT(Refusal(request),
              HasSubstr("messages.messages: documents are placed in the first message"));
  request.messages = {Message("user", "U")};
  for (const char* source : {"{{ messages[0].content | upper }}", "fixed",
                             "{{ messages[0].content }}{{ messages[0].content }}"}) {
    Load(source);
    EXPECT_THAT(Refusal(request), HasSubstr("does not write the first user message exactly once"));
  }
}

TEST_F(ChatTest, BadFieldsAreNamed) {
  Load(kTemplate);
  ChatRequest request;
  EXPECT_THAT(Refusal(request), HasSubstr("messages.messages: at least one"));
  request.messages = {Message("user", "U")};
  for (const char* json : {"", "{}", "[", "nonsense", "[] []", "[1], \"messages\": []"}) {
    request.tools = json;
    EXPECT_EQ(Refusal(request), "messages.tools: must be a JSON array") << json;
  }
  request.tools.reset();
  for (const char* json : {"[]", "{\"a\": 1}, \"b\": {}", "{\"a\":}"}) {
    request.template_options = json;
    EXPECT_EQ(Refusal(request), "messages.template_options: must be a JSON object") << json;
  }
  request.template_options.reset();
  request.messages[0].tool_calls = "1";
  EXPECT_EQ(Refusal(request), "messages.messages[0].tool_calls: must be a JSON array");
  request.messages[0].tool_calls.reset();
  request.messages[0].reasoning = "\xff";
  EXPECT_THAT(Refusal(request), HasSubstr("messages.messages[0].reasoning"));
  Load("{{ raise_exception('Only bots!') }}");
  request.messages = {Message("user", "U")};
  EXPECT_THAT(Refusal(request), HasSubstr("messages: chat_template.jinja:1: the template refuses"));
}

TEST_F(ChatTest, OptionsAreVariablesButNotMessages) {
  Load(kTemplate);
  ChatRequest request;
  request.messages = {Message("user", "U")};
  request.template_options = R"( {"x": "X", "bos_token": "B", "nested": {"messages": []}} )";
  request.tools = " [{\"b\": 1, \"a\": 2}]\n";
  const auto chat = Render(request);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->text, "B<user>U[{\"b\": 1, \"a\": 2}]X<a>");
  for (const char* name : {"messages", "tools", "add_generation_prompt", "\\u006dessages"}) {
    request.template_options = absl::StrCat("{\"x\": {}, \"", name, "\": 1}");
    EXPECT_THAT(Refusal(request), HasSubstr("messages.template_options: has the member \""))
        << name;
  }
  EXPECT_THAT(Refusal(request), HasSubstr("use the field messages of the request"));
}

// As Gemma 2: refuses a system message, and what does not alternate.
constexpr char kNoSystem[] =
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif "
    "%}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}"
    "{% endif %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}";

TEST_F(ChatTest, ASystemMessageThatTheTemplateRefusesGoesBeforeTheQuestion) {
  Load(kNoSystem);
  ChatRequest request;
  request.messages = {Message("user", "U"), Message("assistant", "A")};
  EXPECT_FALSE(Render(request)->system_folded);
  request.messages = {Message("system", "S"), Message("user", "U"), Message("assistant", "A"),
                      Message("user", "V")};
  auto chat = Render(request);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_TRUE(chat->system_folded);
  EXPECT_EQ(chat->text, "<user>S\n\nU<assistant>A<user>V");
  request.messages.insert(request.messages.begin() + 1, Message("system", "T"));
  EXPECT_EQ(Render(request)->text, "<user>S\n\nT\n\nU<assistant>A<user>V");

  // Documents come first, so that they are shared whatever the system message says.
  request.documents = {{"a", ""}};
  chat = Render(request);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_TRUE(chat->system_folded);
  ASSERT_EQ(chat->places.size(), 1u);
  EXPECT_EQ(chat->text.substr(0, chat->places[0].at), "<user>");
  EXPECT_EQ(chat->text, "<user>S\n\nT\n\nU<assistant>A<user>V");
}

TEST_F(ChatTest, WhatIsStillWrongAfterFoldingIsTold) {
  Load(kNoSystem);
  ChatRequest request;
  request.messages = {Message("system", "S"), Message("user", "U"), Message("user", "V")};
  EXPECT_THAT(Refusal(request), HasSubstr("alternate"));
  request.messages = {Message("system", "S")};
  EXPECT_THAT(Refusal(request), HasSubstr("no system"));
  request.messages = {Message("user", "U"), Message("system", "S")};
  EXPECT_THAT(Refusal(request), HasSubstr("no system"));
}

TEST_F(ChatTest, TheTemplateOfGemma2TakesASystemMessage) {
  const auto path = testing::TestData("chat_templates/google-gemma-2-2b-it.jinja");
  if (!path.has_value()) GTEST_SKIP() << "no test data";
  std::ifstream file(*path);
  Load({std::istreambuf_iterator<char>(file), {}});
  ChatRequest request;
  request.messages = {Message("system", "Be brief."), Message("user", "Why?")};
  const auto chat = Render(request);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_TRUE(chat->system_folded);
  EXPECT_EQ(chat->text,
            "<s><start_of_turn>user\nBe brief.\n\nWhy?<end_of_turn>\n<start_of_turn>model\n");
}

TEST_F(ChatTest, AbsentPartsOfMessagesHaveNoMembers) {
  Load("{{ messages | tojson }}");
  ChatRequest request;
  request.messages.resize(2);
  request.messages[0].role = "assistant";
  request.messages[0].reasoning = "R";
  request.messages[0].tool_calls = "[{}]";
  request.messages[1].role = "tool";
  request.messages[1].content = "";
  request.messages[1].name = "N";
  request.messages[1].tool_call_id = "1";
  EXPECT_EQ(Render(request)->text,
            R"([{"role": "assistant", "thinking": "R", "reasoning_content": "R", )"
            R"("tool_calls": [{}]}, )"
            R"({"role": "tool", "content": "", "name": "N", "tool_call_id": "1"}])");
}

TEST_F(ChatTest, TextAndIdsAreThoseOfTransformers) {
  const auto model = testing::TestData("models/stories260K");
  if (!model.has_value()) GTEST_SKIP() << "no stories260K";
  std::ifstream file(testing::TestFile("golden/chat_templates/served.json"));
  const auto golden = nlohmann::ordered_json::parse(file);
  std::filesystem::copy(*model / "tokenizer.json", directory_.path());
  std::filesystem::copy(*model / "tokenizer_config.json", directory_.path());
  directory_.Write("chat_template.jinja", golden.at("template").get<std::string>());
  const auto templates =
      TemplateDirectory::Load(directory_.path(), *ReadTokenizerConfig(directory_.path()));
  const auto tokenizer = LoadTokenizer(directory_.path());
  ASSERT_TRUE(templates.ok() && tokenizer.ok()) << templates.status() << tokenizer.status();
  for (const auto& one : golden.at("cases")) {
    ChatRequest request;
    for (const auto& message : one.at("messages")) {
      ChatMessage& chat = request.messages.emplace_back();
      chat.role = message.at("role");
      if (message.contains("content")) chat.content = message.at("content");
      if (message.contains("reasoning_content")) chat.reasoning = message.at("reasoning_content");
      if (message.contains("tool_calls")) chat.tool_calls = message.at("tool_calls").dump();
    }
    const auto& options = one.at("options");
    if (options.contains("tools")) request.tools = options.at("tools").dump();
    if (options.contains("hurry")) request.template_options = options.dump();
    request.add_generation_prompt = options.value("add_generation_prompt", true);
    const auto chat = RenderChat(*templates, **tokenizer, request, std::tm{}, CancelFlag::Never(),
                                 MemoryGrant::Unlimited());
    ASSERT_TRUE(chat.ok()) << chat.status();
    EXPECT_EQ(chat->text, one.at("text").get<std::string>());
    EXPECT_EQ(chat->token_ids, one.at("token_ids").get<std::vector<int32_t>>());
  }
}

}  // namespace
}  // namespace annulus
