#include "engine/model/strict_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace annulus {
namespace {

using ::testing::HasSubstr;

std::string Error(absl::string_view text) {
  const auto json = ParseStrictJson(text, "f.json");
  EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(json.status().message());
}

TEST(StrictJsonTest, BuildsTheTree) {
  const auto json = ParseStrictJson(
      " {\"a\":[1,-2,2.5,{\"b\":null}],\"c\":{\"d\":\"\\u00e9\",\"e\":true}} ", "f");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(*json, nlohmann::json::parse(
                       "{\"a\":[1,-2,2.5,{\"b\":null}],\"c\":{\"d\":\"\xc3\xa9\",\"e\":true}}"));
  EXPECT_EQ(ParseStrictJson("7", "f").value(), 7);
}

TEST(StrictJsonTest, NamesThePlaceOfAnError) {
  EXPECT_THAT(Error("{\"a\":{\"b\":1e400}}"), HasSubstr("f.json: a.b is 1e400; allowed: numbers"));
  EXPECT_THAT(Error("{\"a\":{\"b\":1,\"b\":2}}"), HasSubstr("a.b is given twice"));
  EXPECT_THAT(Error("{\"a\":[{\"b\":tru}]}"), HasSubstr("a.b is not valid JSON at byte"));
  EXPECT_THAT(Error(""), HasSubstr("f.json: is not valid JSON"));
}

TEST(StrictJsonTest, LimitsNesting) {
  EXPECT_TRUE(ParseStrictJson(std::string(32, '[') + std::string(32, ']'), "f").ok());
  EXPECT_THAT(Error(std::string(33, '[') + std::string(33, ']')), HasSubstr("32 levels"));
  EXPECT_THAT(Error(std::string(1'000'000, '[')), HasSubstr("32 levels"));
}

TEST(StrictJsonTest, RefusesWhatIsNotJson) {
  for (const char* text : {"{\"a\":1,}", "[1 2]", "{a:1}", "'a'", "[NaN]", "[-Infinity]", "[01]",
                           "[1.]", "\"\xff\"", "\"\\ud800\"", "\"\n\"", "1 2", "// c\n1"}) {
    Error(text);
  }
  EXPECT_THAT(Error(absl::string_view("1\0", 2)), HasSubstr("NUL"));
  EXPECT_THAT(Error("\xEF\xBB\xBF{}"), HasSubstr("byte order mark"));
}

TEST(StrictJsonTest, QuotesAreEscapedAndCut) {
  EXPECT_EQ(QuoteForMessage("a\nb\x01"), "a\\nb\\x01");
  EXPECT_EQ(QuoteForMessage(std::string(100, 'x')), std::string(80, 'x') + "...");
}

}  // namespace
}  // namespace annulus
