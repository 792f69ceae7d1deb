#include "engine/base/json_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;

std::string Error(absl::string_view text) {
  const auto json = ParseJsonTree(text, "f.json");
  EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(json.status().message());
}

TEST(JsonParserTest, BuildsTheTree) {
  const auto json =
      ParseJsonTree(" {\"a\":[1,-2,2.5,{\"b\":null}],\"c\":{\"d\":\"\\u00e9\",\"e\":true}} ", "f");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(*json, nlohmann::json::parse(
                       "{\"a\":[1,-2,2.5,{\"b\":null}],\"c\":{\"d\":\"\xc3\xa9\",\"e\":true}}"));
  EXPECT_EQ(ParseJsonTree("7", "f").value(), 7);
}

TEST(JsonParserTest, NamesThePlaceOfAnError) {
  EXPECT_THAT(Error("{\"a\":{\"b\":1e400}}"), HasSubstr("f.json: a.b is 1e400; allowed: numbers"));
  EXPECT_THAT(Error("{\"a\":{\"b\":1,\"b\":2}}"), HasSubstr("a.b is given twice"));
  EXPECT_THAT(Error("{\"a\":[{\"b\":tru}]}"), HasSubstr("a.b is not valid JSON at byte"));
  EXPECT_THAT(Error(""), HasSubstr("f.json: is not valid JSON"));
}

TEST(JsonParserTest, LimitsNesting) {
  const std::string open(kMaxJsonDepth, '[');
  const std::string close(kMaxJsonDepth, ']');
  EXPECT_TRUE(ParseJsonTree(open + close, "f").ok());
  EXPECT_THAT(Error(absl::StrCat("[", open, close, "]")), HasSubstr("nested more than 64 levels"));
  EXPECT_THAT(Error(std::string(1'000'000, '[')), HasSubstr("64 levels"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(Error(objects), HasSubstr("a.a is nested more than 64 levels"));
}

TEST(JsonParserTest, LimitsValues) {
  std::string text = "[0";
  for (size_t i = 0; i < kMaxJsonValues; ++i) text += ",0";
  EXPECT_THAT(Error(text + "]"), HasSubstr("8388608 values"));
}

TEST(JsonParserTest, RefusesWhatIsNotJson) {
  for (const char* text :
       {"{\"a\":1,}", "[1 2]", "{a:1}", "'a'", "[NaN]", "[-Infinity]", "[01]", "[1.]", "\"\xff\"",
        "\"\\ud800\"", "\"\n\"", "1 2", "// c\n1", "{", "{\"a\"}", "nul", "[1]x",
        "{\"a\":1,\"a\":2}", "{\"a\":1,\"\\u0061\":2}"}) {
    Error(text);
  }
  EXPECT_THAT(Error(absl::string_view("1\0", 2)), HasSubstr("NUL"));
  EXPECT_THAT(Error(absl::string_view("\"a\0b\"", 5)), HasSubstr("NUL"));
  EXPECT_THAT(Error("\xEF\xBB\xBF{}"), HasSubstr("byte order mark"));
}

// Only on request, and only in the place of a value.
TEST(JsonParserTest, ReadsTheNumbersOfPython) {
  const auto json = ParseJsonTree(R"({"a": [NaN, Infinity, -Infinity], "Infinity": "NaN\"-Infinity",
                                      "\\": "\\", "b": Infinity})",
                                  "f", JsonNumbers::kPython);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_TRUE(std::isnan((*json)["a"][0].get<double>()));
  EXPECT_EQ((*json)["a"][1].get<double>(), std::numeric_limits<double>::infinity());
  EXPECT_EQ((*json)["a"][2].get<double>(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ((*json)["Infinity"], "NaN\"-Infinity");
  EXPECT_EQ((*json)["b"].get<double>(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(QuoteJson((*json)["a"]), "[NaN,Infinity,-Infinity]");
  for (const char* text : {"{NaN: 1}", "[NaN5]", "[5NaN]", "[- Infinity]", "[+Infinity]", "[nan]",
                           "[-NaN]", "[NaN NaN]", "[Inf]", "\"Infinity", "[1e999]"}) {
    EXPECT_EQ(ParseJsonTree(text, "f", JsonNumbers::kPython).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(JsonParserTest, QuotesAreEscapedAndCut) {
  EXPECT_EQ(QuoteForMessage("a\nb\x01"), "a\\nb\\x01");
  EXPECT_EQ(QuoteForMessage(std::string(100, 'x')), std::string(80, 'x') + "...");
}

TEST(JsonParserTest, DescribesAValue) {
  const auto json = nlohmann::json::parse(R"({"a":["é",{"b":null}],"c":1.5})");
  EXPECT_EQ(QuoteJson(json), "{\"a\":[\"\\u00e9\",{\"b\":null}],\"c\":1.5}");
  EXPECT_EQ(DescribeJson("f.json", "a.b", &json["c"], "less"), "f.json: a.b is 1.5; allowed: less");
  EXPECT_EQ(DescribeJson("f.json", "", nullptr, "any"), "f.json: is missing; allowed: any");
  const std::string long_list = QuoteJson(nlohmann::json(std::vector<int>(1'000'000, 7)));
  EXPECT_EQ(long_list.substr(0, 6), "[7,7,7");
  EXPECT_EQ(long_list.substr(80), "...");
  EXPECT_EQ(QuoteJson(std::string(100, 'x')), absl::StrCat("\"", std::string(79, 'x'), "..."));
}

}  // namespace
}  // namespace annulus
