#include "engine/base/json_node.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

TEST(JsonNode, NamesTheFileTheKeyAndTheTypes) {
  const auto document =
      JsonDocument::Parse(R"({"a": {"b": [1, "x", -5, 18446744073709551615, 1.5]}})", "f.json");
  ASSERT_TRUE(document.ok());
  const auto a = document->root().Require("a");
  ASSERT_TRUE(a.ok());
  const auto b = a->Require("b");
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(std::string(b->String().status().message()),
            "f.json: a.b is [1,\"x\",-5,18446744073709551615,1.5]; allowed: a string");
  EXPECT_EQ(std::string(a->Require("c").status().message()),
            "f.json: a.c is missing; allowed: a value");
  std::string messages;
  const absl::Status status = b->ForEachElement([&](const JsonNode& element) {
    absl::StrAppend(&messages, element.Integer(0, 10).status().message(), "|");
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(messages,
            "|f.json: a.b[1] is \"x\"; allowed: a whole number from 0 to 10|"
            "f.json: a.b[2] is -5; allowed: a whole number from 0 to 10|"
            "f.json: a.b[3] is 18446744073709551615; allowed: a whole number from 0 to 10|"
            "f.json: a.b[4] is 1.5; allowed: a whole number from 0 to 10|");
}

}  // namespace
}  // namespace annulus
