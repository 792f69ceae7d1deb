#include "engine/text/answer/answer_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/engine/text/answer/transcripts.h"
#include "tests/support/processor_time.h"

namespace annulus {
namespace {

using testing::AnswerPiece;
using testing::Read;
using testing::ReadAnswer;
using testing::Transcript;
using testing::TranscriptFile;
using Token = AnswerParser::Token;

std::shared_ptr<const AnswerTools> Tools() {
  return AnswerTools::Parse(R"([{"type": "function", "function": {"name": "now"}},
      {"type": "function", "function": {"name": "write",
       "parameters": {"properties": {"text": {"type": "string"}}}}}])")
      .value();
}

std::shared_ptr<const AnswerFormat> Format(absl::string_view family, bool tokens) {
  return AnswerFormat::Make(family, [tokens](absl::string_view) { return tokens; });
}

ReadAnswer ReadText(absl::string_view family, const std::string& text,
                    const AnswerParser::Options& options = {}) {
  return Read(AnswerParser(Format(family, /*tokens=*/false), Tools(), options), {{text}});
}

// The bytes of an event come as soon as they are known: tools do not turn streaming off.
TEST(AnswerParserTest, ToolsOffWhileStreaming) {
  AnswerParser parser(Format("hermes", false), Tools(), {});
  std::vector<AnswerEvent> events;
  const auto push = [&](const std::string& text) {
    events.clear();
    parser.Push(text, Token::kPlain, events);
    std::string seen;
    for (const AnswerEvent& event : events) {
      if (event.kind == AnswerEvent::Kind::kCallBegin) seen += "[" + event.name + "]";
      seen += event.bytes;
    }
    return seen;
  };
  EXPECT_EQ(push("I lo"), "I lo");
  EXPECT_EQ(push("ok.\n"), "ok.");  // the line feed may belong to a mark
  EXPECT_EQ(push("<tool_"), "");
  EXPECT_EQ(push("call>{\"name\": \"write\", \"argu"), "");
  EXPECT_EQ(push("ments\": {"), "[write]{");
  EXPECT_EQ(push("\"text\": \"a"), "\"text\": \"a");
  EXPECT_EQ(push("b\"}"), "b\"}");
  EXPECT_EQ(push("}\n</tool_call>"), "");
  EXPECT_EQ(parser.calls(), 1);
}

// A value of a tagged form comes byte by byte too.
TEST(AnswerParserTest, ToolsOffWhileStreamingTaggedArguments) {
  AnswerParser parser(Format("qwen3_coder", false), Tools(), {});
  std::vector<AnswerEvent> events;
  parser.Push("<function=write>\n<parameter=text>\nab", Token::kPlain, events);
  std::string arguments;
  for (const AnswerEvent& event : events) arguments += event.bytes;
  EXPECT_EQ(arguments, "{\"text\": \"ab");
}

// A second opening mark inside of a call, and calls back to back.
TEST(AnswerParserTest, AParserThatDropsACall) {
  const std::string call = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
  EXPECT_EQ(ReadText("hermes", call + call + "\n\n" + call).calls.size(), 3);
  EXPECT_EQ(ReadText("hermes", "<tool_call>\n" + call).calls.size(), 1);
  EXPECT_EQ(ReadText("hermes", "<tool_call>{\"name\"\n" + call).calls.size(), 1);
  EXPECT_EQ(ReadText("hermes", "<think>a</think>" + call).calls.size(), 1);
  AnswerParser tokens(Format("hermes", true), Tools(), {});
  const ReadAnswer read = Read(std::move(tokens), {{"<tool_call>", Token::kMarkup},
                                                   {"{\"name\": \"now\"", Token::kPlain},
                                                   {"<tool_call>", Token::kMarkup},
                                                   {"{\"name\": \"now\"}", Token::kPlain}});
  EXPECT_EQ(read.calls.size(), 1);
  EXPECT_EQ(read.text, "<tool_call>{\"name\": \"now\"");
  EXPECT_EQ(read.broken.size(), 1);
}

// What is thought is not read as a call, nor cut at what ends calls.
TEST(AnswerParserTest, ThinkingIsNotBound) {
  const ReadAnswer read = ReadText(
      "hermes", "<think>\n<tool_call>{\"name\": \"now\"}</tool_call>\n</think>\nIt is noon.");
  EXPECT_EQ(read.reasoning, "<tool_call>{\"name\": \"now\"}</tool_call>");
  EXPECT_EQ(read.text, "It is noon.");
  EXPECT_TRUE(read.calls.empty());
}

TEST(AnswerParserTest, ReasoningCanBeText) {
  EXPECT_EQ(ReadText("hermes", "<think>a</think>b", {.reasoning = false}).text,
            "<think>a</think>b");
  EXPECT_EQ(ReadText("hermes", "a</think>b", {.in_reasoning = true}).reasoning, "a");
}

// Where a mark is a token, its text is text; and the token is one wherever it stands.
TEST(AnswerParserTest, OnlyTheTokenIsTheMark) {
  const std::string call = "<tool_call>{\"name\": \"now\"}</tool_call>";
  EXPECT_EQ(Read(AnswerParser(Format("hermes", true), Tools(), {}), {{call}}).text, call);
  EXPECT_EQ(ReadText("hermes", call).text, "");
  EXPECT_EQ(ReadText("hermes", "So: " + call).text, "So: " + call);
  EXPECT_EQ(ReadText("hermes", "So:\n" + call).text, "So:");
  const ReadAnswer read =
      Read(AnswerParser(Format("hermes", true), Tools(), {}),
           {{"So: "}, {"<tool_call>", Token::kMarkup}, {"{\"name\": \"now\"}"}});
  EXPECT_EQ(read.text, "So:");
  EXPECT_EQ(read.calls.size(), 1);
}

// Special tokens of no family are never seen; those of a broken call are.
TEST(AnswerParserTest, SpecialTokensAreHidden) {
  AnswerParser parser(Format("kimi", true), Tools(), {});
  const ReadAnswer read = Read(std::move(parser), {{"a"},
                                                   {"<|im_end|>", Token::kSpecial},
                                                   {"<|tool_call_end|>", Token::kSpecial},
                                                   {"b"},
                                                   {"<|tool_call_begin|>", Token::kSpecial},
                                                   {"rm", Token::kPlain}});
  EXPECT_EQ(read.text, "ab<|tool_call_begin|>rm");
}

// What a value holds until it is known to be JSON comes before a special token that ends it.
TEST(AnswerParserTest, SpecialTokensDoNotOvertakeAValue) {
  const ReadAnswer read = Read(AnswerParser(Format("qwen3_coder", false), Tools(), {}),
                               {{"<function=write>\n<parameter=days>"},
                                {"<b>", Token::kMarkup},
                                {"<|im_end|>", Token::kSpecial},
                                {"a"}});
  ASSERT_EQ(read.calls.size(), 1);
  EXPECT_FALSE(read.calls[0].whole);
  EXPECT_EQ(read.text, "<b>a");
}

TEST(AnswerParserTest, IdsAreOwnOrTheModels) {
  const std::string calls = "[TOOL_CALLS]now[CALL_ID]abc[ARGS]{}[TOOL_CALLS]now[ARGS]{}";
  const ReadAnswer read = ReadText("mistral", calls, {.salt = 7});
  ASSERT_EQ(read.calls.size(), 2);
  EXPECT_EQ(read.calls[0].id, "abc");
  EXPECT_EQ(read.calls[1].id.size(), 9);
  EXPECT_EQ(read.calls[1].id, ReadText("mistral", calls, {.salt = 7}).calls[1].id);
  EXPECT_NE(read.calls[1].id, ReadText("mistral", calls, {.salt = 8}).calls[1].id);
}

TEST(AnswerParserTest, ReasonsSayWhatIsWrong) {
  const auto reason = [](const std::string& text) {
    const ReadAnswer read = ReadText("hermes", "<tool_call>" + text);
    return read.broken.empty() ? "" : read.broken.front();
  };
  EXPECT_EQ(reason("{\"name\": \"rm\\n\"}"), "\"rm\\n\" is not one of the request's tools");
  EXPECT_EQ(reason("now()"), "the call is not valid JSON");
  EXPECT_EQ(reason("{}"), "the call has no name");
  EXPECT_EQ(reason("{\"name\": \"\"}"), "the name of the function is empty or malformed");
  EXPECT_EQ(reason("{\"name\": 1}"), "the name of the function is not a JSON string");
  EXPECT_EQ(reason("{\"name\": \"a\", \"name\": \"b\"}"), "the call has two names");
  EXPECT_EQ(reason("{\"name\": \"now\", \"arguments\": {}, \"parameters\": {}}"),
            "the call has arguments twice");
  EXPECT_EQ(reason("{\"name\": \"now\", \"arguments\": []}"),
            "the arguments are not a JSON object");
  EXPECT_EQ(reason("{\"name\": \"now\", \"arguments\": {\"a\": "),
            "the answer ends inside of the call");
  EXPECT_EQ(reason("{\"name\": \"now\", \"arguments\": {\"a\": 01}}"),
            "the call is not valid JSON");
  EXPECT_EQ(reason("{\"name\": \"" + std::string(300, 'a')),
            "the name of the function is too long");
}

// Memory: what is held back is limited, and comes as text then.
TEST(AnswerParserTest, HoldsBackAMebibyteAtMost) {
  for (const std::string& endless :
       {std::string("{\"arguments\": {\"a\": \""), std::string(" "), std::string("{\"x\": \"")}) {
    AnswerParser parser(Format("hermes", false), Tools(), {});
    std::vector<AnswerEvent> events;
    parser.Push("<tool_call>" + endless, Token::kPlain, events);
    size_t held = 0;
    for (int i = 0; i < 2048; ++i) {
      events.clear();
      parser.Push(std::string(1024, ' '), Token::kPlain, events);
      size_t out = 0;
      for (const AnswerEvent& event : events) out += event.source;
      held = held + 1024 - std::min(held + 1024, out);
      EXPECT_LE(held, AnswerParser::kMostHeld + 2048);
    }
  }
}

// The tagged forms write JSON of texts that are none, and of values deeper than any stack.
TEST(AnswerParserTest, DeepValuesNeedNoStack) {
  const std::string deep = std::string(500'000, '[');
  EXPECT_EQ(
      ReadText("qwen3_coder", "<function=write><parameter=x>" + deep + "</parameter></function>")
          .calls[0]
          .arguments.size(),
      deep.size() + 9);
  EXPECT_EQ(
      ReadText("hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": " + deep).broken[0],
      "the call is not valid JSON");
}

// A mark in a string of JSON is a part of it; in what turns out to be no JSON it ends the value.
TEST(AnswerParserTest, MarksInStringsOfTaggedValues) {
  const auto arguments = [](const std::string& pairs) {
    const ReadAnswer read =
        ReadText("qwen3_coder", absl::StrCat("<function=write>", pairs, "</function>"));
    EXPECT_TRUE(read.broken.empty()) << pairs;
    return read.calls.size() == 1 && read.calls[0].whole ? read.calls[0].arguments : read.text;
  };
  const auto x = [&](const std::string& value) {
    return arguments("<parameter=x>" + value + "</parameter>");
  };
  EXPECT_EQ(x("\n[\"a</parameter>\", {\"</parameter>\": 1}]\n"),
            "{\"x\": [\"a</parameter>\", {\"</parameter>\": 1}]}");
  EXPECT_EQ(x("\"\\\"</parameter>\\\\\""), "{\"x\": \"\\\"</parameter>\\\\\"}");
  EXPECT_EQ(x("\"a"), "{\"x\": \"\\\"a\"}");
  EXPECT_EQ(x("\"a\\"), "{\"x\": \"\\\"a\\\\\"}");
  EXPECT_EQ(x("[\"a</parameter>\n<parameter=y>\n\"b\"\n"), "{\"x\": \"[\\\"a\", \"y\": \"b\"}");
  EXPECT_EQ(x("\"a</parameter><parameter=y>b\" </"), "{\"x\": \"\\\"a\", \"y\": \"b\\\" </\"}");
  EXPECT_EQ(x("a \"b"), "{\"x\": \"a \\\"b\"}");
  EXPECT_EQ(x("\"a</parameter><parameter=text>b\n\nc"),
            "{\"x\": \"\\\"a\", \"text\": \"b\\n\\nc\"}");
  // A token that is no text ends the value too.
  const ReadAnswer read = Read(AnswerParser(Format("qwen3_coder", false), Tools(), {}),
                               {{"<function=write><parameter=x>\"a</parameter></function>"},
                                {"<|im_end|>", Token::kSpecial}});
  ASSERT_EQ(read.calls.size(), 1);
  EXPECT_EQ(read.calls[0].arguments, "{\"x\": \"\\\"a\"}");
  EXPECT_TRUE(read.calls[0].whole);
}

// Quadratic time would be four times as long in every round; a shared machine is slow in some.
TEST(AnswerParserTest, QuadraticTime) {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"hermes",
       "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": [1, \"x\"]}}</tool_call>\n"},
      {"hermes", "<tool_call>\n"},
      {"hermes", "<tool_call"},
      {"hermes", "\n\n"},
      {"hermes", "<think></think>"},
      {"llama3", "{\"name\": \"now\", \"parameters\": {}}; "},
      {"qwen3_coder", "<function=write><parameter=text></parameter</parameter></function>\n"},
      {"qwen3_coder", "<function=write><parameter=x>[\"</parameter></function>\n"},
      {"qwen3_coder", "<function=write><parameter=x>[\"</parameter><parameter=y>[1, \""},
      {"glm", "<tool_call>write<arg_key>x</arg_key><arg_value>{}</arg_value></tool_call>"},
      {"granite", "<|tool_call|>[{\"name\": \"now\"},"},
      {"mistral", "[TOOL_CALLS]now[ARGS]{}"},
      {"harmony", "<|start|>assistant<|channel|>final<|message|>a<|end|>"},
  };
  for (const auto& [family, unit] : kinds) {
    const auto seconds = [&family = family, &unit = unit](size_t bytes) {
      AnswerParser parser(Format(family, false), Tools(), {});
      std::vector<AnswerEvent> events;
      const double start = testing::ThreadSeconds();
      for (size_t done = 0; done < bytes; done += unit.size()) {
        events.clear();
        parser.Push(unit, Token::kPlain, events);
      }
      parser.Finish(events);
      return testing::ThreadSeconds() - start;
    };
    double least = 1e9;
    for (int round = 0; round < 7 && least > 2.2; ++round) {
      const double once = seconds(size_t{1} << 20);
      least = std::min(least, seconds(size_t{2} << 20) / once);
    }
    EXPECT_LE(least, 2.2) << family << ": " << unit;
  }
}

// Changes an answer at random: bytes, pieces, tokens.
std::vector<AnswerPiece> Mutate(std::vector<AnswerPiece> pieces, const TranscriptFile& file,
                                std::mt19937_64& random) {
  const auto below = [&random](size_t n) { return random() % n; };
  for (size_t i = 0; i <= below(4); ++i) {
    AnswerPiece& piece = pieces[below(pieces.size())];
    const Transcript& other = file.transcripts[below(file.transcripts.size())];
    const AnswerPiece& given = other.answer[below(other.answer.size())];
    switch (below(6)) {
      case 0:
        if (piece.kind == Token::kPlain && !piece.bytes.empty()) {
          piece.bytes[below(piece.bytes.size())] = static_cast<char>(below(256));
        }
        break;
      case 1:
        if (piece.kind == Token::kPlain) piece.bytes.resize(below(piece.bytes.size() + 1));
        break;
      case 2:
        pieces.insert(pieces.begin() + static_cast<long>(below(pieces.size() + 1)), given);
        break;
      case 3:
        if (pieces.size() > 1)
          pieces.erase(pieces.begin() + static_cast<long>(below(pieces.size())));
        break;
      case 4:
        piece.kind = piece.kind == Token::kPlain ? Token::kSpecial : Token::kPlain;
        break;
      default:
        std::swap(piece, pieces[below(pieces.size())]);
    }
  }
  return pieces;
}

// Read checks that each byte is in exactly one event.
TEST(AnswerParserTest, MutationsLoseNoByte) {
  const char* given = std::getenv("ANNULUS_ANSWER_MUTATIONS");
  int64_t rounds = 10'000;
  ASSERT_TRUE(given == nullptr || absl::SimpleAtoi(given, &rounds));
  std::mt19937_64 random(1);
  std::vector<TranscriptFile> files;
  for (const std::string& name : testing::TranscriptFamilies()) {
    files.push_back(testing::LoadTranscripts(name));
  }
  for (int64_t i = 0; i < rounds && !::testing::Test::HasFailure(); ++i) {
    const TranscriptFile& file = files[random() % files.size()];
    const Transcript& transcript = file.transcripts[random() % file.transcripts.size()];
    const bool text_marks = random() % 4 == 0;
    auto pieces = Mutate(transcript.answer, file, random);
    if (text_marks) pieces = testing::Plain(pieces);
    SCOPED_TRACE(absl::StrCat(file.family, ", ", transcript.name, ", round ", i));
    const ReadAnswer whole = Read(file.Parser(transcript, text_marks), pieces);
    const auto cut = testing::Cut(pieces, 1 + random() % 7);
    EXPECT_EQ(Read(file.Parser(transcript, text_marks), cut), whole);
  }
}

TEST(AnswerFormatTest, MarksAreFoundWithoutGoingBack) {
  for (const AnswerFamily& family : AnswerFamilies()) {
    for (const AnswerState& state : family.states) {
      for (const AnswerExit& exit : state.exits) {
        const bool anywhere = (exit.flags & (AnswerExit::kLine | AnswerExit::kStart)) == 0;
        const bool searched = state.part != AnswerPart::kSpace && anywhere;
        if (!searched) continue;
        EXPECT_EQ(exit.mark.find(exit.mark[0], 1), absl::string_view::npos)
            << family.name << ": " << exit.mark;
      }
    }
  }
}

TEST(AnswerToolsTest, RefusesWhatHasNoName) {
  const auto refused = [](absl::string_view json) {
    return std::string(AnswerTools::Parse(json).status().message());
  };
  EXPECT_EQ(refused("{}"), "must be a JSON array");
  EXPECT_EQ(refused("[{}]"), "tool 0 of the list has no function.name; each needs one");
  EXPECT_EQ(refused(R"([{"name": "a"}, {"function": {"name": ""}}])"),
            "tool 1 of the list has a name of 0 bytes; allowed are 1 to 256");
  EXPECT_EQ(refused(R"([{"name": "a"}, {"name": "a"}])"),
            "tool 1 of the list has the name of an earlier one; give each its own");
  EXPECT_TRUE(AnswerTools::Parse("[]").value()->empty());
}

TEST(AnswerToolsTest, KnowsWhichParametersAreTexts) {
  const auto tools = AnswerTools::Parse(R"([{"name": "f", "parameters": {"properties": {
      "a": {"type": "string"}, "b": {"type": ["string", "null"]}, "c": {"enum": ["x", "y"]},
      "d": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "e": {"type": "integer"},
      "f": {"type": ["string", "integer"]}, "g": {}, "h": {"enum": ["x", 1]},
      "i": {"anyOf": [{"type": "string"}, {"type": "array"}]}, "j": true}}}])")
                         .value();
  for (const char* name : {"a", "b", "c", "d"}) EXPECT_TRUE(tools->IsText("f", name)) << name;
  for (const char* name : {"e", "f", "g", "h", "i", "j", "k"}) {
    EXPECT_FALSE(tools->IsText("f", name)) << name;
  }
  EXPECT_FALSE(tools->IsText("g", "a"));
}

}  // namespace
}  // namespace annulus
