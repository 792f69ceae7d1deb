// Which texts constraints accept: regular expressions, choices and single keywords of schemas.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/grammar/grammar_text.h"

namespace annulus {
namespace {

using testing::Accepts;
using testing::ChoicesConstraint;
using testing::JsonObjectConstraint;
using testing::RegexConstraint;
using testing::SchemaConstraint;

struct Case {
  std::string constraint;
  std::vector<std::string> accepted;
  std::vector<std::string> refused;
};

void CheckSchemas(const std::vector<Case>& cases) {
  for (const Case& each : cases) {
    for (const std::string& text : each.accepted) {
      EXPECT_TRUE(Accepts(SchemaConstraint(each.constraint), text)) << each.constraint << text;
    }
    for (const std::string& text : each.refused) {
      EXPECT_FALSE(Accepts(SchemaConstraint(each.constraint), text)) << each.constraint << text;
    }
  }
}

TEST(Constraint, RegexesMatchWholeTexts) {
  const std::vector<Case> cases = {
      {"a+b?", {"a", "aaab"}, {"", "b", "abb", "xa"}},
      {"(ab|cd){2,3}", {"abcd", "cdcdab"}, {"ab", "abababab", "abc"}},
      {"[^a-c]", {"d", "\n", "\xC3\xA9", "\xF0\x9F\x98\x80"}, {"a", "b", "dd", "\xC3"}},
      {"[\\d_]{3}", {"1_2"}, {"1_", "ab1"}},
      {".*", {"", "any\ttext"}, {"two\nlines"}},
      {"\\u00e9\\x41\\.",
       {"\xC3\xA9"
        "A."},
       {"eA."}},
      {"(?:a|b)*?c", {"c", "abac"}, {"ab"}},
      {"(a?){3}b", {"b", "ab", "aaab"}, {"aaaab"}},
      {"(a*)*", {"", "aaa"}, {"b"}},
      {"^a|b$", {"a", "b"}, {"ab"}},
      {"x{2,}", {"xx", "xxxxx"}, {"x"}},
      {"[\xC3\xA0-\xC3\xBF]+", {"\xC3\xA9\xC3\xA0"}, {"\xC3\x9F", "e"}},
      {"[\\u0800-\\u{10FFFF}]", {"\xE2\x82\xAC", "\xF4\x8F\xBF\xBF"}, {"\xED\xA0\x80", "\xC3\xA9"}},
      {"(?<year>\\d{4})-\\d\\d", {"2024-10"}, {"2024-1"}},
      {"a{0}b", {"b"}, {"ab"}},
  };
  for (const Case& each : cases) {
    for (const std::string& text : each.accepted) {
      EXPECT_TRUE(Accepts(RegexConstraint(each.constraint), text))
          << each.constraint << " " << text;
    }
    for (const std::string& text : each.refused) {
      EXPECT_FALSE(Accepts(RegexConstraint(each.constraint), text))
          << each.constraint << " " << text;
    }
  }
}

TEST(Constraint, ChoicesAreTheWholeText) {
  const auto choices = ChoicesConstraint({"yes", "yes, but", "no", "\xC3\xA9t\xC3\xA9"});
  for (const char* text : {"yes", "yes, but", "no", "\xC3\xA9t\xC3\xA9"}) {
    EXPECT_TRUE(Accepts(choices, text)) << text;
  }
  for (const char* text : {"", "ye", "yes,", "nothing", "No"}) {
    EXPECT_FALSE(Accepts(choices, text)) << text;
  }
}

TEST(Constraint, AnyJsonObject) {
  for (const char* text :
       {"{}", "{\"a\":1}", "{\"a\": [1, -2.5e+3, null, true, {\"b\": \"\\u00e9\\n\"}], \"\": {}}",
        "{\n  \"a\": 1,\n  \"b\": [\n    2\n  ]\n}", "{\"\\ud83d\\ude00\":\"/\\/\"}"}) {
    EXPECT_TRUE(Accepts(JsonObjectConstraint(), text)) << text;
  }
  for (const char* text :
       {"", "[]", "1", "{", "{a:1}", "{\"a\":01}", "{\"a\":1,}", "{\"a\":\"\n\"}",
        "{\"a\":\"\\ud83d\"}", "{\"a\":\"\\ude00\"}", "{\"a\":\"\xFF\"}", "{\"a\":.5}",
        "{\"a\":1.}", "{}{}", "{\"a\":\"\\x\"}", "{\"a\":      1}"}) {
    EXPECT_FALSE(Accepts(JsonObjectConstraint(), text)) << text;
  }
}

TEST(Constraint, StringsAreMeasuredInCharacters) {
  CheckSchemas({
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", R"("abc")", "\"\xC3\xA9\xC3\xA9\xC3\xA9\"", R"("\ud83d\ude00x")", R"("\\\"")"},
       {R"("a")", R"("abcd")", R"("\ud83d\ude00")", "2"}},
      {R"({"type":"string","maxLength":0})", {R"("")"}, {R"("a")"}},
      {R"({"type":"string","pattern":"^[a-z]+\"?$"})",
       {R"("abc")", R"("abc\"")"},
       {R"("")", R"("Abc")", R"("abc"")", R"("\u0061")"}},
      {R"({"type":"string","pattern":"b"})", {R"("b")", R"("abc")", R"("\nb")"}, {R"("ac")"}},
      {R"({"type":"string","pattern":"^[a-c]*$","minLength":2,"maxLength":4})",
       {R"("ab")", R"("abca")"},
       {R"("a")", R"("abcab")", R"("xy")"}},
      {R"({"allOf":[{"pattern":"^a"},{"pattern":"z$"}],"type":"string","minLength":3})",
       {R"("abz")", R"("a--z")"},
       {R"("az")", R"("abc")", R"("bz")"}},
  });
}

TEST(Constraint, Formats) {
  CheckSchemas({
      {R"({"type":"string","format":"date"})",
       {R"("2024-02-29")", R"("1999-12-31")", R"("2000-02-29")", R"("0001-01-01")"},
       {R"("2023-02-29")", R"("1900-02-29")", R"("2024-13-01")", R"("2024-04-31")",
        R"("0000-01-01")", R"("24-01-01")"}},
      {R"({"type":"string","format":"date-time"})",
       {R"("2024-02-29T23:59:59Z")", R"("2024-01-01T00:00:00.25+05:30")"},
       {R"("2024-01-01 00:00:00Z")", R"("2024-01-01T24:00:00Z")", R"("2024-01-01T00:00:00")"}},
      {R"({"type":"string","format":"uuid"})",
       {R"("2eb8aa08-aa98-11ea-b4aa-73b441d16380")"},
       {R"("2eb8aa08aa9811eab4aa73b441d16380")"}},
      {R"({"type":"string","format":"email"})",
       {R"("a.b@example.com")", R"("o'hara@x")"},
       {R"("a..b@example.com")", R"("a@")", R"("a@-b")", R"("plain")"}},
      {R"({"type":"string","format":"ipv4"})",
       {R"("0.0.0.0")", R"("255.249.199.9")"},
       {R"("256.0.0.0")", R"("1.2.3")", R"("01.2.3.4")"}},
  });
}

TEST(Constraint, NumbersWithinBounds) {
  CheckSchemas({
      {R"({"type":"integer","minimum":-12,"maximum":105})",
       {"-12", "-9", "-1", "0", "7", "99", "100", "105"},
       {"-13", "-120", "106", "1050", "1.0", "1e1", "007"}},
      {R"({"type":"number","exclusiveMinimum":0.5,"maximum":2})",
       {"0.51", "0.500001", "1", "1.99", "2", "2.0"},
       {"0.5", "0.50", "2.01", "0", "-1"}},
      {R"({"type":"number","exclusiveMaximum":0})", {"-0.1", "-12"}, {"0", "-0", "-0.0", "1"}},
      {R"({"type":"integer","minimum":1000})", {"1000", "99999"}, {"999", "-1000", "0"}},
      {R"({"type":"integer","maximum":-5})", {"-5", "-50"}, {"-4", "0", "5"}},
      {R"({"type":"integer","minimum":2.5,"maximum":3.5})", {"3"}, {"2", "4", "2.5"}},
      {R"({"minimum":1.5})", {"\"x\"", "null", "1.5", "2"}, {"1"}},
  });
  // Every number of a range, by comparison.
  for (int low = -25; low <= 25; low += 5) {
    for (int high = low; high <= 125; high += 25) {
      const std::string schema =
          absl::StrCat(R"({"type":"integer","minimum":)", low, R"(,"maximum":)", high, "}");
      static const auto& vocabulary = *new testing::SmallVocabulary();
      const GrammarMatcher matcher(testing::NewCache(SchemaConstraint(schema), vocabulary));
      for (int value = -40; value <= 140; ++value) {
        EXPECT_EQ(Accepts(matcher, absl::StrCat(value)), low <= value && value <= high)
            << schema << value;
      }
    }
  }
}

TEST(Constraint, ObjectsInTheOrderOfTheSchema) {
  CheckSchemas({
      {R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"boolean"}},)"
       R"("required":["b"],"additionalProperties":false})",
       {R"({"b":1})", R"({"b":1,"a":true})", "{\n \"b\": 1,\n \"a\": true\n}"},
       {"{}", R"({"a":true,"b":1})", R"({"b":1,"c":2})", R"({"b":"1"})", R"({"b":1,"b":1})"}},
      {R"({"type":"object","properties":{"a":{},"b":{}},"additionalProperties":false})",
       {"{}", R"({"a":1})", R"({"b":1})", R"({"a":1,"b":[]})"},
       {R"({"b":1,"a":1})", R"({,"a":1})"}},
      // Others come last, may not take a name of the properties, and are spelled in one way so far.
      {R"({"type":"object","properties":{"ab":{"type":"integer"}},)"
       R"("additionalProperties":{"type":"string"}})",
       {R"({"ab":1,"a":"","abc":"","b":""})", R"({"\"":"x"})", "{\"\xC3\xA9\":\"\"}"},
       {R"({"ab":"x"})", R"({"a":1})", R"({"x":"","ab":1})", R"({"\u0061b":""})"}},
      {R"({"type":"object","required":["z"],"properties":{"a":{"const":1}}})",
       {R"({"z":null})", R"({"a":1,"z":2,"y":3})"},
       {R"({"a":1})", R"({"a":2,"z":1})"}},
      {R"({"type":"object","patternProperties":{"^x-":{"type":"integer"},"^x-s":{"minimum":5}},)"
       R"("additionalProperties":false})",
       {"{}", R"({"x-":1,"x-a":2,"x-s":5,"x-sa":6})"},
       {R"({"x-s":4})", R"({"y":1})", R"({"x-a":"s"})"}},
  });
}

TEST(Constraint, ArraysAndTheirLengths) {
  CheckSchemas({
      {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
       {"[1]", "[1, 2,3]", "[\n1\n]"},
       {"[]", "[1,2,3,4]", "[1,]", "[true]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false})",
       {"[]", "[1]", R"([1,"a"])"},
       {R"(["a"])", R"([1,"a",1])"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"boolean"},)"
       R"("minItems":2,"maxItems":3})",
       {"[1,true]", "[1,true,false]"},
       {"[1]", "[1,2]", "[1,true,true,true]"}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"type":"array","minItems":1,"maxItems":1})", {"[1]"}, {"[]", "[1,1]"}},
      {R"({"type":"array","prefixItems":[{"const":1},{"const":2},{"const":3}],"maxItems":2})",
       {"[]", "[1]", "[1,2]"},
       {"[1,2,3]", "[2]"}},
  });
}

TEST(Constraint, AlternativesAndReferences) {
  CheckSchemas({
      {R"({"enum":["a","ab",1,null,[1,{"k":2}],1.50]})",
       {R"("a")", R"("ab")", "1", "null", R"([1, {"k": 2}])", "1.5"},
       {R"("b")", "2", "[1]"}},
      {R"({"type":"string","enum":["a",1,"bcd"],"maxLength":2})", {R"("a")"}, {"1", R"("bcd")"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"null"}],"title":"t"})", {"1", "null"}, {"1.5"}},
      {R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"x":{"type":"integer"}},)"
       R"("required":["k","x"]},{"type":"object","properties":{"k":{"const":"b"}},)"
       R"("required":["k"]}]})",
       {R"({"k":"a","x":1})", R"({"k":"b","x":"free"})"},
       {R"({"k":"a"})", R"({"k":"c"})"}},
      {R"({"allOf":[{"properties":{"a":{"type":"number"}},"required":["a"]},)"
       R"({"properties":{"a":{"minimum":3}}}],"type":"object"})",
       {R"({"a":3.5})"},
       {R"({"a":2})", "{}"}},
      {R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},)"
       R"("next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},)"
       R"("required":["v","next"],"additionalProperties":false}},"$ref":"#/$defs/node"})",
       {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
       {R"({"v":1})", R"({"v":1,"next":{"v":2}})"}},
      {R"({"definitions":{"a/b":{"const":1},"c~%":{"const":2}},)"
       R"("anyOf":[{"$ref":"#/definitions/a~1b"},{"$ref":"#/definitions/c~0%25"}]})",
       {"1", "2"},
       {"3"}},
      {R"({"items":{"$ref":"#"},"type":"array"})", {"[]", "[[],[[]]]"}, {"[1]"}},
  });
}

}  // namespace
}  // namespace annulus
