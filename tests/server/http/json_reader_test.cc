// What reading JSON takes of the heap, measured, against what was held for it before.

#include "server/http/json/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/http/anthropic/messages_request.h"
#include "server/http/body_bytes.h"
#include "server/http/json/json_text.h"
#include "server/http/openai/completions_request.h"
#include "server/http/openai/responses_request.h"
#include "tests/support/counting_heap.h"
#include "tests/support/processor_time.h"

namespace annulus::server {
namespace {

using ::testing::HasSubstr;

std::deque<std::string> Pieces(const std::string& text, size_t size) {
  std::deque<std::string> pieces;
  for (size_t at = 0; at < text.size(); at += size) pieces.push_back(text.substr(at, size));
  return pieces;
}

// Reads a body into a request of its own.
using Reader = absl::Status (*)(const std::deque<std::string>&, CallMemory&, const CancelFlag&);

template <auto kRead>
absl::Status ReadOpenAi(const std::deque<std::string>& body, CallMemory& memory,
                        const CancelFlag& cancel) {
  OpenAiRequest request;
  return kRead(body, request, memory, cancel);
}

absl::Status ReadMessages(const std::deque<std::string>& body, CallMemory& memory,
                          const CancelFlag& cancel) {
  MessagesRequest request;
  return ReadMessagesRequest(body, /*counts=*/false, request, memory, cancel);
}

absl::Status ReadResponses(const std::deque<std::string>& body, CallMemory& memory,
                           const CancelFlag& cancel) {
  ResponsesRequest request;
  return ReadResponsesRequest(body, request, memory, cancel);
}

// Random JSON of any shape, mostly with keys that a request has.
class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  size_t Below(size_t limit) { return random_() % limit; }
  std::string Request() {
    std::string text = "{";
    left_ = 500;
    const size_t fields = 1 + Below(12);
    for (size_t i = 0; i < fields; ++i) {
      static const char* const kKeys[] = {"messages",       "prompt",     "stop",
                                          "logit_bias",     "metadata",   "chat_template_kwargs",
                                          "stop_token_ids", "model",      "temperature",
                                          "annulus",        "tools",      "user",
                                          "stream_options", "system",     "stop_sequences",
                                          "cache_control",  "max_tokens", "input",
                                          "instructions"};
      const std::string key = Below(12) == 0 ? String(20) : absl::StrCat(kKeys[Below(19)]);
      absl::StrAppend(&text, i == 0 ? "" : ",", JsonString(key), ":", Field(key));
    }
    text += "}";
    if (Below(5) == 0) text.resize(Below(text.size() + 1));
    for (size_t change = Below(12) == 0 ? 3 : 0; change > 0 && !text.empty(); --change) {
      text[Below(text.size())] = static_cast<char>(Below(256));
    }
    return text;
  }

 private:
  std::string String(size_t most) {
    static const char* const kParts[] = {"a", "\n", "\"",  "\xc3\xa9", "\xe2\x82\xac",
                                         " ", "\\", "\x01"};
    std::string text;
    for (size_t left = Below(most); left > 0; --left) text += kParts[Below(8)];
    return text;
  }
  std::string List(const char* open, const char* shut, size_t most,
                   const std::function<std::string()>& entry) {
    std::string text = open;
    for (size_t left = Below(most); left > 0; --left) {
      absl::StrAppend(&text, text.size() > 1 ? "," : "", entry());
    }
    return text + shut;
  }
  std::string Field(const std::string& key) {
    if (Below(8) == 0) return Any(5);
    if (key == "messages") return List("[", "]", 100, [&] { return Message(); });
    if (key == "prompt") {
      return Below(2) == 0 ? JsonString(String(8'000))
                           : List("[", "]", 2000, [&] { return absl::StrCat(Below(50'000)); });
    }
    if (key == "system") return List("[", "]", 40, [&] { return Part(); });
    if (key == "input" || key == "instructions") {
      return Below(3) == 0 ? JsonString(String(3000))
                           : List("[", "]", 100, [&] { return Message(); });
    }
    if (key == "max_tokens") return absl::StrCat(Below(100));
    if (key == "stop_sequences" || key == "stop")
      return List("[", "]", 16, [&] { return JsonString(String(300)); });
    if (key == "stop_token_ids")
      return List("[", "]", 1000, [&] { return absl::StrCat(Below(999)); });
    if (key == "logit_bias") {
      return List("{", "}", 1000, [&] { return absl::StrCat("\"", random_() % 100'000, "\":1"); });
    }
    return Any(6);
  }
  std::string Message() {
    const std::string content =
        Below(3) > 0 ? JsonString(String(200)) : List("[", "]", 40, [&] { return Part(); });
    return absl::StrCat("{\"role\":\"user\",\"content\":", content,
                        Below(4) == 0 ? ",\"name\":\"somebody with a long name\"" : "", "}");
  }
  std::string Part() {
    const std::string text = JsonString(String(Below(4) == 0 ? 3000 : 100));
    switch (Below(10)) {
      case 0:
        return absl::StrCat("{\"type\":\"thinking\",\"thinking\":", text, "}");
      case 1:
        return absl::StrCat("{\"title\":", text, ",\"type\":\"document\",\"context\":", text,
                            ",\"source\":{\"type\":\"text\",\"data\":", text, "}}");
      case 2:
        return absl::StrCat("{\"type\":\"document\",\"source\":{\"type\":\"base64\",\"data\":\"",
                            std::string(4 * Below(1000), 'Y'), "\"}}");
      case 3:
        return absl::StrCat("{\"type\":\"input_file\",\"filename\":", text, ",\"file_data\":\"",
                            std::string(4 * Below(1000), 'Y'), "\"}");
      case 4:
        return absl::StrCat("{\"type\":\"input_text\",\"text\":", text, "}");
      case 5:
        return absl::StrCat("{\"type\":\"file\",\"file\":{\"filename\":", text, ",\"file_data\":\"",
                            std::string(4 * Below(1000), 'Y'), "\"}}");
      default:
        return absl::StrCat("{\"type\":\"text\",\"text\":", text, "}");
    }
  }
  std::string Any(size_t depth) {
    if (left_ > 0) --left_;
    switch (Below(depth == 0 || left_ == 0 ? 4 : 7)) {
      case 0:
        return "null";
      case 1:
        return Below(2) == 0 ? "true" : "-17.5e3";
      case 2:
        return absl::StrCat(random_());
      case 3:
        return JsonString(String(Below(20) == 0 ? 30'000 : 60));
      case 4:
        return List("[", "]", 60 / depth, [&] { return Any(depth - 1); });
      default:
        return List("{", "}", 60 / depth,
                    [&] { return absl::StrCat(JsonString(String(30)), ":", Any(depth - 1)); });
    }
  }

  std::mt19937_64 random_;
  size_t left_ = 0;  // arrays and objects of any shape that the request may still have
};

std::string Repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

struct Measured {
  absl::Status status;
  size_t most_bytes = 0;
  size_t held = 0;
};

Measured Read(Reader reader, const std::string& text, size_t piece) {
  const auto budget = std::make_shared<MemoryBudget>(size_t{4} << 30);
  const std::deque<std::string> pieces = Pieces(text, piece);
  CallMemory memory(budget);
  Measured measured;
  testing::TakeHeapBytesMost();
  const int64_t before = testing::HeapBytes();
  {
    measured.status = reader(pieces, memory, CancelFlag::Never());
    measured.most_bytes = static_cast<size_t>(testing::TakeHeapBytesMost() - before);
  }
  measured.held = budget->most();
  return measured;
}

TEST(JsonReaderTest, NothingIsHeldBeyondWhatWasCharged) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  Generator generator(seed);
  for (const Reader reader :
       {Reader(ReadOpenAi<ReadChatRequest>), Reader(ReadOpenAi<ReadCompletionRequest>),
        Reader(ReadMessages), Reader(ReadResponses)}) {
    // What is made once is made here.
    Read(reader, "{\"messages\":[{\"role\":\"\"}],\"x\":1}", 100);
    int good = 0;
    for (int i = 0; i < 120 && !::testing::Test::HasFailure(); ++i) {
      const std::string text = generator.Request();
      const Measured measured = Read(reader, text, 1 + generator.Below(20'000));
      EXPECT_LE(measured.most_bytes, measured.held)
          << measured.status << " " << text.size() << " " << text.substr(0, 500);
      if (measured.status.ok()) ++good;
    }
    // Few of them are whole requests; each kind of list alone is one.
    for (const std::string& list :
         {absl::StrCat("\"prompt\":", JsonString(std::string(1 << 20, 'x'))),
          absl::StrCat("\"prompt\":[1", std::string(200'000, ' '), ",2]"),
          absl::StrCat("\"metadata\":[[", std::string(300'000, ' '), "],{", "}", "]"),
          absl::StrCat("\"metadata\":[{}", Repeated(",[],null,true", 20'000), "]"),
          absl::StrCat("\"messages\":[{\"role\":\"user\",\"content\":\"", std::string(1 << 20, 'x'),
                       "\"}]"),
          absl::StrCat("\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":[{}",
                       Repeated(",[],{},1", 20'000), "]}]"),
          absl::StrCat("\"messages\":[{}],\"reasoning_effort\":\"low\","
                       "\"chat_template_kwargs\":{\"a\":\"",
                       std::string(1 << 20, 'x'), "\"}")}) {
      const Measured measured = Read(reader, absl::StrCat("{", list, "}"), 16384);
      EXPECT_LE(measured.most_bytes, measured.held) << list.substr(0, 40);
    }
  }
}

TEST(JsonReaderTest, MessagesByTheThousandAreHeldFor) {
  std::string text = "{\"messages\":[";
  for (int i = 0; i < 10'000; ++i) absl::StrAppend(&text, i == 0 ? "" : ",", "{\"role\":\"u\"}");
  const Measured measured = Read(ReadOpenAi<ReadChatRequest>, text + "]}", 16384);
  EXPECT_TRUE(measured.status.ok()) << measured.status;
  EXPECT_LE(measured.most_bytes, measured.held);
  std::string more = text + ",{}]}";
  const absl::Status refused = Read(ReadOpenAi<ReadChatRequest>, more, 16384).status;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("messages[10000]"));
}

// Messages and Responses give tools in another form than templates know.
TEST(JsonReaderTest, ManyKeysOfAToolTakeLinearTime) {
  const auto seconds = [](Reader reader, absl::string_view begin, int keys) {
    std::string schema = "{";
    for (int i = 0; i < keys; ++i) absl::StrAppend(&schema, i > 0 ? "," : "", "\"", i, "\":0");
    const std::string text = absl::StrCat("{\"tools\":[{\"name\":\"f\",", begin, schema, "}}]}");
    const double start = testing::ThreadSeconds();
    const absl::Status status = Read(reader, text, 16384).status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is required")) << "the tools are fine";
    return testing::ThreadSeconds() - start;
  };
  const std::vector<std::pair<Reader, absl::string_view>> readers = {
      {ReadMessages, "\"input_schema\":"},
      {ReadResponses, "\"type\":\"function\",\"parameters\":"}};
  for (const auto& [reader, begin] : readers) {
    double least = 1e9;
    for (int round = 0; round < 7 && least > 3; ++round) {
      const double once = seconds(reader, begin, 20'000);
      least = std::min(least, seconds(reader, begin, 40'000) / once);
    }
    EXPECT_LE(least, 3);  // quadratic time: 4
  }
}

TEST(JsonReaderTest, RefusesWhatIsTooDeepTooLongOrTooMuch) {
  const auto read = [](const std::string& text) {
    return Read(ReadOpenAi<ReadCompletionRequest>, text, 100).status;
  };
  EXPECT_TRUE(read("{\"prompt\":\"a\\ud83d\\ude00\\u0000b\"}").ok());
  EXPECT_THAT(
      std::string(read(absl::StrCat("{\"metadata\":{\"a\":", std::string(100, '['))).message()),
      HasSubstr("deeper than 64"));
  EXPECT_THAT(std::string(read("{\"seed\":" + std::string(2000, '1') + "}").message()),
              HasSubstr("1024"));
  EXPECT_THAT(std::string(read("{\"prompt\":\"a\",}").message()), HasSubstr("error at byte 15"));
  EXPECT_THAT(std::string(read("{\"prompt\":\"a\"} x").message()), HasSubstr("error at byte"));

  const auto budget = std::make_shared<MemoryBudget>(size_t{100} << 10);
  CallMemory memory(budget);
  const auto completion = ReadOpenAi<ReadCompletionRequest>;
  const std::string long_text = absl::StrCat("{\"prompt\":\"", std::string(50'000, 'x'), "\"}");
  EXPECT_TRUE(absl::IsOutOfRange(completion(Pieces(long_text, 100), memory, CancelFlag::Never())));
  CancelFlag cancelled;
  cancelled.Cancel();
  EXPECT_TRUE(absl::IsCancelled(completion(Pieces("{}", 100), memory, cancelled)));
}

TEST(BodyBytesTest, HoldsWhatItTakes) {
  const auto budget = std::make_shared<MemoryBudget>(size_t{8} << 20);
  for (const size_t part : {size_t{1}, size_t{1000}, size_t{100'000}}) {
    testing::TakeHeapBytesMost();
    const std::string bytes(part, 'x');
    const int64_t before = testing::HeapBytes();
    BodyBytes body(budget);
    while (body.size() < 300'000) {
      ASSERT_TRUE(body.Append(bytes).ok());
      ASSERT_LE(testing::TakeHeapBytesMost() - before, static_cast<int64_t>(budget->used()));
    }
  }
  EXPECT_EQ(budget->used(), 0u);
}

}  // namespace
}  // namespace annulus::server
