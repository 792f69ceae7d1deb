#include "tests/engine/text/answer/transcripts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "engine/text/utf8.h"
#include "tests/support/test_data.h"

namespace annulus::testing {

using Json = nlohmann::json;
using Token = AnswerParser::Token;

AnswerParser TranscriptFile::Parser(const Transcript& transcript, bool text_marks) const {
  const bool has_tools = transcript.expected.value("tools", true);
  return AnswerParser(text_marks ? text_format : format, has_tools ? tools : nullptr,
                      {.in_reasoning = transcript.expected.value("opened", false)});
}

std::vector<std::string> TranscriptFamilies() {
  std::vector<std::string> names;
  for (const AnswerFamily& family : AnswerFamilies()) names.emplace_back(family.name);
  return names;
}

TranscriptFile LoadTranscripts(const std::string& family) {
  std::ifstream file(TestFile("golden/answers/" + family + ".json"));
  const Json all = Json::parse(file);
  const auto tokens = all.at("tokens").get<std::vector<std::string>>();
  const auto special = all.at("special").get<std::vector<std::string>>();
  const auto has = [](const std::vector<std::string>& list, absl::string_view mark) {
    return std::find(list.begin(), list.end(), mark) != list.end();
  };
  TranscriptFile read;
  read.family = family;
  read.format =
      AnswerFormat::Make(family, [&](absl::string_view mark) { return has(tokens, mark); });
  read.text_format = AnswerFormat::Make(family, [](absl::string_view) { return false; });
  read.tools = AnswerTools::Parse(all.at("tools").dump()).value();
  for (const Json& one : all.at("transcripts")) {
    Transcript transcript{one.at("name").get<std::string>(), {}, one};
    for (const Json& piece : one.at("answer")) {
      if (piece.is_string()) {
        transcript.answer.push_back({piece.get<std::string>(), Token::kPlain});
        continue;
      }
      const auto mark = piece.at("token").get<std::string>();
      transcript.answer.push_back({mark, has(special, mark) ? Token::kSpecial : Token::kMarkup});
    }
    read.transcripts.push_back(std::move(transcript));
  }
  return read;
}

ReadAnswer ReadEvents(const std::vector<AnswerEvent>& events, const std::string& answer,
                      bool written_anew) {
  ReadAnswer read;
  size_t at = 0;
  for (const AnswerEvent& event : events) {
    const std::string source = answer.substr(std::min(at, answer.size()), event.source);
    at += event.source;
    if (!event.broken.empty()) read.broken.push_back(event.broken);
    switch (event.kind) {
      case AnswerEvent::Kind::kText:
        EXPECT_EQ(event.bytes, source);
        read.text += event.bytes;
        break;
      case AnswerEvent::Kind::kReasoning:
        EXPECT_EQ(event.bytes, source);
        read.reasoning += event.bytes;
        break;
      case AnswerEvent::Kind::kMark:
        EXPECT_EQ(event.bytes, "");
        break;
      case AnswerEvent::Kind::kCallBegin:
        EXPECT_EQ(event.index, static_cast<int32_t>(read.calls.size()));
        read.calls.push_back({.name = event.name, .id = event.id, .arguments = ""});
        break;
      case AnswerEvent::Kind::kArguments:
        if (!written_anew && event.source > 0) {
          EXPECT_EQ(event.bytes, source);
        }
        EXPECT_FALSE(read.calls.empty() || read.calls.back().ended);
        read.calls.back().arguments += event.bytes;
        break;
      case AnswerEvent::Kind::kCallEnd:
        EXPECT_FALSE(read.calls.empty() || read.calls.back().ended);
        read.calls.back().ended = true;
        read.calls.back().whole = event.broken.empty();
        break;
    }
  }
  EXPECT_EQ(at, answer.size());
  for (const ReadAnswer::Call& call : read.calls) {
    EXPECT_TRUE(call.ended);
    // That parser also wants valid UTF-8, which an answer's pieces are, and pairs of surrogates.
    const bool fit = !FirstInvalidUtf8(call.arguments).has_value() &&
                     !absl::StrContains(absl::AsciiStrToLower(call.arguments), "\\ud");
    if (call.whole && fit) {
      EXPECT_TRUE(Json::accept(call.arguments)) << call.arguments;
    }
  }
  return read;
}

ReadAnswer Read(AnswerParser parser, const std::vector<AnswerPiece>& pieces) {
  std::vector<AnswerEvent> events;
  for (const AnswerPiece& piece : pieces) parser.Push(piece.bytes, piece.kind, events);
  parser.Finish(events);
  const AnswerFamily& family = parser.format().family();
  const bool marked =
      std::any_of(family.states.begin(), family.states.end(),
                  [](const AnswerState& state) { return state.part == AnswerPart::kMarked; });
  return ReadEvents(events, BytesOf(pieces), family.tagged || marked);
}

std::string BytesOf(const std::vector<AnswerPiece>& pieces) {
  std::string bytes;
  for (const AnswerPiece& piece : pieces) bytes += piece.bytes;
  return bytes;
}

std::vector<AnswerPiece> Cut(const std::vector<AnswerPiece>& pieces, size_t most) {
  std::vector<AnswerPiece> cut;
  for (const AnswerPiece& piece : pieces) {
    if (piece.kind != Token::kPlain) {
      cut.push_back(piece);
      continue;
    }
    for (size_t at = 0; at < piece.bytes.size(); at += most) {
      cut.push_back({piece.bytes.substr(at, most), piece.kind});
    }
  }
  return cut;
}

std::vector<AnswerPiece> Plain(const std::vector<AnswerPiece>& pieces) {
  return {{BytesOf(pieces), Token::kPlain}};
}

}  // namespace annulus::testing
