// Annotations of OpenAI's Responses: sentences that name the files they rest on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/server/http/api_fixture.h"
#include "tests/server/http/parted_answer.h"

namespace annulus::server {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kResponsesRoute[] = "/v1/responses";

SentenceEvidence Sentence(int64_t begin, int64_t end, const std::vector<int32_t>& documents) {
  SentenceEvidence sentence{begin, end, {}};
  for (const int32_t document : documents) {
    Passage& passage = sentence.passages.emplace_back();
    passage.document = document;
    passage.end = 1;
    passage.score = 0.5;
  }
  return sentence;
}

class FileCitationsTest : public ApiTest {
 protected:
  void Answer(std::vector<Delta> parts) {
    server_->engine().set_scripter([parts = std::move(parts)](const RequestSpec&) {
      FakeScript script;
      script.parts = parts;
      script.completion.calls = {{"abc", "search", "{}"}};
      return script;
    });
  }
  // Asks about two files: one that was uploaded, and one that comes with the request.
  static json Asked(const json& more) {
    const json content = {{{"type", "input_file"}, {"file_id", "stored"}},
                          {{"type", "input_file"},
                           {"filename", "lake.txt"},
                           {"file_data", "data:text/plain;base64,VGhlIGxha2Uu"}},
                          {{"type", "input_text"}, {"text", "How long?"}}};
    json body = {{"model", "fake"},
                 {"input", {{{"role", "user"}, {"content", content}}}},
                 {"max_output_tokens", 50}};
    body.update(more);
    return body;
  }
  static json Enabled() { return {{"annulus", {{"evidence", true}}}}; }
};

TEST_F(FileCitationsTest, SentencesNameTheirFiles) {
  Start();
  ASSERT_TRUE(server_->Upload("stored", "The river.", nullptr, 1000, "river.txt").ok());
  Delta call;
  call.calls = {{0, "abc", "search", "{}"}};
  Delta thought = TextPart("So.");
  thought.reasoning = "Hm.";
  thought.evidence = {Sentence(30, 33, {1})};
  Answer({TextPart("Größe is long. It", {Sentence(0, 17, {1, 0, 1})}), TextPart(" is. "),
          TextPart("And so"), TextPart("", {Sentence(17, 30, {})}), call, thought});
  const HttpReceived answer = Post(kResponsesRoute, Asked(Enabled()));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(Submitted().evidence);
  const json output = json::parse(answer.body)["output"];
  ASSERT_THAT(output, SizeIs(4)) << output;
  const json& text = output[0]["content"][0];
  EXPECT_EQ(text["text"], "Größe is long. It is. And so");
  const json& annotations = text["annotations"];
  // Each once, before the blank behind the sentence, in characters.
  ASSERT_THAT(annotations, SizeIs(2)) << annotations;
  EXPECT_EQ(annotations[0]["filename"], "lake.txt");
  EXPECT_EQ(annotations[0]["index"], 14);
  EXPECT_THAT(annotations[0]["file_id"].get<std::string>(), HasSubstr("attached-"));
  EXPECT_EQ(annotations[1], json({{"type", "file_citation"},
                                  {"file_id", "stored"},
                                  {"filename", "river.txt"},
                                  {"index", 14}}));
  EXPECT_EQ(output[1]["type"], "function_call");
  EXPECT_EQ(output[3]["content"][0]["annotations"][0]["index"], 3);

  json streaming = Asked(Enabled());
  streaming["stream"] = true;
  std::vector<std::string> order;
  std::vector<json> added;
  json done;
  for (const absl::string_view event :
       absl::StrSplit(Post(kResponsesRoute, streaming, "Idempotency-Key: cited\r\n").body, "\n\n",
                      absl::SkipEmpty())) {
    const json data = json::parse(std::string(event.substr(event.find("\ndata: ") + 7)));
    const std::string type = data["type"];
    if (type == "response.completed") done = data["response"]["output"];
    if (absl::StrContains(type, "annotation")) added.push_back(data);
    const bool tells = absl::StartsWith(type, "response.output_text") ||
                       absl::StartsWith(type, "response.content_part.added");
    if (tells) order.push_back(absl::StrCat(type.substr(9), " ", data["output_index"].dump()));
  }
  EXPECT_THAT(
      order,
      ElementsAre("content_part.added 0", "output_text.delta 0", "output_text.annotation.added 0",
                  "output_text.annotation.added 0", "output_text.delta 0", "output_text.delta 0",
                  "output_text.done 0", "content_part.added 2", "content_part.added 3",
                  "output_text.delta 3", "output_text.annotation.added 3", "output_text.done 3"));
  ASSERT_THAT(added, SizeIs(3));
  EXPECT_EQ(added[1]["annotation"], annotations[1]);
  EXPECT_EQ(added[1]["annotation_index"], 1);
  EXPECT_EQ(added[1]["content_index"], 0);
  EXPECT_EQ(added[2]["annotation_index"], 0);
  ASSERT_THAT(done, SizeIs(4));
  EXPECT_EQ(done[0]["content"], output[0]["content"]);
  EXPECT_EQ(done[3]["content"], output[3]["content"]);
  const std::string replayed = Get("/v1/streams/cited").body;
  EXPECT_THAT(replayed, HasSubstr("annotation.added"));
}

TEST_F(FileCitationsTest, ComeOnlyWhenTheyAreAskedFor) {
  Start();
  ASSERT_TRUE(server_->Upload("stored", "The river.").ok());
  Answer({TextPart("The river is long.")});
  const json plain = json::parse(Post(kResponsesRoute, Asked(json::object())).body);
  EXPECT_FALSE(Submitted().evidence);
  EXPECT_THAT(plain["output"][0]["content"][0]["annotations"], IsEmpty());
  const json wrong = Refused(kResponsesRoute, Asked({{"annulus", {{"evidence", "yes"}}}}), 400);
  EXPECT_EQ(wrong["param"], "annulus.evidence");
  absl::Status none = absl::InvalidArgumentError("evidence: the request has none");
  none.SetPayload(kFieldPayload, absl::Cord("evidence"));
  server_->engine().set_submit_error(none);
  EXPECT_EQ(Refused(kResponsesRoute, Asked(Enabled()), 400)["param"], "annulus.evidence");
  // Chat has no place for them.
  const json chat = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                     {"annulus", {{"evidence", true}}}};
  EXPECT_EQ(Refused("/v1/chat/completions", chat, 400)["param"], "annulus.evidence");
}

// Documents that the request only names are cited by their names.
TEST_F(FileCitationsTest, NamedDocumentsHaveTheirNames) {
  Start();
  ASSERT_TRUE(server_->Upload("named", "The sea.").ok());
  Answer({TextPart("The sea.", {Sentence(0, 8, {0})})});
  const json body = {{"model", "fake"},
                     {"input", "What?"},
                     {"annulus", {{"evidence", true}, {"documents", {"named"}}}}};
  const HttpReceived answer = Post(kResponsesRoute, body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json annotations = json::parse(answer.body)["output"][0]["content"][0]["annotations"];
  ASSERT_THAT(annotations, SizeIs(1));
  EXPECT_EQ(annotations[0]["file_id"], "named");
  EXPECT_EQ(annotations[0]["filename"], "named");
}

TEST_F(FileCitationsTest, DocumentsThatAreNotThereOrTooManyAreNamed) {
  Start();
  json body = {{"model", "fake"},
               {"input", "What?"},
               {"annulus", {{"evidence", true}, {"documents", {"gone"}}}}};
  const json gone = Refused(kResponsesRoute, body, 404);
  EXPECT_THAT(std::string(gone["message"]), HasSubstr("there is no document \"gone\""));
  body["annulus"]["documents"] = std::vector<std::string>(1000, "gone");
  const json many = Refused(kResponsesRoute, body, 400);
  EXPECT_THAT(std::string(many["message"]), HasSubstr("64"));
  EXPECT_TRUE(server_->engine().submitted().empty());
}

}  // namespace
}  // namespace annulus::server
