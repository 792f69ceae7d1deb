// Answers of every family, as its chat templates write calls, as models write them, and broken:
// tests/golden/answers.

#include "tests/engine/text/answer/transcripts.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace annulus {
namespace {

using testing::AnswerPiece;
using testing::ReadAnswer;
using testing::Transcript;
using testing::TranscriptFile;
using Json = nlohmann::json;

class TranscriptsTest : public ::testing::TestWithParam<std::string> {
 protected:
  const TranscriptFile file_ = testing::LoadTranscripts(GetParam());
};

void ExpectHolds(const Json& expected, const ReadAnswer& read) {
  EXPECT_EQ(read.text, expected.at("text"));
  EXPECT_EQ(read.reasoning, expected.at("reasoning"));
  EXPECT_EQ(read.broken.size(), expected.at("broken")) << ::testing::PrintToString(read.broken);
  ASSERT_EQ(read.calls.size(), expected.at("calls").size());
  for (size_t i = 0; i < read.calls.size(); ++i) {
    const Json& call = expected.at("calls")[i];
    EXPECT_EQ(read.calls[i].name, call.at("name"));
    EXPECT_EQ(read.calls[i].whole, !call.value("open", false));
    if (call.contains("id")) {
      EXPECT_EQ(read.calls[i].id, call.at("id"));
    } else {
      EXPECT_FALSE(read.calls[i].id.empty());
    }
    if (read.calls[i].whole) {
      EXPECT_EQ(Json::parse(read.calls[i].arguments), call.at("arguments"));
    } else {
      EXPECT_EQ(read.calls[i].arguments, call.at("arguments"));
    }
  }
}

TEST_P(TranscriptsTest, HoldWhatTheyShould) {
  EXPECT_GE(file_.transcripts.size(), 20);
  for (const Transcript& transcript : file_.transcripts) {
    SCOPED_TRACE(transcript.name);
    ExpectHolds(transcript.expected, testing::Read(file_.Parser(transcript), transcript.answer));
  }
}

TEST_P(TranscriptsTest, GiveTheSameStreamedAsWhole) {
  for (const Transcript& transcript : file_.transcripts) {
    SCOPED_TRACE(transcript.name);
    for (const bool text_marks : {false, true}) {
      const auto pieces = text_marks ? testing::Plain(transcript.answer) : transcript.answer;
      const auto parser = [&] { return file_.Parser(transcript, text_marks); };
      const ReadAnswer whole = testing::Read(parser(), pieces);
      for (const size_t most : {1, 2, 3, 5, 8}) {
        EXPECT_EQ(testing::Read(parser(), testing::Cut(pieces, most)), whole) << most;
      }
      // Once cut at every byte.
      const std::string bytes = testing::BytesOf(pieces);
      for (size_t at = 1; at < bytes.size() && text_marks; ++at) {
        const std::vector<AnswerPiece> two = {{bytes.substr(0, at)}, {bytes.substr(at)}};
        ASSERT_EQ(testing::Read(parser(), two), whole) << at;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TranscriptsTest,
                         ::testing::ValuesIn(testing::TranscriptFamilies()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace annulus
