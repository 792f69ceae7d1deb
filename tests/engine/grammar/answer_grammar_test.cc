// Whole answers under a constraint: calls of tools, and forms behind reasoning, in every family's
// marks. AnswerParser judges what the machines accept.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/text/answer/answer_format.h"
#include "engine/text/answer/answer_parser.h"
#include "engine/text/answer/answer_tools.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/grammar/grammar_text.h"
#include "tests/support/processor_time.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using testing::ChoicesConstraint;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using Calls = AnswerShape::Calls;

constexpr char kTools[] = R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 0, "maximum": 99},
                   "exact": {"type": "boolean"}},
    "required": ["city", "days"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "get", "parameters": {"type": "object", "properties": {
    "kind": {"type": "string", "enum": ["a", "bc"]}}, "additionalProperties": false}}},
  {"type": "function", "function": {"name": "sort", "parameters": {"type": "object", "properties": {
    "by": {"type": ["string"], "enum": ["size", "age"]},
    "order": {"type": ["string", "null"], "enum": ["up", null, "down"]}},
    "required": ["by"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "now"}}])";

// A vocabulary of the bytes, and of a family's marks as tokens or as text.
struct Marked {
  Marked(absl::string_view family, bool as_tokens) {
    std::vector<std::pair<std::string, int32_t>> tokens;
    for (int byte = 0; byte < 256; ++byte) {
      tokens.emplace_back(std::string(1, static_cast<char>(byte)), byte);
    }
    const auto none = AnswerFormat::Make(family, [](absl::string_view) { return false; });
    for (size_t i = 0; as_tokens && i < none->family().states.size(); ++i) {
      for (const auto& exit : none->state(static_cast<int>(i)).exits) {
        // Marks of one character or of a line are never tokens.
        const bool known = std::find(marks.begin(), marks.end(), exit.mark) != marks.end();
        if (exit.mark.size() > 3 && exit.mark[0] != '`' && !known) marks.push_back(exit.mark);
      }
    }
    std::vector<std::pair<std::string, int32_t>> control;
    for (size_t i = 0; i < marks.size(); ++i) {
      control.emplace_back(marks[i], 256 + static_cast<int32_t>(i));
    }
    end = 256 + static_cast<int32_t>(marks.size());
    trie = std::make_shared<const TokenTrie>(std::move(tokens), end + 1, std::move(control));
    format = AnswerFormat::Make(family, [this](absl::string_view mark) {
      return std::find(marks.begin(), marks.end(), mark) != marks.end();
    });
  }

  absl::StatusOr<GrammarMatcher> Matcher(const OutputConstraint& constraint) const {
    WorkMeter work("the output constraint", kCompileSteps, CancelFlag::Never());
    auto machine = CompileConstraint(constraint, trie->single_bytes(), &work,
                                     &MemoryGrant::Unlimited(), trie.get());
    if (!machine.ok()) return machine.status();
    return GrammarMatcher(
        std::make_shared<GrammarCache>(*machine, trie, std::vector<int32_t>{end}));
  }

  // Reads a text in which marks are tokens wherever they are tokens of the vocabulary.
  bool Reads(GrammarMatcher& matcher, absl::string_view text) const {
    while (!text.empty()) {
      int32_t token = static_cast<unsigned char>(text[0]);
      size_t bytes = 1;
      for (size_t i = 0; i < marks.size(); ++i) {
        if (!absl::StartsWith(text, marks[i])) continue;
        token = 256 + static_cast<int32_t>(i);
        bytes = marks[i].size();
      }
      const auto read = matcher.Advance(token);
      EXPECT_TRUE(read.ok()) << read.status();
      if (!read.ok() || !*read) return false;
      text.remove_prefix(bytes);
    }
    return true;
  }

  std::vector<std::string> marks;
  int32_t end = 0;
  std::shared_ptr<const TokenTrie> trie;
  std::shared_ptr<const AnswerFormat> format;
};

OutputConstraint CallsOf(const Marked& marked, Calls calls, std::string name = "") {
  OutputConstraint constraint{.kind = OutputConstraint::Kind::kAnyText};
  constraint.answer = AnswerShape{
      .format = marked.format, .calls = calls, .tools = kTools, .name = std::move(name)};
  return constraint;
}

class AnswerGrammarTest : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  const Marked marked_{std::get<0>(GetParam()), std::get<1>(GetParam())};

  // A random answer that the matcher accepts, as tokens.
  std::vector<int32_t> Walk(GrammarMatcher matcher, std::mt19937_64& random) const {
    std::vector<int32_t> tokens;
    for (int step = 0; step < 5000; ++step) {
      const auto mask = matcher.Mask();
      EXPECT_TRUE(mask.ok()) << mask.status();
      if (!mask.ok()) break;
      std::vector<int32_t> allowed;
      std::vector<int32_t> sparing;  // without white space, of which there can be much
      for (int32_t id = 0; id <= marked_.end; ++id) {
        if ((mask->words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) == 0) continue;
        allowed.push_back(id);
        if (id != ' ' && id != '\n' && id != '\t' && id != '\r') sparing.push_back(id);
      }
      EXPECT_FALSE(allowed.empty());
      if (allowed.empty()) break;
      if (allowed.back() == marked_.end && random() % 3 > 0) return tokens;
      if (allowed.back() == marked_.end && allowed.size() > 1) allowed.pop_back();
      if (allowed.back() == marked_.end) return tokens;
      if (!sparing.empty() && sparing.back() == marked_.end) sparing.pop_back();
      const auto& from = sparing.empty() || random() % 4 == 0 ? allowed : sparing;
      tokens.push_back(from[random() % from.size()]);
      EXPECT_TRUE(matcher.Advance(tokens.back()).value());
    }
    ADD_FAILURE() << "the answer never ends";
    return tokens;
  }

  std::vector<AnswerEvent> Parse(const std::vector<int32_t>& tokens, std::string& text) const {
    AnswerParser parser(marked_.format, AnswerTools::Parse(kTools).value(), {});
    std::vector<AnswerEvent> events;
    for (const int32_t token : tokens) {
      const bool mark = token >= 256;
      const std::string bytes = mark ? marked_.marks[static_cast<size_t>(token - 256)]
                                     : std::string(1, static_cast<char>(token));
      text += bytes;
      parser.Push(bytes, mark ? AnswerParser::Token::kSpecial : AnswerParser::Token::kPlain,
                  events);
    }
    parser.Finish(events);
    return events;
  }
};

void ExpectFits(const std::string& name, const Json& arguments) {
  if (name == "now") {
    EXPECT_EQ(arguments, Json::object());
  } else if (name == "get") {
    for (const auto& [key, value] : arguments.items()) {
      EXPECT_EQ(key, "kind");
      EXPECT_TRUE(value == "a" || value == "bc") << value;
    }
  } else if (name == "sort") {
    ASSERT_TRUE(arguments.contains("by")) << arguments;
    EXPECT_TRUE(arguments["by"] == "size" || arguments["by"] == "age") << arguments;
    const Json order = arguments.value("order", Json());
    EXPECT_TRUE(order.is_null() || order == "up" || order == "down") << arguments;
    EXPECT_LE(arguments.size(), 2);
  } else {
    ASSERT_EQ(name, "get_weather");
    ASSERT_TRUE(arguments.contains("city") && arguments.contains("days")) << arguments;
    EXPECT_TRUE(arguments["city"] == "Oslo" || arguments["city"] == "Rome");
    EXPECT_TRUE(arguments["days"].is_number_integer()) << arguments;
    EXPECT_LE(arguments["days"].get<int>(), 99);
    EXPECT_TRUE(arguments.value("exact", Json(true)).is_boolean());
    EXPECT_LE(arguments.size(), 3);
  }
}

TEST_P(AnswerGrammarTest, RequiredAnswersAreCallsThatSatisfyTheSchemas) {
  std::mt19937_64 random(1);
  for (const std::string only : {"", "get"}) {
    const auto matcher = marked_.Matcher(CallsOf(marked_, Calls::kRequired, only));
    ASSERT_TRUE(matcher.ok()) << matcher.status();
    EXPECT_FALSE(matcher->may_end());
    for (int turn = 0; turn < 40; ++turn) {
      std::string text;
      const auto events = Parse(Walk(*matcher, random), text);
      SCOPED_TRACE(text);
      std::vector<std::pair<std::string, std::string>> calls;
      for (const AnswerEvent& event : events) {
        EXPECT_EQ(event.broken, "");
        EXPECT_NE(event.kind, AnswerEvent::Kind::kText);
        if (event.kind == AnswerEvent::Kind::kCallBegin) calls.emplace_back(event.name, "");
        if (event.kind == AnswerEvent::Kind::kArguments) calls.back().second += event.bytes;
      }
      ASSERT_FALSE(calls.empty());
      for (const auto& [name, arguments] : calls) {
        EXPECT_TRUE(only.empty() || name == only) << name;
        ExpectFits(name, Json::parse(arguments));
      }
    }
  }
}

TEST_P(AnswerGrammarTest, AllowedCallsLeaveAnyTextAndEndAnywhere) {
  const auto matcher = marked_.Matcher(CallsOf(marked_, Calls::kAllowed));
  ASSERT_TRUE(matcher.ok()) << matcher.status();
  if (marked_.format->family().start != "text") return;  // a header comes first
  EXPECT_TRUE(matcher->may_end());
  for (const char* text :
       {"It is 5 < 7.\nYes", "{\"a\": 1}", "\xE2\x82", "<\n<t", "a <tool_call> b"}) {
    GrammarMatcher copy = *matcher;
    // As a token, a family's mark opens a call wherever it stands.
    const bool opens =
        absl::StrContains(text, "<tool_call>") &&
        std::find(marked_.marks.begin(), marked_.marks.end(), "<tool_call>") != marked_.marks.end();
    EXPECT_EQ(marked_.Reads(copy, text), !opens) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, AnswerGrammarTest,
                         ::testing::Combine(::testing::ValuesIn([] {
                                              std::vector<std::string> names;
                                              for (const auto& family : AnswerFamilies())
                                                names.emplace_back(family.name);
                                              return names;
                                            }()),
                                            ::testing::Bool()),
                         [](const auto& param) {
                           return std::get<0>(param.param) +
                                  (std::get<1>(param.param) ? "_tokens" : "_text");
                         });

TEST(AnswerShapeTest, AnAllowedCallIsConstrainedFromItsMarkOn) {
  for (const bool as_tokens : {false, true}) {
    const Marked marked("hermes", as_tokens);
    const auto matcher = marked.Matcher(CallsOf(marked, Calls::kAllowed)).value();
    const auto reads = [&](absl::string_view text) {
      GrammarMatcher copy = matcher;
      return marked.Reads(copy, text);
    };
    EXPECT_TRUE(
        reads("I look.\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"kind\": \"a\"}}\n"
              "</tool_call>"));
    EXPECT_FALSE(reads("I look.\n<tool_call>\n{\"name\": \"other\""));
    EXPECT_FALSE(reads("<tool_call>\n{\"name\": \"get\", \"arguments\": {\"kind\": \"c\""));
    EXPECT_FALSE(reads("<tool_call>text"));
    // As text, a mark counts at the start of a line alone.
    EXPECT_EQ(reads("Write <tool_call>text"), !as_tokens);
    GrammarMatcher inside = matcher;
    ASSERT_TRUE(marked.Reads(inside, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}"));
    EXPECT_FALSE(inside.may_end());
  }
}

// Where the vocabulary has no token for a mark, tokens hold parts of it and of what is beside it.
TEST(AnswerShapeTest, RealVocabulariesWriteWholeAnswers) {
  int tried = 0;
  for (const char* name : {"qwen3", "llama3", "gpt2"}) {
    const auto folder = testing::TestData(absl::StrCat("tokenizers/", name));
    if (!folder) continue;
    ++tried;
    SCOPED_TRACE(name);
    const auto tokenizer = LoadTokenizer(*folder).value();
    const int32_t end = tokenizer->vocabulary_size();
    const auto trie =
        std::make_shared<const TokenTrie>(TokenTrie::FromTokenizer(*tokenizer, end + 1));
    OutputConstraint constraint{.kind = OutputConstraint::Kind::kAnyText};
    constraint.answer =
        AnswerShape{.format = AnswerFormat::Make("hermes",
                                                 [&](absl::string_view mark) {
                                                   const auto ids = tokenizer->Encode(mark, false);
                                                   return ids->size() == 1 &&
                                                          tokenizer->IsControl(ids->front());
                                                 }),
                    .may_think = true,
                    .calls = Calls::kAllowed,
                    .tools = kTools};
    WorkMeter work("the output constraint", kCompileSteps, CancelFlag::Never());
    const auto machine = CompileConstraint(constraint, trie->single_bytes(), &work,
                                           &MemoryGrant::Unlimited(), trie.get());
    ASSERT_TRUE(machine.ok()) << machine.status();
    const auto cache = std::make_shared<GrammarCache>(*machine, trie, std::vector<int32_t>{end});
    const std::string call =
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": ";
    const auto read = [&](const std::string& text) {
      GrammarMatcher matcher(cache);
      const std::vector<int32_t> ids = tokenizer->Encode(text, false).value();
      bool whole = true;
      for (const int32_t id : ids) {
        const TokenMask mask = matcher.Mask().value();
        const bool allowed = (mask.words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
        EXPECT_EQ(*matcher.Advance(id), allowed);
        whole = whole && allowed;
      }
      return whole && matcher.may_end();
    };
    const std::string whole = absl::StrCat(
        "<think>\nHm, <b>\xE2\x82\xAC</b>?\n</think>\n\nI look.\n", call, "3}}\n</tool_call>");
    EXPECT_TRUE(read(whole));
    EXPECT_TRUE(read("1 < 2 <tool\n"));
    EXPECT_FALSE(read(call + "\"many\"}}"));
    EXPECT_FALSE(read("Yes.\n<tool_call>\nI call"));
  }
  if (tried == 0) GTEST_SKIP() << "no test data";
}

TEST(AnswerShapeTest, AFormBeginsBehindTheReasoning) {
  const Marked marked("hermes", /*as_tokens=*/true);
  OutputConstraint constraint = ChoicesConstraint({"yes", "no"});
  constraint.answer = AnswerShape{.format = marked.format, .in_reasoning = true};
  GrammarMatcher opened = marked.Matcher(constraint).value();
  ASSERT_TRUE(marked.Reads(opened, "Hm, {\"no\"?\xE2\x82"));
  EXPECT_FALSE(opened.may_end());
  ASSERT_TRUE(marked.Reads(opened, "</think>\n\n"));
  GrammarMatcher other = opened;
  EXPECT_FALSE(marked.Reads(other, "maybe"));
  ASSERT_TRUE(marked.Reads(opened, "yes"));
  EXPECT_TRUE(opened.may_end());

  constraint.answer->in_reasoning = false;
  constraint.answer->may_think = true;
  for (const char* text : {"<think>a</think>no", "no"}) {
    GrammarMatcher free = marked.Matcher(constraint).value();
    EXPECT_TRUE(marked.Reads(free, text) && free.may_end()) << text;
  }
  GrammarMatcher twice = marked.Matcher(constraint).value();
  EXPECT_FALSE(marked.Reads(twice, "<think>a</think><think>"));
  constraint.answer->may_think = false;
  GrammarMatcher none = marked.Matcher(constraint).value();
  EXPECT_FALSE(marked.Reads(none, "<think>"));
}

TEST(AnswerShapeTest, AFormAndCallsStandBesideEachOther) {
  const Marked marked("hermes", /*as_tokens=*/false);
  OutputConstraint constraint = ChoicesConstraint({"yes", "no"});
  constraint.answer =
      AnswerShape{.format = marked.format, .calls = Calls::kAllowed, .tools = kTools};
  for (const char* text :
       {"yes", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"}) {
    GrammarMatcher matcher = marked.Matcher(constraint).value();
    EXPECT_TRUE(marked.Reads(matcher, text) && matcher.may_end()) << text;
  }
  GrammarMatcher both = marked.Matcher(constraint).value();
  EXPECT_FALSE(marked.Reads(both, "yes\n<tool_call>"));
}

// Gemma 4's objects: names without quotes, texts as they are between marks.
TEST(MarkedCallsTest, SchemasHoldInTheFamilysSpelling) {
  constexpr char kF[] = R"([{"name": "f", "parameters": {"type": "object", "properties": {
    "city": {"type": "string", "pattern": "^R[a-z]+$"}, "note": {"type": "string", "maxLength": 3},
    "days": {"type": "array", "items": {"type": "integer"}}, "a:b": {"type": "number"},
    "kind": {"const": {"a": ["x", null]}}}}}])";
  const Marked marked("gemma4", /*as_tokens=*/true);
  OutputConstraint constraint = CallsOf(marked, Calls::kRequired);
  constraint.answer->tools = kF;
  const auto made = marked.Matcher(constraint);
  ASSERT_TRUE(made.ok()) << made.status();
  const auto allows = [&](absl::string_view arguments) {
    GrammarMatcher matcher = *made;
    return marked.Reads(matcher, absl::StrCat("<|tool_call>call:f", arguments, "<tool_call|>")) &&
           matcher.may_end();
  };
  for (const char* arguments :
       {"{}", R"({city:<|"|>Rome<|"|>})", R"({city:<|"|>Rome<|"|>,note:<|"|>"\<|"|>,days:[1,2]})",
        "{note:<|\"|>\n\xE2\x82\xAC<<|\"|>}", R"({<|"|>a:b<|"|>:1.5})",
        R"({kind:{a:[<|"|>x<|"|>,null]}})", R"({other:[{x:null,y:<|"|>z<|"|>}]})",
        R"({ days: [ -1 ] })"}) {
    EXPECT_TRUE(allows(arguments)) << arguments;
  }
  for (const char* arguments :
       {R"({city:<|"|>rome<|"|>})", R"({city:"Rome"})", R"({city:Rome})",
        R"({note:<|"|>abcd<|"|>})", R"({days:[<|"|>1<|"|>]})", "{days:[1.5]}", "{a:b:1}", "{:1}",
        R"({kind:{a:[x,null]}})", R"({"city":<|"|>Rome<|"|>})", "{days:[1]"}) {
    EXPECT_FALSE(allows(arguments)) << arguments;
  }
}

// The marks are no tokens of another vocabulary.
TEST(MarkedCallsTest, PatternsNeedATokenForTheMark) {
  const Marked marked("gemma4", /*as_tokens=*/false);
  OutputConstraint constraint = CallsOf(marked, Calls::kRequired);
  constraint.answer->tools =
      R"([{"name": "f", "parameters": {"properties": {"city": {"type": "string", "pattern": "R"}}}}])";
  EXPECT_THAT(marked.Matcher(constraint).status().message(),
              HasSubstr("a vocabulary without a token for the marks of texts"));
}

// Families that write each argument between tags.
class TaggedCallsTest : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  // A call of the tool f, as the family's templates write it.
  std::string CallOf(const Pairs& pairs) const {
    const bool glm = std::get<0>(GetParam()) == "glm";
    std::string call = glm ? "<tool_call>f\n" : "<tool_call>\n<function=f>\n";
    for (const auto& [key, value] : pairs) {
      absl::StrAppend(&call, glm ? "<arg_key>" : "<parameter=", key,
                      glm ? "</arg_key>\n<arg_value>" : ">\n", value,
                      glm ? "</arg_value>\n" : "\n</parameter>\n");
    }
    return absl::StrCat(call, glm ? "</tool_call>" : "</function>\n</tool_call>");
  }

  OutputConstraint Tool(const std::string& parameters, Calls calls = Calls::kRequired) const {
    OutputConstraint constraint = CallsOf(marked_, calls);
    constraint.answer->tools = absl::StrCat(R"([{"name": "f", "parameters": )", parameters, "}]");
    return constraint;
  }

  // Whether a call with these arguments is possible.
  bool Allows(const OutputConstraint& constraint, const Pairs& pairs) const {
    auto matcher = marked_.Matcher(constraint);
    EXPECT_TRUE(matcher.ok()) << matcher.status();
    return matcher.ok() && marked_.Reads(*matcher, CallOf(pairs)) && matcher->may_end();
  }

  const Marked marked_{std::get<0>(GetParam()), std::get<1>(GetParam())};
};

TEST_P(TaggedCallsTest, ParametersThatAreOnlyTextsStandAsTheyAre) {
  for (const char* text :
       {R"({"type": "string"})", R"({"type": ["string", "null"]})",
        R"({"anyOf": [{"type": "string"}, {"type": "null"}]})",
        R"({"oneOf": [{"type": "null"}, {"type": "string"}]})",
        R"({"type": ["string", "null"], "enum": ["Rome", null]})", R"({"enum": ["Rome"]})"}) {
    SCOPED_TRACE(text);
    const OutputConstraint constraint =
        Tool(absl::StrCat(R"({"properties": {"city": )", text, "}}"));
    EXPECT_TRUE(Allows(constraint, {{"city", "Rome"}}));
    // An enum's null is no text.
    EXPECT_EQ(Allows(constraint, {{"city", "null"}}), !absl::StrContains(text, "enum"));
  }
  const OutputConstraint other =
      Tool(R"({"properties": {"city": {"type": ["string", "integer"]}}})");
  EXPECT_TRUE(Allows(other, {{"city", "\"Rome\""}}));
  EXPECT_FALSE(Allows(other, {{"city", "Rome"}}));
}

TEST_P(TaggedCallsTest, SchemasOfAnyObjectLeaveThePairsFree) {
  for (const Calls calls : {Calls::kAllowed, Calls::kRequired}) {
    for (const char* schema :
         {R"({"type": "object"})", R"({"properties": {}, "additionalProperties": true})",
          R"({"title": "f", "additionalProperties": {}})", "true"}) {
      const OutputConstraint any = Tool(schema, calls);
      EXPECT_TRUE(Allows(any, {})) << schema;
      EXPECT_TRUE(Allows(any, {{"city", "Rome"}, {"d\xC3\xA9part", "[1, 2"}})) << schema;
      EXPECT_FALSE(Allows(any, {{"", "Rome"}})) << schema;
    }
    for (const char* schema :
         {"null", R"({"properties": {}})", R"({"additionalProperties": false})"}) {
      EXPECT_TRUE(Allows(Tool(schema, calls), {})) << schema;
      EXPECT_FALSE(Allows(Tool(schema, calls), {{"city", "Rome"}})) << schema;
    }
  }
}

TEST_P(TaggedCallsTest, WhatIsNotConstrainedIsRefusedWhereSchemasBind) {
  const auto city = [](absl::string_view more) {
    return absl::StrCat(R"({"properties": {"city": {"type": "string", )", more, "}}}");
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"allOf": [{"properties": {"city": {"type": "string"}}}]})", "#/allOf"},
      {R"({"properties": {"city": {"type": "string"}}, "minProperties": 1})", "#/minProperties"},
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}})", "#/$ref"},
      {R"({"properties": {"city": {"type": "string"}}, "required": ["day"]})", "#/required"},
      {R"({"additionalProperties": {"type": "string"}})", "#/additionalProperties"},
      {R"({"type": "array"})", "#/type"},
      {city(R"("pattern": "^R")"), "#/properties/city"},
      {city(R"("minLength": 1)"), "#/properties/city"},
      {city(R"("maxLength": 3)"), "#/properties/city"},
      {city(R"("format": "date")"), "#/properties/city"},
      {city(R"("format": "uri")"), "#/properties/city/format"},
      {city(R"("enum": [1])"), "#/properties/city"}};
  for (const auto& [schema, path] : cases) {
    SCOPED_TRACE(schema);
    EXPECT_TRUE(Allows(Tool(schema, Calls::kAllowed), {{"city", "Rome"}}));
    EXPECT_THAT(marked_.Matcher(Tool(schema)).status().message(), HasSubstr(path));
    const OutputConstraint strict = Tool(schema + R"(, "strict": true)", Calls::kAllowed);
    EXPECT_THAT(marked_.Matcher(strict).status().message(), HasSubstr(path));
  }
}

TEST_P(TaggedCallsTest, TextsAreThoseOfEnumAndConst) {
  for (const char* unit :
       {R"({"type": "string", "enum": ["km", 1, null]})", R"({"type": "string", "const": "km"})",
        R"({"anyOf": [{"type": "string", "enum": ["km"]}, {"type": "null"}]})",
        R"({"type": "string", "enum": ["km", "mile"], "maxLength": 2})",
        R"({"enum": ["km", "1</parameter>1</arg_value>", "\nmile"]})"}) {
    const OutputConstraint constraint =
        Tool(absl::StrCat(R"({"properties": {"unit": )", unit, "}}"));
    EXPECT_TRUE(Allows(constraint, {{"unit", "km"}})) << unit;
    for (const char* other : {"1", "", "null", "mile", "1</parameter>1</arg_value>"}) {
      EXPECT_FALSE(Allows(constraint, {{"unit", other}})) << unit << " " << other;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TaggedCallsTest,
                         ::testing::Combine(::testing::Values("qwen3_coder", "glm"),
                                            ::testing::Bool()),
                         [](const auto& param) {
                           return std::get<0>(param.param) +
                                  (std::get<1>(param.param) ? "_tokens" : "_text");
                         });

// Not that of a look at each name for each parameter.
TEST(AnswerShapeTest, ManyRequiredNamesTakeTheTimeOfReadingThem) {
  const Marked marked("qwen3_coder", /*as_tokens=*/true);
  std::string properties;
  for (int i = 0; i < 5'000; ++i) {
    absl::StrAppend(&properties, i > 0 ? "," : "", "\"", i, R"(":{"type":"string"})");
  }
  std::string names = "\"0\"";
  for (int i = 0; i < 100'000; ++i) names += ",\"4999\"";
  const auto seconds = [&](absl::string_view key) {
    OutputConstraint constraint = CallsOf(marked, Calls::kRequired);
    constraint.answer->tools = absl::StrCat(
        R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{)",
        properties, "},\"", key, "\":[", names, "]}}}]");
    const double start = testing::ThreadSeconds();
    const auto matcher = marked.Matcher(constraint);
    const double taken = testing::ThreadSeconds() - start;
    if (!matcher.ok()) {
      EXPECT_THAT(std::string(matcher.status().message()), HasSubstr("steps"));
    }
    return taken;
  };
  double least = 1e9;
  for (int round = 0; round < 7 && least > 2; ++round) {
    const double unread = seconds("examples");
    least = std::min(least, seconds("required") / unread);
  }
  EXPECT_LE(least, 2);
}

TEST(AnswerShapeTest, UnsupportedSchemasBindOnlyWhereTheyMust) {
  const Marked marked("hermes", /*as_tokens=*/true);
  OutputConstraint constraint = CallsOf(marked, Calls::kAllowed);
  const auto tools = [](const char* more) {
    return absl::StrCat(R"([{"name": "f", "parameters": {"properties": {"a": {"not": {}}}})", more,
                        "}]");
  };
  constraint.answer->tools = tools("");
  GrammarMatcher matcher = marked.Matcher(constraint).value();
  EXPECT_TRUE(marked.Reads(
      matcher, "<tool_call>{\"name\": \"f\", \"arguments\": {\"b\": [1]}}</tool_call>"));
  constraint.answer->calls = Calls::kRequired;
  EXPECT_THAT(marked.Matcher(constraint).status().message(), HasSubstr("#/properties/a/not"));
  constraint.answer->calls = Calls::kAllowed;
  constraint.answer->tools = tools(", \"strict\": true");
  EXPECT_THAT(marked.Matcher(constraint).status().message(), HasSubstr("\"f\""));
  constraint = CallsOf(marked, Calls::kRequired, "unknown");
  EXPECT_TRUE(absl::IsNotFound(marked.Matcher(constraint).status()));
}

}  // namespace
}  // namespace annulus
