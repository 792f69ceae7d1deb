#include "engine/text/json_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;

absl::Status ParseStatus(absl::string_view text) {
  return JsonDocument::Parse(text, "f.json").status();
}

TEST(JsonDocument, RefusesWhatIsNotJson) {
  using namespace std::string_literals;
  for (const std::string& text :
       {""s, "{"s, "[1,]"s, "{\"a\"}"s, "nul"s, "\"\\ud800\""s, "\"\xFF\""s, "1 2"s, "[1]x"s,
        "\"a\0b\""s, "{\"a\":1,\"a\":2}"s, "{\"a\":1,\"\\u0061\":2}"s, "NaN"s, "1e999"s}) {
    const absl::Status status = ParseStatus(text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("f.json")) << text;
  }
  EXPECT_TRUE(ParseStatus(" {\"a\": [1, 2.5, -3, true, null, \"x\"]} ").ok());
}

TEST(JsonDocument, RefusesDeepNesting) {
  EXPECT_TRUE(ParseStatus(std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']')).ok());
  EXPECT_THAT(std::string(ParseStatus(std::string(1'000'000, '[')).message()), HasSubstr("nested"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(std::string(ParseStatus(objects).message()), HasSubstr("nested"));
}

TEST(JsonDocument, RefusesTooManyValues) {
  std::string text = "[0";
  for (size_t i = 0; i < kMaxJsonValues; ++i) text += ",0";
  EXPECT_THAT(std::string(ParseStatus(text + "]").message()), HasSubstr("values"));
}

TEST(JsonNode, NamesTheFileTheKeyAndTheTypes) {
  const auto document =
      JsonDocument::Parse(R"({"a": {"b": [1, "x", -5, 18446744073709551615, 1.5]}})", "f.json");
  ASSERT_TRUE(document.ok());
  const auto a = document->root().Require("a");
  ASSERT_TRUE(a.ok());
  const auto b = a->Require("b");
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(std::string(b->String().status().message()),
            "f.json: a.b: expected a string, got array");
  EXPECT_EQ(std::string(a->Require("c").status().message()), "f.json: a.c: missing");
  std::string messages;
  const absl::Status status = b->ForEachElement([&](const JsonNode& element) {
    absl::StrAppend(&messages, element.Integer(0, 10).status().message(), "|");
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(messages,
            "|f.json: a.b[1]: expected an integer, got string|f.json: a.b[2]: -5 is outside 0..10|"
            "f.json: a.b[3]: 18446744073709551615 is outside 0..10|"
            "f.json: a.b[4]: expected an integer, got number|");
}

TEST(ReadTextFile, RefusesWhatIsNoReasonableFile) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "text_files";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  EXPECT_EQ(ReadTextFile(folder / "absent").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadTextFile(folder).status().code(), absl::StatusCode::kInvalidArgument);

  const std::filesystem::path fifo = folder / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(ReadTextFile(fifo).status().code(), absl::StatusCode::kInvalidArgument);

  const std::filesystem::path large = folder / "large";
  std::ofstream(large) << "x";
  std::filesystem::resize_file(large, kMaxTextFileBytes + 1);  // sparse
  const absl::Status status = ReadTextFile(large).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("268435457 bytes"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace annulus
