// Anthropic's citations: answers whose sentences name passages of the request's documents.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/documents/document_notes.h"
#include "server/http/sentence_parts.h"
#include "tests/server/http/anthropic/messages_fixture.h"
#include "tests/server/http/parted_answer.h"

namespace annulus::server {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

const json kCited = {{"citations", {{"enabled", true}}}};

// Twenty sentences with more bytes than characters.
std::string River() {
  std::string text;
  for (int i = 0; i < 20; ++i) absl::StrAppend(&text, "Größe number ", i, " of the river. ");
  return text;
}

// Tokens [begin, end) of a document; a byte is a token of the fake engine.
Passage At(int32_t document, int32_t begin, int32_t end) {
  Passage passage;
  passage.document = document;
  passage.begin = begin;
  passage.end = end;
  passage.score = 0.5;
  return passage;
}

// Bytes of a text in characters, as a client's language counts them.
std::string Characters(const std::string& text, int64_t begin, int64_t end) {
  std::string part;
  int64_t at = -1;
  for (const char byte : text) {
    at += CountCharacters({&byte, 1});
    if (at >= begin && at < end) part.push_back(byte);
  }
  return part;
}

class CitationsTest : public MessagesTest {
 protected:
  void Answer(const std::vector<Delta>& parts) {
    server_->engine().set_scripter([parts](const RequestSpec&) {
      FakeScript script;
      script.parts = parts;
      return script;
    });
  }
  json Content(const json& body) {
    const HttpReceived answer = Post(kMessages, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return json::parse(answer.body)["content"];
  }
  // The same, put together of the events of a stream; checks their order.
  json Streamed(json body) {
    body["stream"] = true;
    return Gathered(Post(kMessages, body).body);
  }
  static json Gathered(const std::string& stream) {
    json content = json::array();
    bool open = false;
    for (const auto& [name, event] : NamedEvents(stream)) {
      if (name == "content_block_start") {
        EXPECT_FALSE(open);
        open = true;
        EXPECT_EQ(event["index"], content.size());
        content.push_back(event["content_block"]);
      } else if (name == "content_block_delta") {
        EXPECT_TRUE(open);
        EXPECT_EQ(event["index"], content.size() - 1);
        const json& delta = event["delta"];
        json& block = content.back();
        if (delta["type"] == "citations_delta") {
          block["citations"].push_back(delta["citation"]);
        } else if (delta["type"] == "text_delta") {
          EXPECT_FALSE(block.contains("citations")) << "text behind the citations of its block";
          block["text"] = block["text"].get<std::string>() + delta["text"].get<std::string>();
        } else if (delta["type"] == "thinking_delta") {
          block["thinking"] =
              block["thinking"].get<std::string>() + delta["thinking"].get<std::string>();
        } else {
          block["input"] = json::parse(delta["partial_json"].get<std::string>());
        }
      } else if (name == "content_block_stop") {
        EXPECT_TRUE(open);
        open = false;
      }
    }
    EXPECT_FALSE(open);
    return content;
  }
  std::string RefusedMessage(const json& body, int status = 400) {
    return Refused(kMessages, body, status)["message"];
  }
};

TEST_F(CitationsTest, EverySentenceThatHasPassagesCitesThem) {
  Start();
  const std::string river = River();
  const std::string lake = "The lake is deep. It is cold.";
  Answer({TextPart("The river is long. It", {{0, 19, {At(1, 200, 264), At(0, 0, 29)}}}),
          TextPart(" rises in the north.\n"), TextPart("It ends", {}),
          TextPart(" in the sea", {{40, 58, {At(0, 3, 9)}}})});
  const json blocks = {
      Document(TextSource(lake), kCited),
      {{"type", "text"}, {"text", "How long?"}},
      Document(TextSource(river),
               {{"title", "River"}, {"context", "of a book"}, {"citations", {{"enabled", true}}}})};
  const json content = Content(MessagesBody(Blocks(blocks)));
  ASSERT_THAT(content, SizeIs(3)) << content;
  EXPECT_EQ(content[0]["text"], "The river is long. ");
  EXPECT_EQ(content[1], json({{"type", "text"}, {"text", "It rises in the north.\n"}}));
  EXPECT_EQ(content[2]["text"], "It ends in the sea");
  const json& cited = content[0]["citations"];
  ASSERT_THAT(cited, SizeIs(2));
  EXPECT_EQ(cited[0]["type"], "char_location");
  EXPECT_EQ(cited[0]["document_index"], 1);
  EXPECT_EQ(cited[0]["document_title"], "River");
  EXPECT_TRUE(cited[0]["file_id"].is_null());
  const std::string text = cited[0]["cited_text"];
  EXPECT_THAT(text, EndsWith(" of the river."));
  EXPECT_EQ(text, Characters(river, cited[0]["start_char_index"], cited[0]["end_char_index"]));
  EXPECT_EQ(cited[0].size(), 7u);
  EXPECT_EQ(cited[1], json({{"type", "char_location"},
                            {"cited_text", lake},
                            {"document_index", 0},
                            {"document_title", nullptr},
                            {"file_id", nullptr},
                            {"start_char_index", 0},
                            {"end_char_index", lake.size()}}));
  EXPECT_THAT(content[2]["citations"], SizeIs(1));
  EXPECT_EQ(Streamed(MessagesBody(Blocks(blocks))), content);
  EXPECT_TRUE(Submitted().evidence);
  // The prompt is the same as without.
  const std::string prompt = Prompt();
  json plain = blocks;
  for (json& block : plain) block.erase("citations");
  Answer({TextPart("The river is long. It rises.")});
  EXPECT_THAT(Content(MessagesBody(Blocks(plain))), SizeIs(1));
  EXPECT_EQ(Prompt(), prompt);
  EXPECT_FALSE(Submitted().evidence);
}

TEST_F(CitationsTest, StreamsThemInTheBlockOfTheirSentence) {
  Start();
  Answer({TextPart("The river is"), TextPart(" long. It", {{0, 19, {At(0, 0, 64)}}}),
          TextPart(" is cold.")});
  json body = MessagesBody(Blocks(json::array({Document(TextSource(River()), kCited)})));
  body["stream"] = true;
  std::vector<std::string> events;
  for (const auto& [name, event] :
       NamedEvents(Post(kMessages, body, "Idempotency-Key: cited\r\n").body)) {
    if (name == "ping") continue;
    events.push_back(!event.contains("index") ? name
                                              : absl::StrCat(name, " ", event["index"].dump()));
    if (name != "content_block_delta") continue;
    const json& delta = event["delta"];
    absl::StrAppend(&events.back(), " ",
                    delta["type"] == "citations_delta"
                        ? delta["citation"]["type"].get<std::string>()
                        : delta["text"].get<std::string>());
  }
  EXPECT_THAT(
      events,
      ElementsAre("message_start", "content_block_start 0", "content_block_delta 0 The river is",
                  "content_block_delta 0  long. ", "content_block_delta 0 char_location",
                  "content_block_stop 0", "content_block_start 1", "content_block_delta 1 It",
                  "content_block_delta 1  is cold.", "content_block_stop 1", "message_delta",
                  "message_stop"));
  // A client that lost its connection gets the same again, though the document is gone.
  const json content = Gathered(Get("/v1/streams/cited").body);
  ASSERT_THAT(content, SizeIs(2));
  EXPECT_EQ(content[0]["citations"][0]["start_char_index"], 0);
}

TEST_F(CitationsTest, ThinkingAndCallsEndASentence) {
  Start();
  Delta thought;
  thought.reasoning = "Hm. So it is. ";
  Delta call = TextPart(" now", {{0, 10, {At(0, 0, 64)}}});
  call.calls = {{0, "abc", "search", "{}"}};
  server_->engine().set_scripter([=](const RequestSpec&) {
    FakeScript script;
    script.parts = {thought, TextPart("I look"), call,
                    TextPart("It is.", {{10, 16, {At(0, 64, 128)}}})};
    script.completion.calls = {{"abc", "search", "{}"}};
    return script;
  });
  const json body = MessagesBody(Blocks(json::array({Document(TextSource(River()), kCited)})));
  const json content = Content(body);
  ASSERT_THAT(content, SizeIs(4)) << content;
  EXPECT_EQ(content[0]["thinking"], "Hm. So it is. ");
  EXPECT_EQ(content[1]["text"], "I look now");
  EXPECT_THAT(content[1]["citations"], SizeIs(1));
  EXPECT_EQ(content[2]["type"], "tool_use");
  EXPECT_THAT(content[3]["citations"], SizeIs(1));
  EXPECT_EQ(Streamed(body), content);
}

TEST_F(CitationsTest, SourcesOfBlocksAreCitedByWholeBlocks) {
  Start();
  server_->engine().set_max_context(int64_t{1} << 20);
  std::vector<std::string> texts;
  for (int i = 0; i < 10; ++i) texts.push_back(absl::StrCat("Größe ", i, std::string(40, 'x')));
  texts[3] = "";
  texts.push_back(std::string(20'000, 'y') + ". The end of it. " + std::string(20'000, 'z'));
  json source = {{"type", "content"}, {"content", json::array()}};
  for (const std::string& text : texts) {
    source["content"].push_back({{"type", "text"}, {"text", text}});
  }
  // Bytes 120 to 200 lie in the third block and, behind the empty one, in the fifth.
  const auto begin = static_cast<int32_t>(absl::StrJoin(texts, "\n").find("The end"));
  Answer({TextPart("The first one. ", {{0, 15, {At(0, 0, 64)}}}),
          TextPart("The second one. ", {{15, 31, {At(0, 128, 192)}}}),
          TextPart("A long one. ", {{31, 43, {At(0, begin / 64 * 64, begin / 64 * 64 + 64)}}})});
  const json body = MessagesBody(Blocks(json::array({Document(source, kCited)})));
  const json content = Content(body);
  ASSERT_THAT(content, SizeIs(3)) << content;
  EXPECT_EQ(content[0]["citations"][0], json({{"type", "content_block_location"},
                                              {"cited_text", texts[0] + texts[1]},
                                              {"document_index", 0},
                                              {"document_title", nullptr},
                                              {"file_id", nullptr},
                                              {"start_block_index", 0},
                                              {"end_block_index", 2}}));
  const json& second = content[1]["citations"][0];
  const size_t from = second["start_block_index"];
  const size_t to = second["end_block_index"];
  EXPECT_EQ(from, 2u);
  EXPECT_EQ(to, 5u);
  EXPECT_EQ(second["cited_text"], texts[2] + texts[4]);
  // A block of tens of thousands of bytes is not repeated with each citation.
  const json& last = content[2]["citations"][0];
  EXPECT_EQ(last["start_block_index"], 10);
  EXPECT_EQ(last["end_block_index"], 11);
  EXPECT_THAT(last["cited_text"].get<std::string>(), HasSubstr("The end of it."));
  EXPECT_LT(last["cited_text"].get<std::string>().size(), 2000u);
  EXPECT_EQ(Streamed(body), content);
  // A text instead of blocks is one block.
  Answer({TextPart("All of it. ", {{0, 11, {At(0, 0, 5)}}})});
  const json one = Content(MessagesBody(
      Blocks(json::array({Document({{"type", "content"}, {"content", "Block"}}, kCited)}))));
  EXPECT_EQ(one[0]["citations"][0]["end_block_index"], 1);
  EXPECT_EQ(one[0]["citations"][0]["cited_text"], "Block");
}

TEST_F(CitationsTest, FilesAreCitedByTheirIdsAndMarks) {
  Start();
  const std::string river = River();
  const std::string form = absl::StrCat(
      "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"river.txt\"\r\n"
      "Content-Type: text/plain\r\n\r\n",
      river, "\r\n--XX--\r\n");
  const HttpReceived uploaded = Ask(absl::StrCat(
      "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; "
      "boundary=XX\r\nContent-Length: ",
      form.size(), "\r\n\r\n", form));
  ASSERT_EQ(uploaded.status, 200) << uploaded.body;
  const std::string id = json::parse(uploaded.body)["id"];
  Answer({TextPart("The river is long. ", {{0, 19, {At(0, 100, 164)}}})});
  const json file = {{"type", "file"}, {"file_id", id}};
  const json blocks = {Document(file, kCited),
                       // Comes twice, and is cited as what it was first.
                       Document(file, kCited)};
  const json cited = Content(MessagesBody(Blocks(blocks)))[0]["citations"];
  ASSERT_THAT(cited, SizeIs(1));
  EXPECT_EQ(cited[0]["document_title"], "river.txt");
  EXPECT_EQ(cited[0]["document_index"], 0);
  EXPECT_EQ(cited[0]["file_id"], id);
  EXPECT_EQ(cited[0]["cited_text"].get<std::string>(),
            Characters(river, cited[0]["start_char_index"], cited[0]["end_char_index"]));
  // Over gRPC a document may come without its text.
  ASSERT_TRUE(server_->Upload("bare", river).ok());
  const json bare = json::array({Document({{"type", "file"}, {"file_id", "bare"}}, kCited)});
  const std::string message = RefusedMessage(MessagesBody(Blocks(bare)));
  EXPECT_THAT(message, HasSubstr("messages[0].content[0]: the document \"bare\" was uploaded "
                                 "without keep_text"));
  EXPECT_THAT(message, HasSubstr("/v1/files"));
}

TEST_F(CitationsTest, ADeletedFileIsNamed) {
  Start();
  ASSERT_TRUE(server_->Upload("gone", "The river is long.").ok());
  ASSERT_EQ(Ask("DELETE /v1/files/gone HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 200);
  const json gone = json::array({Document({{"type", "file"}, {"file_id", "gone"}}, kCited)});
  EXPECT_THAT(RefusedMessage(MessagesBody(Blocks(gone)), 404),
              HasSubstr("there is no file \"gone\": it was deleted"));
  EXPECT_TRUE(server_->engine().submitted().empty());
}

// A passage in the middle of it is no longer than its tokens, and the whole of it is cut off.
TEST_F(CitationsTest, TakesASentenceOfAMegabyte) {
  Start();
  server_->engine().set_max_context(int64_t{1} << 24);
  const std::string text(1 << 20, 'x');
  const json asked = MessagesBody(Blocks(json::array({Document(TextSource(text), kCited)})));
  Answer({TextPart("It is long. ", {{0, 12, {At(0, 64'000, 64'064), At(0, 0, 1 << 20)}}})});
  for (const json& content : {Content(asked), Streamed(asked)}) {
    const json& cited = content[0]["citations"];
    ASSERT_THAT(cited, SizeIs(2));
    EXPECT_EQ(cited[0]["start_char_index"], 64'000);
    EXPECT_EQ(cited[0]["end_char_index"], 64'064);
    EXPECT_EQ(cited[0]["cited_text"], text.substr(0, 64));
    EXPECT_EQ(cited[1]["start_char_index"], 0);
    EXPECT_EQ(cited[1]["end_char_index"], 4096);
    EXPECT_EQ(cited[1]["cited_text"], text.substr(0, 4096));
  }
}

// A block for each sentence: the model must read its own words as it wrote them.
TEST_F(CitationsTest, AnAnswerThatIsSentBackIsTheTextItWas) {
  Start();
  Answer({TextPart("The river is long. It is cold.", {{0, 19, {At(0, 0, 64)}}})});
  const json asked = json::array({Document(TextSource(River()), kCited)});
  json answer = Content(MessagesBody(Blocks(asked)));
  ASSERT_THAT(answer, SizeIs(2));
  answer[1]["citations"] = nullptr;  // as the SDKs send it
  const json user = {{"role", "user"}, {"content", asked}};
  const json again = {{"role", "user"}, {"content", "Why?"}};
  const json turns = {user, {{"role", "assistant"}, {"content", answer}}, again};
  Content(MessagesBody({{"messages", turns}}));
  EXPECT_THAT(Prompt(), HasSubstr("|assistant:The river is long. It is cold.|user:Why?|"));
  // The same if the role comes behind.
  const std::string backwards =
      absl::StrCat(R"({"max_tokens":5,"messages":[)", user.dump(), R"(,{"content":)", answer.dump(),
                   R"(,"role":"assistant"},)", again.dump(), "]}");
  EXPECT_EQ(Ask(PostJson(kMessages, backwards)).status, 200);
  EXPECT_THAT(Prompt(), HasSubstr("|assistant:The river is long. It is cold.|user:Why?|"));
}

TEST_F(CitationsTest, NamesWhatItRefuses) {
  Start();
  const json text = TextSource("Some text.");
  const std::string first = "messages[0].content[0].citations";
  const std::vector<std::pair<json, std::string>> cases = {
      {{Document(text, kCited), Document(TextSource("other"))},
       absl::StrCat("messages[0].content[1].citations.enabled: must be true, because ", first,
                    ".enabled is")},
      {{Document(text, {{"citations", {{"enabled", false}}}}), Document(text, kCited)},
       absl::StrCat(first, ".enabled: must be true")},
      {json::array({Document(text, {{"citations", {{"enabled", "yes"}}}})}),
       absl::StrCat(first, ".enabled: must be true or false")},
      {json::array({Document(text, {{"citations", {{"enabled", 1}}}})}),
       absl::StrCat(first, ".enabled: must be true or false")},
      {json::array({Document(text, {{"citations", "yes"}})}),
       absl::StrCat(first, ": must be an array or an object")},
      {json::array({Document(text, {{"citations", true}})}),
       absl::StrCat(first, ": must be an array or an object")},
      {json::array({Document(text, {{"citations", {{"enabled", true}, {"style", "x"}}}})}),
       absl::StrCat(first, ".style")},
      {json::array({Document(text, {{"citations", json::array()}})}),
       absl::StrCat(first, ": of a document must be an object")},
      {json::array({{{"type", "text"}, {"text", "x"}, {"citations", {{"enabled", true}}}}}),
       absl::StrCat(first, ".enabled: a block of type \"text\" cannot be cited")},
  };
  for (const auto& [blocks, message] : cases) {
    const json body = MessagesBody(Blocks(blocks));
    SCOPED_TRACE(body.dump());
    EXPECT_THAT(RefusedMessage(body), HasSubstr(message));
  }
  // Documents agree over all messages.
  json turns = Blocks(json::array({Document(text)}))["messages"];
  turns.push_back({{"role", "assistant"}, {"content", "So."}});
  turns.push_back(Blocks(json::array({Document(text, kCited)}))["messages"][0]);
  EXPECT_THAT(RefusedMessage(MessagesBody({{"messages", turns}})), HasSubstr(first));
  ASSERT_TRUE(server_->Upload("stored", "S").ok());
  json named = MessagesBody(Blocks(json::array({Document(text, kCited)})));
  named["annulus"] = {{"documents", {"stored"}}};
  EXPECT_THAT(RefusedMessage(named), HasSubstr("annulus.documents: cannot be cited"));
  const std::string twice =
      R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"document","source":)"
      R"({"type":"text","data":"x"},"citations":{"enabled":true},"citations":{"enabled":false}}]}]})";
  const HttpReceived repeated = Ask(PostJson(kMessages, twice));
  EXPECT_EQ(repeated.status, 400);
  EXPECT_THAT(repeated.body, HasSubstr("citations"));
  EXPECT_TRUE(server_->engine().submitted().empty());
  // What the engine refuses is told about the field that asked for it.
  absl::Status unable = absl::InvalidArgumentError("evidence: this model cannot give evidence");
  unable.SetPayload(kFieldPayload, absl::Cord("evidence"));
  server_->engine().set_submit_error(unable);
  EXPECT_THAT(RefusedMessage(MessagesBody(Blocks(json::array({Document(text, kCited)})))),
              HasSubstr(absl::StrCat(first, ".enabled: this model cannot give evidence")));
}

TEST_F(CitationsTest, BoundsWhatARequestMayCite) {
  Start();
  server_->engine().set_max_context(int64_t{1} << 30);
  const json many = std::vector<json>(66, Document(TextSource("x"), kCited));
  EXPECT_THAT(RefusedMessage(MessagesBody(Blocks(many))), HasSubstr("at most 64 documents"));
  json source = {{"type", "content"}, {"content", json::array()}};
  for (int i = 0; i < 4097; ++i) source["content"].push_back({{"type", "text"}, {"text", "x"}});
  EXPECT_THAT(RefusedMessage(MessagesBody(Blocks(json::array({Document(source, kCited)})))),
              HasSubstr("4097 blocks of content; with citations at most 4096 are allowed"));
  EXPECT_TRUE(server_->engine().submitted().empty());
  EXPECT_EQ(Post(kMessages, MessagesBody(Blocks(json::array({Document(source)})))).status, 200);
}

// The text of passages counts in the size of an answer that is not streamed.
TEST_F(CitationsTest, AnAnswerIsNoLargerThanAMessage) {
  Start({"--max-message-size", "64KiB"});
  server_->engine().set_max_context(int64_t{1} << 20);
  std::vector<Delta> parts;
  for (int i = 0; i < 32; ++i) {
    parts.push_back(TextPart("So it is here. ", {{15 * i, 15 * i + 15, {At(0, 0, 4096)}}}));
  }
  Answer(parts);
  json body =
      MessagesBody(Blocks(json::array({Document(TextSource(std::string(5000, 'x')), kCited)})));
  EXPECT_THAT(RefusedMessage(body), HasSubstr("max_tokens"));
  body["stream"] = true;
  EXPECT_THAT(Streamed(body), SizeIs(32));
}

// The splitter knows the sentences of the engine without being told of those without evidence.
TEST(SentencePartsTest, SplitsAtEverySentence) {
  SentenceParts parts;
  std::vector<std::string> seen;
  const auto split = [&](const Delta& delta) {
    parts.Split(delta, [&](const Delta& part, const SentenceEvidence* evidence, bool ends) {
      seen.push_back(absl::StrCat(part.reasoning, part.text, part.calls.empty() ? "" : "()",
                                  evidence == nullptr ? "" : "*", ends ? "|" : ""));
    });
  };
  Delta delta = TextPart("A sentence. Another one.\nAnd.\n\u4e94\u3002x", {{12, 25, {}}});
  delta.reasoning = "Hm.\n";
  split(delta);
  EXPECT_THAT(
      seen, ElementsAre("Hm.\n", "A sentence. |", "Another one.\n*|", "And.\n\u4e94\u3002|", "x"));
  seen.clear();
  Delta call = TextPart(" y", {{36, 39, {}}});
  call.calls = {{0, "a", "f", "{}"}};
  split(call);
  split(TextPart("Not twelve\n"));
  EXPECT_THAT(seen, ElementsAre(" y", "*|", "()", "Not twelve\n"));
}

}  // namespace
}  // namespace annulus::server
