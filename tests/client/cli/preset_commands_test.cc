#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/ask/preset.h"
#include "client/cli/ask/text_parts.h"
#include "tests/client/cli/run_cli.h"
#include "tests/client/fake_server.h"
#include "tests/client/read/make_zip.h"
#include "tests/support/temp_directory.h"

namespace annulus::client {
namespace {

using testing::CliResult;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(CutText, LosesNothingAndCutsWhereItReadsWell) {
  const std::string text =
      "First one.\n\nSecond paragraph is longer.\n\nThird: \u00e4\u00f6\u00fc\u00df";
  for (const size_t most : {1, 4, 5, 7, 13, 30, 45, 1000}) {
    const auto parts = CutText(text, most);
    EXPECT_EQ(absl::StrJoin(parts, ""), text) << most;
    for (const absl::string_view part : parts) {
      EXPECT_LE(part.size(), std::max<size_t>(most, 4));
      EXPECT_NE(static_cast<unsigned char>(part[0]) & 0xC0, 0x80) << "within a character: " << most;
    }
  }
  EXPECT_EQ(CutText(text, 13)[0], "First one.\n\n");
  EXPECT_THAT(CutText("", 10), SizeIs(0));
}

class PresetCommands : public ::testing::Test {
 protected:
  PresetCommands() {
    server_.SetReply(testing::StoryReply());
    SetContext(100000);
  }

  void SetContext(int64_t tokens) {
    v1::Model model;
    model.set_name("instruct");
    model.set_max_context(tokens);
    server_.SetModels({model});
  }
  CliResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--server", server_.address(), "--progress=never"});
    return testing::RunCliInProcess(
        arguments, {.environment = {{"XDG_CONFIG_HOME", directory_.path().string()}}});
  }
  std::string Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = directory_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string Question(const v1::GenerationSpec& spec) {
    return spec.messages().messages(spec.messages().messages_size() - 1).content();
  }

  FakeServer server_;
  const testing::TempDirectory directory_;
};

TEST_F(PresetCommands, AShortDocumentIsOneQuestion) {
  const CliResult result = Run({"summarize", Write("a.txt", "abc"), "--preset", "brief"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "Once upon a time\n");
  ASSERT_THAT(server_.specs(), SizeIs(1));
  EXPECT_THAT(Question(server_.specs()[0]), HasSubstr("two or three sentences"));
  EXPECT_EQ(server_.specs()[0].messages().messages(0).role(), "system");
  EXPECT_EQ(server_.specs()[0].sampling().max_tokens(), 200);
  EXPECT_THAT(server_.documents(), SizeIs(1));
  EXPECT_EQ(server_.model_requests(), 1) << "its context and its sampling come with one call";
}

TEST_F(PresetCommands, ALongOneIsCutAskedAboutAndMerged) {
  std::string text;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&text, "Paragraph ", i, " says something.\n\n");
  const std::string file = Write("long.txt", text);
  SetContext(8192);
  const CliResult result = Run({"summarize", file, "--max-tokens", "64"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "Once upon a time\n");
  const auto specs = server_.specs();
  ASSERT_GE(specs.size(), 3);
  for (size_t i = 0; i + 1 < specs.size(); ++i) {
    EXPECT_THAT(Question(specs[i]), HasSubstr("one part of a longer one"));
    EXPECT_EQ(specs[i].sampling().max_tokens(), 64);
  }
  EXPECT_THAT(Question(specs.back()), HasSubstr("summaries of the parts"));
  EXPECT_THAT(server_.documents(), SizeIs(0)) << "the parts are deleted";
}

TEST_F(PresetCommands, ExtractJoinsWhatWasFound) {
  const std::string text(40000, 'x');
  SetContext(8192);
  const CliResult result = Run({"extract", Write("long\n\x1b[2J.txt", text), "--what", "dates"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("long\\n\\u001b[2J.txt, part 1 of "));
  EXPECT_THAT(Question(server_.specs().back()), HasSubstr("Find in it: dates."));
  EXPECT_EQ(Run({"extract", "a.txt"}).exit_code, 2);
  EXPECT_EQ(Run({"summarize"}).exit_code, 2);
}

TEST_F(PresetCommands, AFailedPartIsAFailure) {
  server_.SetReply({.status = testing::MakeFailure(grpc::StatusCode::OUT_OF_RANGE, "too long")});
  SetContext(8192);
  const CliResult result = Run({"summarize", Write("long.txt", std::string(40000, 'x'))});
  EXPECT_EQ(result.exit_code, 64 + grpc::StatusCode::OUT_OF_RANGE) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(server_.documents(), SizeIs(0));
  SetContext(1000);
  EXPECT_THAT(Run({"summarize", Write("a.txt", "abc")}).err, HasSubstr("leaves no room"));
}

TEST_F(PresetCommands, CountsDocumentsBeforeTheFirstUpload) {
  v1::GetServerInfoResponse info;
  info.mutable_limits()->set_max_documents(69);
  server_.SetInfo(info);
  std::vector<std::pair<std::string, std::string>> entries;
  for (int i = 0; i < 70; ++i) entries.emplace_back(absl::StrCat(i, ".txt"), "text");
  const CliResult result = Run({"summarize", Write("many.zip", testing::MakeZip(entries))});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("there are 70 documents, but the server stores at most 69. "
                                    "Nothing was uploaded"));
  EXPECT_TRUE(server_.uploads().empty());
}

TEST_F(PresetCommands, PresetsCanBeSeenCopiedAndEdited) {
  const CliResult shown = Run({"summarize", "--show-preset"});
  EXPECT_THAT(shown.out, HasSubstr("question: |"));
  std::string mine = shown.out;
  mine.replace(mine.find("Summarize the documents"), 9, "Sing of");
  Write("annulus/presets/summarize-mine.yaml", mine);
  const CliResult list = Run({"summarize", "--list-presets"});
  EXPECT_THAT(list.out, HasSubstr("bullets"));
  EXPECT_THAT(list.out, HasSubstr("summarize-mine.yaml"));
  ASSERT_EQ(Run({"summarize", Write("a.txt", "abc"), "--preset", "mine"}).exit_code, 0);
  EXPECT_THAT(Question(server_.specs().back()), HasSubstr("Sing of the documents"));
  const std::string file = Write("other.yaml", "question: Q?\npart: P?\n");
  ASSERT_EQ(Run({"summarize", Write("a.txt", "abc"), "--preset", file}).exit_code, 0);
  EXPECT_EQ(Question(server_.specs().back()), "Q?");
  EXPECT_THAT(Run({"summarize", "a", "--preset", "none"}).err,
              HasSubstr("presets: brief, bullets, default, mine"));
}

TEST(Preset, BuiltInOnesAreGoodAndWrongOnesAreOneSentence) {
  const Environment nobody = [](const char*) { return std::nullopt; };
  for (const char* command : {"summarize", "extract"}) {
    for (const PresetText& text : ListPresets(command, nobody)) {
      const auto preset = ParsePreset(text);
      ASSERT_TRUE(preset.ok()) << preset.status();
      EXPECT_GT(preset->max_tokens, 0);
      EXPECT_EQ(absl::StrContains(preset->part, "{what}"), std::string(command) == "extract");
    }
  }
  const auto refuses = [](const std::string& text, const char* message) {
    EXPECT_THAT(std::string(ParsePreset({"x", "x.yaml", text}).status().message()),
                HasSubstr(message));
  };
  refuses("", "every line must be like");
  refuses("a: [", "not valid YAML");
  refuses("\xFF", "not UTF-8");
  refuses("qestion: a", "did you mean question?");
  refuses("question: {a: b}", "plain text");
  refuses("question: a", "the key part is missing");
  refuses("question: a\npart: b\nmax_tokens: 0", "max_tokens");
  refuses(std::string(100000, '['), "not valid YAML");
}

}  // namespace
}  // namespace annulus::client
