// What a conversation takes of the heap on its way to token ids, against what was asked for.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/prompt/chat.h"
#include "engine/text/tokenizer.h"
#include "tests/support/counting_heap.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

constexpr size_t kSize = size_t{300} << 10;
constexpr char kTemplate[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{{ m.reasoning_content }}"
    "{% for call in m.tool_calls %}{{ call | tojson }}{% endfor %}{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}{{ x }}";

class AskedFor final : public MemoryGrant {
 public:
  absl::Status Allow(size_t bytes) override {
    most_ = std::max(most_, bytes);
    return absl::OkStatus();
  }
  size_t most() const { return most_; }

 private:
  size_t most_ = 0;
};

ChatRequest One(const std::string& content) {
  ChatRequest request;
  request.messages.resize(1);
  request.messages[0].role = "user";
  request.messages[0].content = content;
  return request;
}

std::string JsonList(const std::string& item) {
  std::string list = "[1";
  while (list.size() < kSize) absl::StrAppend(&list, ",", item);
  return list + "]";
}

// Requests whose JSON, values, text or ids are many times as large as they.
std::vector<ChatRequest> HostileRequests() {
  std::vector<ChatRequest> requests;
  for (const char* part : {"a", "\x01", "\"", "\\", "word ", "\n", "\xf0\x9f\x98\x80", " "}) {
    std::string content;
    while (content.size() < kSize) content += part;
    requests.push_back(One(content));
    requests.back().messages[0].reasoning = content;
  }
  requests.push_back(One("x"));
  requests.back().messages.resize(5000, requests.back().messages[0]);
  for (const char* item : {"1", "[]", "{}", "{\"a\":[1]}", "\"\\u0001\"", "[[[[[[]]]]]]"}) {
    requests.push_back(One("x"));
    requests.back().tools = JsonList(item);
    requests.push_back(One("x"));
    requests.back().messages[0].tool_calls = JsonList(item);
    requests.push_back(One("x"));
    requests.back().template_options = absl::StrCat("{\"x\":", JsonList(item), "}");
  }
  return requests;
}

TEST(ChatHeapTest, NoConversationTakesMoreThanItAskedFor) {
  testing::TempDirectory directory;
  directory.Write("chat_template.jinja", kTemplate);
  directory.Write("tokenizer_config.json", "{}");
  const auto templates =
      TemplateDirectory::Load(directory.path(), *ReadTokenizerConfig(directory.path()));
  ASSERT_TRUE(templates.ok()) << templates.status();
  const std::unique_ptr<Tokenizer> tokenizer = MakeByteTokenizer();
  const std::vector<ChatRequest> requests = HostileRequests();
  for (const bool documents : {false, true}) {
    for (size_t i = 0; i < requests.size(); ++i) {
      ChatRequest request = requests[i];
      if (documents) request.documents.push_back({"name", ""});
      // With documents the engine marks a copy of the messages, which the caller foresees.
      size_t copies = 0;
      if (documents) {
        testing::TakeHeapBytesMost();
        const int64_t before = testing::HeapBytes();
        const ChatRequest copy = request;
        copies = 2 * static_cast<size_t>(testing::HeapBytes() - before) + kSize;
      }
      AskedFor asked;
      testing::TakeHeapBytesMost();
      const int64_t before = testing::HeapBytes();
      const auto chat =
          RenderChat(*templates, *tokenizer, request, std::tm{}, CancelFlag::Never(), asked);
      const size_t taken = static_cast<size_t>(testing::TakeHeapBytesMost() - before);
      EXPECT_LE(taken, asked.most() + copies) << i << ": " << chat.status();
      EXPECT_LE(asked.most(), 400 * kSize) << i;
    }
  }
}

}  // namespace
}  // namespace annulus
