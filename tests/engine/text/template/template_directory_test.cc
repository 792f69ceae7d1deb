#include "engine/text/template/template_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/text/tokenizer.h"
#include "tests/engine/text/template/fixed_clock.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class TemplateDirectoryTest : public ::testing::Test {
 protected:
  // The text of the template for a conversation with or without tools; or the error.
  std::string Selected(bool with_tools = false) const {
    const auto directory =
        TemplateDirectory::Load(directory_.path(), *ReadTokenizerConfig(directory_.path()));
    if (!directory.ok()) return std::string(directory.status().message());
    const auto chosen = directory->Select(with_tools);
    if (!chosen.ok()) return std::string(chosen.status().message());
    return (*chosen)->Render("{}", testing::FixedNow(), RenderLimits()).value();
  }

  testing::TempDirectory directory_;
};

TEST_F(TemplateDirectoryTest, TheFileCountsBeforeTheConfig) {
  EXPECT_TRUE(
      TemplateDirectory::Load(directory_.path(), *ReadTokenizerConfig(directory_.path()))->empty());
  directory_.Write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(Selected(), "config");
  directory_.Write("chat_template.jinja", "file");
  EXPECT_EQ(Selected(), "file");
  EXPECT_EQ(Selected(/*with_tools=*/true), "file");
}

TEST_F(TemplateDirectoryTest, NamedTemplates) {
  directory_.Write("tokenizer_config.json",
                   R"({"chat_template": [{"name": "default", "template": "D"},
                                         {"name": "tool_use", "template": "T"}]})");
  EXPECT_EQ(Selected(), "D");
  EXPECT_EQ(Selected(/*with_tools=*/true), "T");

  std::filesystem::create_directory(directory_.path() / "chat_templates");
  directory_.Write("chat_templates/rag.jinja", "R");
  directory_.Write("chat_templates/notes.txt", "{% not a template");
  EXPECT_THAT(Selected(), HasSubstr("no chat template named \"default\"; it has: rag"));
  directory_.Write("chat_templates/tool_use.jinja", "file tool");
  EXPECT_EQ(Selected(/*with_tools=*/true), "file tool");
}

TEST_F(TemplateDirectoryTest, SpecialTokensAreStringsOrObjects) {
  directory_.Write("chat_template.jinja", "x");
  directory_.Write("tokenizer_config.json",
                   R"({"eos_token": {"content": "</s>"}, "bos_token": "<s>", "pad_token": null})");
  directory_.Write("special_tokens_map.json",
                   R"({"bos_token": "unused", "pad_token": {"content": "<pad>"}})");
  const auto directory =
      TemplateDirectory::Load(directory_.path(), *ReadTokenizerConfig(directory_.path()));
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_THAT(
      directory->special_tokens(),
      ElementsAre(Pair("bos_token", "<s>"), Pair("eos_token", "</s>"), Pair("pad_token", "<pad>")));
}

TEST_F(TemplateDirectoryTest, WhatIsWrongNamesFileAndPlace) {
  const std::string path = directory_.path().string();
  directory_.Write("chat_template.jinja", "a\n{% if %}");
  EXPECT_THAT(Selected(), HasSubstr(path + "/chat_template.jinja:2: expected an expression"));
  directory_.Write("chat_template.jinja", "\n{% for x in range(9) %}{{ x }}");
  EXPECT_THAT(Selected(), HasSubstr("chat_template.jinja:2: the template ends where 'endfor'"));
  std::filesystem::remove(directory_.path() / "chat_template.jinja");
  for (const char* json : {R"({"chat_template": 5})", R"({"chat_template": [{"name": "a"}]})",
                           R"({"chat_template": [5]})"}) {
    directory_.Write("tokenizer_config.json", json);
    EXPECT_THAT(Selected(),
                AllOf(HasSubstr(path + "/tokenizer_config.json"), HasSubstr("chat_template")))
        << json;
  }
  directory_.Write("tokenizer_config.json",
                   R"({"chat_template": [{"name": "rag", "template": "{{ 1 +"}]})");
  EXPECT_THAT(Selected(), HasSubstr("/tokenizer_config.json (chat_template \"rag\"):1: "));
  directory_.Write("tokenizer_config.json", R"({"chat_template": "x", "bos_token": 3})");
  EXPECT_THAT(Selected(), HasSubstr("bos_token"));
  // A folder where the file should be.
  directory_.Write("tokenizer_config.json", "{}");
  std::filesystem::create_directory(directory_.path() / "chat_template.jinja");
  EXPECT_THAT(Selected(), HasSubstr("chat_template.jinja"));
}

}  // namespace
}  // namespace annulus
