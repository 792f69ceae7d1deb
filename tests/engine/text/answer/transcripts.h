#ifndef ANNULUS_TESTS_ENGINE_TEXT_ANSWER_TRANSCRIPTS_H_
#define ANNULUS_TESTS_ENGINE_TEXT_ANSWER_TRANSCRIPTS_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/text/answer/answer_parser.h"

namespace annulus::testing {

// A token of an answer, or a part of one.
struct AnswerPiece {
  std::string bytes;
  AnswerParser::Token kind = AnswerParser::Token::kPlain;
};

// What events add up to.
struct ReadAnswer {
  struct Call {
    std::string name;
    std::string id;
    std::string arguments;
    bool ended = false;  // with kCallEnd
    bool whole = false;  // and nothing was wrong

    bool operator==(const Call&) const = default;
  };
  std::string text;
  std::string reasoning;
  std::vector<Call> calls;
  std::vector<std::string> broken;

  bool operator==(const ReadAnswer&) const = default;
};

// An answer and what it holds: see make_answers.py in tests/golden/answers.
struct Transcript {
  std::string name;
  std::vector<AnswerPiece> answer;
  nlohmann::json expected;
};

// The transcripts of one family, with its format and tools.
struct TranscriptFile {
  std::string family;
  std::shared_ptr<const AnswerFormat> format;       // with the file's tokens
  std::shared_ptr<const AnswerFormat> text_format;  // of a tokenizer that has none of them
  std::shared_ptr<const AnswerTools> tools;
  std::vector<Transcript> transcripts;

  AnswerParser Parser(const Transcript& transcript, bool text_marks = false) const;
};

// The names of the files, and one of them. The files are ours: a malformed one throws.
std::vector<std::string> TranscriptFamilies();
TranscriptFile LoadTranscripts(const std::string& family);

// Adds up events. Fails the test unless they stand for all bytes of the pieces in their order, each
// byte once, with the same bytes where events repeat them.
ReadAnswer ReadEvents(const std::vector<AnswerEvent>& events, const std::string& answer,
                      bool written_anew);

// Pushes the pieces and ends the answer.
ReadAnswer Read(AnswerParser parser, const std::vector<AnswerPiece>& pieces);

std::string BytesOf(const std::vector<AnswerPiece>& pieces);
// The same bytes, cut into pieces of at most `most` bytes, tokens as they are.
std::vector<AnswerPiece> Cut(const std::vector<AnswerPiece>& pieces, size_t most);
// The same bytes, all of them plain.
std::vector<AnswerPiece> Plain(const std::vector<AnswerPiece>& pieces);

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_TEXT_ANSWER_TRANSCRIPTS_H_
