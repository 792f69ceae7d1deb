// Texts that Transformers renders: see tests/golden/chat_templates/make_chat_goldens.py.
#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "absl/strings/escaping.h"
#include "engine/text/template/chat_template.h"
#include "tests/engine/text/template/fixed_clock.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using Json = nlohmann::ordered_json;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Json ReadGolden(const std::string& name) {
  return Json::parse(ReadFile(testing::TestFile("golden/chat_templates/" + name)));
}

absl::StatusOr<std::string> Render(const std::string& source, const Json& variables) {
  const absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source, "template");
  if (!parsed.ok()) return parsed.status();
  const std::string json = variables.dump();
  return parsed->Render(json, testing::FixedNow(), RenderLimits::ForInput(json.size()));
}

// The first 16 hexadecimal digits of the SHA-256.
std::string Digest(const std::string& text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), 8));
}

TEST(ChatTemplateGoldenTest, EveryConstructGivesWhatJinja2Gives) {
  const Json file = ReadGolden("constructs.json");
  ASSERT_GT(file.at("goldens").size(), 250u);
  for (const Json& golden : file.at("goldens")) {
    SCOPED_TRACE(golden.at("name").get<std::string>() + ": " +
                 golden.at("template").get<std::string>());
    const auto text = Render(golden.at("template").get<std::string>(), file.at("variables"));
    if (golden.at("text").is_null()) {
      ASSERT_FALSE(text.ok()) << *text;
      EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(text.status().message().find("template:"), absl::string_view::npos)
          << text.status();
    } else {
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(*text, golden.at("text").get<std::string>());
    }
  }
}

TEST(ChatTemplateGoldenTest, PublishedTemplatesGiveWhatTransformersGives) {
  const auto templates = testing::TestData("chat_templates");
  if (!templates.has_value()) GTEST_SKIP() << "no published templates";
  const Json conversations = ReadGolden("conversations.json");
  const Json published = ReadGolden("published.json");
  ASSERT_GE(published.size(), 12u);
  for (const auto& [name, golden] : published.items()) {
    const std::string source = ReadFile(*templates / name);
    ASSERT_EQ(Digest(source), golden.at("template").get<std::string>())
        << name << " is another version";
    ASSERT_EQ(golden.at("texts").size(), conversations.size());
    for (size_t i = 0; i < conversations.size(); ++i) {
      SCOPED_TRACE(name + ", " + conversations[i].at("name").get<std::string>());
      const auto text = Render(source, conversations[i].at("variables"));
      const Json& expected = golden.at("texts")[i];
      if (expected.is_null()) {
        EXPECT_FALSE(text.ok()) << *text;
      } else {
        ASSERT_TRUE(text.ok()) << text.status();
        EXPECT_EQ(Digest(*text), expected.get<std::string>());
      }
    }
  }
}

}  // namespace
}  // namespace annulus
