// Constraints that must be refused, with a message that says where, and within the limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/engine/grammar/grammar_text.h"

namespace annulus {
namespace {

using testing::Accepts;
using testing::ChoicesConstraint;
using testing::Compile;
using ::testing::HasSubstr;
using testing::RegexConstraint;
using testing::SchemaConstraint;

void ExpectRefused(const OutputConstraint& constraint, const std::string& words) {
  const auto machine = Compile(constraint);
  EXPECT_EQ(machine.status().code(), absl::StatusCode::kInvalidArgument)
      << constraint.text.substr(0, 200) << machine.status();
  EXPECT_THAT(std::string(machine.status().message()), HasSubstr(words))
      << constraint.text.substr(0, 200);
}

TEST(HostileConstraint, OtherKeywordsAreRefusedWithTheirPath) {
  for (const char* keyword :
       {"not", "if", "then", "else", "contains", "uniqueItems", "multipleOf", "propertyNames",
        "dependencies", "dependentRequired", "minProperties", "maxProperties", "additionalItems",
        "unevaluatedProperties", "$anchor", "$id", "$dynamicRef", "contentEncoding", "typo"}) {
    const std::string schema =
        absl::StrCat(R"({"type":"object","properties":{"a/b":{"items":{")", keyword, R"(":{}}}}})");
    ExpectRefused(SchemaConstraint(schema),
                  absl::StrCat("#/properties/a~1b/items/", keyword, " is a keyword"));
  }
}

TEST(HostileConstraint, MalformedSchemas) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "schema"},
      {"{", "schema"},
      {"[]", "# is not a schema"},
      {"3", "# is not a schema"},
      {R"({"type":"text"})", "#/type is \\\"text\\\"; allowed: null"},
      {R"({"type":["string",3]})", "#/type"},
      {R"({"type":"string","type":"null"})", "given twice"},
      {R"({"enum":3})", "#/enum"},
      {R"({"properties":[]})", "#/properties"},
      {R"({"required":"a"})", "#/required"},
      {R"({"minItems":-1})", "#/minItems"},
      {R"({"maxLength":1.5})", "#/maxLength"},
      {R"({"minimum":"1"})", "#/minimum"},
      {R"({"minimum":1e400})", "schema"},
      {R"({"minimum":1e300})", "more than 60 digits"},
      {R"({"format":"iri"})", "allowed: date, time"},
      {R"x({"pattern":"(?=a)"})x", "kind of group"},
      {R"({"patternProperties":{"a.*":{}}})", "#/patternProperties/a.* is a pattern"},
      {R"({"anyOf":[]})", "#/anyOf is not a list"},
      {R"({"allOf":{}})", "#/allOf is not a list"},
      {R"({"$ref":"other.json"})", "#/$ref is"},
      {R"({"$ref":"#/$defs/a"})", "does not have"},
      {R"({"const":1,"enum":[1]})", "cannot be combined"},
      {R"({"oneOf":[{"type":"string"},{"type":"string","maxLength":3}]})", "branches 0 and 1"},
      {R"({"oneOf":[{"type":"object"},{"type":["null","object"]}]})", "branches 0 and 1"},
      {R"({"enum":["a"],"pattern":"b","type":"string"})", "limits the values"},
      {R"(false)", "no text satisfies"},
      {R"({"type":"integer","minimum":2,"maximum":1})", "no text satisfies"},
      {R"({"type":"integer","exclusiveMinimum":1,"exclusiveMaximum":2})", "no text satisfies"},
      {R"({"type":"object","properties":{"a":false},"required":["a"]})", "no text satisfies"},
      {R"({"type":"array","items":false,"minItems":1})", "no text satisfies"},
      {R"({"type":"string","minLength":3,"maxLength":2})", "no text satisfies"},
      {R"({"allOf":[{"type":"string"},{"type":"null"}]})", "no text satisfies"},
  };
  for (const auto& [schema, words] : cases) ExpectRefused(SchemaConstraint(schema), words);
}

TEST(HostileConstraint, SchemasThatReferToThemselves) {
  ExpectRefused(SchemaConstraint(R"({"$ref":"#"})"), "refers to itself");
  ExpectRefused(SchemaConstraint(R"({"anyOf":[{"type":"null"},{"$ref":"#"}]})"),
                "refers to itself");
  ExpectRefused(SchemaConstraint(R"({"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},)"
                                 R"("b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})"),
                "refers to itself");
  // It needs itself without end: found as a dead end.
  ExpectRefused(SchemaConstraint(R"({"type":"object","properties":{"a":{"$ref":"#"}},)"
                                 R"("required":["a"]})"),
                "no text satisfies");
}

TEST(HostileConstraint, DeadEndsAreLeftOut) {
  // "a" can never be closed, so it may not begin; the pattern's branch b has no end.
  const auto schema = SchemaConstraint(R"({"type":"object","properties":{"a":false,"b":{}},)"
                                       R"("additionalProperties":false})");
  auto vocabulary = testing::SmallVocabulary();
  GrammarMatcher matcher(testing::NewCache(schema, vocabulary));
  ASSERT_TRUE(*matcher.AdvanceBytes("{\""));
  EXPECT_FALSE(*matcher.AdvanceBytes("a"));
  ASSERT_TRUE(*matcher.AdvanceBytes("b"));
}

// Definitions that double with each level, by `combine` ("allOf" or "anyOf").
std::string Doubling(int levels, const std::string& combine) {
  std::string schema = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < levels; ++i) {
    const std::string next = absl::StrCat(R"({"$ref":"#/$defs/d)", i + 1, R"("})");
    absl::StrAppend(&schema, "\"d", i, R"(":{")", combine, "\":[", next, ",", next, "]},");
  }
  return absl::StrCat(schema, "\"d", levels, R"(":{"type":"integer"}}})");
}

TEST(HostileConstraint, ExponentialSchemasEnd) {
  ExpectRefused(SchemaConstraint(Doubling(40, "allOf")), "steps");
  ExpectRefused(SchemaConstraint(Doubling(40, "anyOf")), "steps");
  std::string product = R"({"allOf":[)";
  for (int i = 0; i < 30; ++i) {
    absl::StrAppend(&product, i == 0 ? "" : ",", R"({"anyOf":[{"minimum":)", i, R"(},{"maximum":)",
                    100 + i, "}]}");
  }
  ExpectRefused(SchemaConstraint(product + "]}"), "alternatives");
}

TEST(HostileConstraint, ManyBranches) {
  std::string objects = R"({"anyOf":[)";
  std::string tagged = R"({"oneOf":[)";
  std::string values = R"({"enum":[)";
  std::string optional = R"({"type":"object","properties":{)";
  for (int i = 0; i < 10000; ++i) {
    const std::string comma = i == 0 ? "" : ",";
    absl::StrAppend(&objects, comma, R"({"required":["p)", i, "\"]}");
    absl::StrAppend(&tagged, comma, R"({"type":"object","required":["k"],"properties":{"k":)",
                    R"({"const":)", i, "}}}");
    absl::StrAppend(&values, comma, "\"value ", i, "\"");
    absl::StrAppend(&optional, comma, "\"p", i, "\":{}");
  }
  ExpectRefused(SchemaConstraint(objects + "]}"), "");
  ExpectRefused(SchemaConstraint(tagged + "]}"), "steps");
  ExpectRefused(SchemaConstraint(optional + "}}"), "steps");
  // Values share their beginnings, so many of them are fine.
  EXPECT_TRUE(Accepts(SchemaConstraint(values + "]}"), "\"value 9999\""));
  EXPECT_FALSE(Accepts(SchemaConstraint(values + "]}"), "\"value 10000\""));
  // So many optional ones in a row can all be next.
  std::string fewer = R"({"type":"object","properties":{"p0":{})";
  for (int i = 1; i < 1000; ++i) absl::StrAppend(&fewer, ",\"p", i, "\":{}");
  EXPECT_TRUE(Accepts(SchemaConstraint(fewer + "}}"), R"({"p3":1,"p999":2})"));
  for (int i = 1000; i < 1100; ++i) absl::StrAppend(&fewer, ",\"p", i, "\":{}");
  ExpectRefused(SchemaConstraint(fewer + "}}"), "in more than 1024 ways");
}

TEST(HostileConstraint, LargeInputs) {
  ExpectRefused(SchemaConstraint(std::string(kMaxSchemaBytes + 1, ' ')), "allowed: 1048576");
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += R"({"items":)";
  deep += "{}" + std::string(100, '}');
  ExpectRefused(SchemaConstraint(deep), "64 levels deep");
  // A million values, none of which is a schema's.
  ExpectRefused(SchemaConstraint("{\"x\":[" + std::string(1000000, '1').replace(0, 2, "1,") + "]}"),
                "");
  std::string list = "{\"typo\":[1";
  for (int i = 0; i < 100000; ++i) list += ",1";
  ExpectRefused(SchemaConstraint(list + "]}"), "#/typo");
  for (int i = 0; i < 400000; ++i) list += ",1";
  ExpectRefused(SchemaConstraint(list + "]}"), "more than 400000 steps");
}

TEST(HostileConstraint, Regexes) {
  for (const char* pattern :
       {"(",       ")",     "[",       "[a",    "a{",          "a{2",       "a{3,2}",
        "*",       "a**",   "a{1}{2}", "\\",    "\\q",         "\\1",       "\\b",
        "\\p{L}",  "(?=a)", "(?<!a)",  "[b-a]", "[\\d-z]",     "a{100001}", "\\u12",
        "\\ud800", "a^",    "(a$)",    "^*",    "[[:alpha:]]", "\xFF",      "(?i)a"}) {
    const auto machine = Compile(RegexConstraint(pattern));
    EXPECT_EQ(machine.status().code(), absl::StatusCode::kInvalidArgument) << pattern;
  }
  ExpectRefused(RegexConstraint(std::string(70, '(') + "a" + std::string(70, ')')), "levels deep");
  ExpectRefused(RegexConstraint(std::string(20000, 'a')), "allowed: 16384");
  ExpectRefused(RegexConstraint("((((((a?){60}){60}){60}){60}){60}){60}"), "");
  ExpectRefused(RegexConstraint("[^\\s\\S]"), "no text satisfies");
  // Counts are not written out, so large ones cost nothing.
  EXPECT_TRUE(Accepts(RegexConstraint("((a{1000}){1000}){1000}|b"), "b"));
}

TEST(HostileConstraint, PatternsThatMultiply) {
  ExpectRefused(
      SchemaConstraint(R"({"type":"string","pattern":"^[ab]*a[ab]{20}$","maxLength":1000})"),
      "use smaller repetitions");
}

TEST(HostileConstraint, AmbiguityEndsWhileItRuns) {
  auto vocabulary = testing::SmallVocabulary();
  auto cache = testing::NewCache(RegexConstraint("((a|aa){1,300}b?){1,300}((a|aa|aaa){1,300})*"),
                                 vocabulary);
  GrammarMatcher matcher(cache);
  absl::Status status;
  for (int i = 0; i < 2000 && status.ok(); ++i) status = matcher.AdvanceBytes("a").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  // Others that share the cache go on.
  GrammarMatcher other(cache);
  ASSERT_TRUE(*other.AdvanceBytes("ab"));
  EXPECT_TRUE(other.Mask().ok());
}

TEST(HostileConstraint, TheDeepestAnswerIsEndedAlone) {
  auto vocabulary = testing::SmallVocabulary();
  const auto machine = Compile(SchemaConstraint(R"({"type":"array","items":{"$ref":"#"}})"));
  const auto cache = std::make_shared<GrammarCache>(
      *machine, vocabulary.trie, std::vector<int32_t>{vocabulary.end}, size_t{1} << 20);
  GrammarMatcher shallow(cache);
  GrammarMatcher deep(cache);
  ASSERT_TRUE(*shallow.AdvanceBytes("[[],"));
  absl::Status status;
  for (int depth = 0; depth < 1000000 && status.ok(); ++depth) {
    status = deep.Advance('[').status();
    if (depth % 100 == 0) {
      ASSERT_TRUE(shallow.Mask().ok());
    }
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nested too deep"));
  EXPECT_EQ(deep.Mask().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(*shallow.AdvanceBytes("[[[]]]]"));
  EXPECT_TRUE(shallow.may_end());
  EXPECT_LT(cache->bytes(), size_t{2} << 20) << "a share for each";
}

// One that has used its own up takes nothing of another's.
TEST(HostileConstraint, StepsAreCountedForEachAnswer) {
  auto vocabulary = testing::SmallVocabulary();
  const auto constraint = RegexConstraint("x(a|aa){1,600}|y(a|aa){1,600}");
  const std::string slow = "y" + std::string(150, 'a');
  const auto cache = testing::NewCache(constraint, vocabulary);
  GrammarMatcher greedy(cache);
  GrammarMatcher other(cache);
  ASSERT_TRUE(*greedy.AdvanceBytes("x"));
  absl::Status status;
  const std::string more(50, 'a');
  for (int i = 0; i < 20 && status.ok(); ++i) status = greedy.AdvanceBytes(more).status();
  ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("steps for each token"));
  const auto read = other.AdvanceBytes(slow);
  EXPECT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(other.Mask().ok());
  // What is tried on copies counts: guesses get no steps of their own.
  GrammarMatcher again(testing::NewCache(constraint, vocabulary));
  ASSERT_TRUE(*again.AdvanceBytes("x"));
  for (int i = 1; i <= 20; ++i) {
    GrammarMatcher copy = again;
    const std::string text = std::string(50 * i, 'a');
    if (status = copy.AdvanceBytes(text).status(); !status.ok()) break;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

// Each `y` is a state of its own, whose transitions are a long row.
TEST(HostileConstraint, ATokenTakesBoundedMemory) {
  auto vocabulary = testing::SmallVocabulary();
  const auto cache = testing::NewCache(
      RegexConstraint("xy{0,100000}|abcdefghijklmnopqrstuvwz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
      vocabulary);
  GrammarMatcher large(cache);
  GrammarMatcher other(cache);
  ASSERT_TRUE(*large.AdvanceBytes("x" + std::string(1000, 'y')));
  const absl::Status status = large.AdvanceBytes(std::string(90'000, 'y')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("bytes for a token"));
  EXPECT_LT(cache->bytes(), 2 * GrammarCache::kDefaultBytes) << "at once, not with the next call";
  EXPECT_TRUE(*other.AdvanceBytes("xyyy"));
}

TEST(HostileConstraint, Choices) {
  ExpectRefused(ChoicesConstraint({}), "0 choices");
  ExpectRefused(ChoicesConstraint({"a", ""}), "choice 1 is empty");
  ExpectRefused(ChoicesConstraint({"\xFF"}), "choice 0 is not UTF-8");
  ExpectRefused(ChoicesConstraint(std::vector<std::string>(10001, "a")), "10001 choices");
  ExpectRefused(ChoicesConstraint({std::string(kMaxSchemaBytes + 1, 'a')}), "bytes; allowed");
}

TEST(HostileConstraint, CancelledAndOverMemory) {
  CancelFlag cancel;
  cancel.Cancel();
  WorkMeter cancelled("the output constraint", kCompileSteps, cancel);
  std::bitset<256> bytes;
  bytes.set();
  EXPECT_EQ(CompileConstraint(SchemaConstraint("{}"), bytes, &cancelled, &MemoryGrant::Unlimited())
                .status()
                .code(),
            absl::StatusCode::kCancelled);

  class Small final : public MemoryGrant {
   public:
    absl::Status Allow(size_t wanted) override {
      most = std::max(most, wanted);
      return wanted <= (size_t{1} << 20) ? absl::OkStatus()
                                         : absl::ResourceExhaustedError("no more than 1 MiB");
    }
    size_t most = 0;
  };
  std::string large = R"({"enum":[1)";
  for (int i = 0; i < 30000; ++i) absl::StrAppend(&large, ",\"value ", i, "\"");
  Small memory;
  WorkMeter work("the output constraint", kCompileSteps, CancelFlag::Never());
  EXPECT_EQ(
      CompileConstraint(SchemaConstraint(large + "]}"), bytes, &work, &memory).status().message(),
      "no more than 1 MiB");
  EXPECT_GT(memory.most, size_t{1} << 20);
}

TEST(HostileConstraint, VocabulariesThatCannotSpell) {
  std::bitset<256> bytes;
  bytes.set();
  bytes.reset('{');
  WorkMeter work("the output constraint", kCompileSteps, CancelFlag::Never());
  const auto compile = [&](const OutputConstraint& constraint) {
    return CompileConstraint(constraint, bytes, &work, &MemoryGrant::Unlimited());
  };
  EXPECT_THAT(std::string(compile(testing::JsonObjectConstraint()).status().message()),
              HasSubstr("needs the byte 0x7B"));
  EXPECT_TRUE(compile(SchemaConstraint(R"({"type":"string"})")).ok());
  bytes.set('{');
  for (size_t byte = 0x80; byte < 256; ++byte) bytes.reset(byte);
  EXPECT_THAT(std::string(compile(RegexConstraint("[\xC3\xA0-\xC3\xBF]+")).status().message()),
              HasSubstr("vocabulary can spell"));
  EXPECT_TRUE(compile(RegexConstraint("[a\xC3\xA0-\xC3\xBF]+")).ok());
}

}  // namespace
}  // namespace annulus
