#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "tests/client/cli/run_cli.h"
#include "tests/client/fake_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::client {
namespace {

using ::testing::AllOf;
using testing::CliInput;
using testing::CliResult;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class AttentionCommands : public ::testing::Test {
 protected:
  AttentionCommands() {
    v1::MapAttentionResponse map;
    map.set_policy("strided:block=64,stride=2,local=0");
    map.set_block_tokens(64);
    map.set_blocks(4);
    map.set_side(4);
    for (int head = 0; head < 2; ++head) {
      v1::AttentionHeadMap& drawn = *map.add_heads();
      drawn.set_first_head(head * 4);
      drawn.set_head_count(4);
      drawn.set_density(head == 0 ? 0.5 : 0.25);
      drawn.set_map(
          std::string("\xff\0\0\0"
                      "\0\xff\0\0"
                      "\xff\0\xff\0"
                      "\0\xff\0\xff",
                      16));
    }
    server_.SetAttentionMap(map);
    server_.SetReply(testing::StoryReply());
  }

  CliResult Run(std::vector<std::string> arguments, const CliInput& input = {}) {
    arguments.insert(arguments.begin(), "attention");
    arguments.insert(arguments.end(), {"--server", server_.address()});
    return testing::RunCliInProcess(arguments, input);
  }
  std::string Path(const std::string& name) const { return folder_ / name; }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  FakeServer server_;
  const testing::TempDirectory directory_;
  const std::filesystem::path& folder_ = directory_.path();
};

TEST_F(AttentionCommands, ShowDrawsOnTheTerminal) {
  const CliResult result = Run({"show", "--policy", "strided:stride=2,local=0", "--seq", "250"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "strided:block=64,stride=2,local=0\n"
            "250 tokens in 4 blocks of 64, density 0.375\n"
            "queries go down, keys right, 0 to 250 tokens: █ attended, ▒ in part, · not\n\n"
            "head  head\n"
            "▀▄    ▀▄  \n"
            "▀▄▀▄  ▀▄▀▄\n");
  const v1::MapAttentionRequest request = server_.map_requests().back();
  EXPECT_EQ(request.policy(), "strided:stride=2,local=0");
  EXPECT_EQ(request.tokens(), 250);
  EXPECT_EQ(request.cells(), 64);
  EXPECT_FALSE(request.has_heads());
}

TEST_F(AttentionCommands, ShowWritesPicturesByTheNameOfTheFile) {
  ASSERT_EQ(Run({"show", "--seq", "250", "-o", Path("a.svg")}).exit_code, 0);
  EXPECT_THAT(Read(Path("a.svg")), AllOf(StartsWith("<svg "), HasSubstr("heads 4 to 7, density")));
  EXPECT_FALSE(server_.map_requests().back().has_policy());
  EXPECT_EQ(server_.map_requests().back().cells(), 128);
  const CliResult result = Run({"show", "--seq", "250", "--heads", "3", "--policy", "random",
                                "--block", "128", "--cells", "9", "-o", Path("a.png")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(Read(Path("a.png")), StartsWith("\x89PNG\r\n"));
  EXPECT_EQ(server_.map_requests().back().policy(), "random:block=128");
  EXPECT_EQ(server_.map_requests().back().heads(), 3);
  EXPECT_EQ(server_.map_requests().back().cells(), 9);
  ASSERT_EQ(Run({"show", "--seq", "9", "--policy", "random:seed=2", "--block", "32"}).exit_code, 0);
  EXPECT_EQ(server_.map_requests().back().policy(), "random:seed=2,block=32");
  EXPECT_THAT(Run({"show", "--seq", "250", "--format", "png"}).out, StartsWith("\x89PNG\r\n"));
  EXPECT_THAT(Run({"show", "--seq", "250", "--format", "svg"}).out, StartsWith("<svg "));
}

TEST_F(AttentionCommands, ShowPrintsJson) {
  EXPECT_THAT(Run({"show", "--seq", "250", "--json"}).out,
              StartsWith(R"({"policy":"strided:block=64,stride=2,local=0","tokens":250,)"
                         R"("block_tokens":64,"blocks":4,"side":4,"heads":[{"first_head":0,)"
                         R"("head_count":4,"density":0.5,"map":"/wAAAAD/AAD/AP8AAP8A/w=="},)"));
}

// Before anything is asked or computed.
TEST_F(AttentionCommands, AWrongExtensionIsRefusedWithWhatIsAllowed) {
  const auto refused = [&](std::vector<std::string> arguments, const std::string& why) {
    const CliResult result = Run(std::move(arguments));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr(why));
  };
  refused({"show", "--seq", "250", "-o", Path("a.jpg")},
          "a.jpg: .jpg is not allowed here; the name must end in .svg or .png or .txt\n");
  refused({"show", "--seq", "250", "-o", Path("a.png"), "--format", "svg"},
          ".png is not allowed here; the name must end in .svg, because of --format svg\n");
  refused({"show", "--seq", "250", "-o", Path("a.svg"), "--format", "terminal"},
          "the name must end in .txt, because of --format terminal\n");
  refused({"show", "--seq", "250", "-o", Path("a.svg"), "--json"},
          "the name must end in .json, because of --json\n");
  for (const char* name : {"a.svg", "a.txt", "a.pdf"}) {
    refused({"explain", "--prompt", "x", "-o", Path(name)},
            "is not allowed here; the name must end in .html or .htm\n");
  }
  EXPECT_TRUE(server_.map_requests().empty());
  EXPECT_TRUE(server_.specs().empty());
  for (const char* name : {"a.SVG", "a.txt", "picture"}) {
    EXPECT_EQ(Run({"show", "--seq", "250", "-o", Path(name)}).exit_code, 0) << name;
  }
  EXPECT_THAT(Read(Path("a.SVG")), StartsWith("<svg "));
  EXPECT_EQ(Run({"show", "--seq", "250", "-o", Path("b"), "--format", "png"}).exit_code, 0);
  EXPECT_EQ(Run({"explain", "--prompt", "x", "-o", Path("page.HTM")}).exit_code, 0);
}

TEST_F(AttentionCommands, MisuseIsToldAndFailuresAreExplained) {
  EXPECT_EQ(Run({"show"}).exit_code, 2);
  EXPECT_EQ(Run({"show", "--seq", "many"}).exit_code, 2);
  EXPECT_EQ(Run({"show", "--seq", "5", "--format", "gif"}).exit_code, 2);
  EXPECT_EQ(Run({"show", "--seq", "5", "--block", "64"}).exit_code, 2);
  EXPECT_EQ(Run({"show", "--seq", "5", "--format", "png"}, {.out_is_terminal = true}).exit_code, 2);
  EXPECT_EQ(Run({"explain", "--prompt", "x", "--json"}).exit_code, 2);
  EXPECT_EQ(Run({"explain"}).exit_code, 2);
  const CliResult result = Run({"show", "--seq", "5", "-o", "/nonexistent/a.svg"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write /nonexistent/a.svg: No such file"));
  v1::MapAttentionResponse broken;
  broken.set_side(4);
  broken.add_heads()->set_map("abc");
  server_.SetAttentionMap(broken);
  EXPECT_EQ(Run({"show", "--seq", "5"}).exit_code, 64 + 13);
  server_.SetFailure(testing::MakeFailure(grpc::StatusCode::INVALID_ARGUMENT, "did you mean?"));
  EXPECT_EQ(Run({"show", "--seq", "5"}).exit_code, 64 + 3);
  EXPECT_EQ(Run({"explain", "--prompt", "x"}).exit_code, 64 + 3);
}

TEST_F(AttentionCommands, ExplainWritesAPageAndPrintsTheAnswer) {
  std::ofstream(Path("doc.txt")) << "abc";
  server_.AddDocument("stored", "text", "The <title>");
  v1::GetServerInfoResponse info;
  info.set_version("1.2.3");
  info.add_models("tiny");
  server_.SetInfo(info);
  CliResult result = Run({"explain", "--document", Path("doc.txt"), "--document", "stored",
                          "--prompt", "Tell <me>", "--coverage", "0.9", "-o", Path("page.html")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "Once upon a time\n");
  EXPECT_THAT(result.err, HasSubstr("attention  dense, density 1"));
  EXPECT_THAT(Read(Path("page.html")),
              AllOf(StartsWith("<!doctype html>"), HasSubstr("Tell &lt;me&gt;"),
                    HasSubstr("Once upon a time")));
  // What it is about.
  EXPECT_THAT(Read(Path("page.html")),
              AllOf(HasSubstr("<th>model</th><td>tiny</td>"),
                    HasSubstr("<th>documents</th><td>doc.txt<br>The &lt;title&gt;</td>"),
                    HasSubstr("<th>server</th><td>annulusd 1.2.3</td>"), HasSubstr("<th>date</th>"),
                    HasSubstr(" UTC</td>")));
  v1::GenerationSpec spec = server_.specs().back();
  EXPECT_EQ(spec.documents_size(), 2);
  EXPECT_TRUE(spec.ignore_cache()) << "what was computed earlier could not be shown";
  EXPECT_TRUE(spec.attention().details());
  EXPECT_EQ(spec.attention().coverage(), 0.9);

  result =
      Run({"explain", "--prompt", "x", "--attention", "window", "--compare", "--request-id", "a"});
  EXPECT_THAT(result.out, HasSubstr("Dense attention gives the same answer."));
  ASSERT_EQ(server_.specs().size(), 3u);
  EXPECT_EQ(server_.specs()[1].attention().policy(), "window");
  EXPECT_EQ(server_.specs()[2].attention().policy(), "dense");
  EXPECT_FALSE(server_.specs()[2].attention().details());
  EXPECT_TRUE(server_.specs()[2].ignore_cache()) << "else the times could not be compared";
  EXPECT_EQ(server_.specs()[1].request_id(), "a");
  EXPECT_FALSE(server_.specs()[2].has_request_id());

  result = Run({"explain", "--prompt", "x", "--json", "-o", Path("page.html")});
  EXPECT_THAT(result.out, StartsWith(R"({"text":"Once upon a time")"));
}

}  // namespace
}  // namespace annulus::client
