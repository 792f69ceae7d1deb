// Which documents and which question a command line stands for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/cli.h"
#include "tests/client/cli/generate_test.h"
#include "tests/client/read/make_zip.h"

namespace annulus::client {
namespace {

using testing::CliResult;
using ::testing::ElementsAre;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kAbcName[] =
    "sha256-ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

class AskedDocuments : public testing::GenerateTest {
 protected:
  std::vector<std::string> Documents() {
    const v1::GenerationSpec spec = server_.specs().back();
    return {spec.documents().begin(), spec.documents().end()};
  }
  std::string Question() { return server_.specs().back().messages().messages(0).content(); }
};

TEST_F(AskedDocuments, AskSendsAMessageAndCompleteText) {
  ASSERT_EQ(Run({"ask", Write("a.txt", "abc"), "Who?"}).exit_code, 0);
  const v1::GenerationSpec asked = server_.specs().back();
  ASSERT_EQ(asked.messages().messages_size(), 1) << asked.DebugString();
  EXPECT_EQ(asked.messages().messages(0).role(), "user");
  EXPECT_EQ(asked.messages().messages(0).content(), "Who?");
  EXPECT_THAT(Documents(), ElementsAre(kAbcName));

  ASSERT_EQ(Run({"complete", "Once"}).exit_code, 0);
  EXPECT_EQ(server_.specs().back().text(), "Once");
}

TEST_F(AskedDocuments, AskUploadsAFileOnce) {
  const std::string path = Write("abc.txt", "abc");
  ASSERT_EQ(Run({"ask", path, "What?"}).exit_code, 0);
  EXPECT_THAT(Documents(), ElementsAre(kAbcName));
  EXPECT_EQ(Question(), "What?");
  EXPECT_EQ(server_.documents().at(kAbcName), "abc");
  EXPECT_EQ(server_.titles().at(kAbcName), "abc.txt");
  EXPECT_EQ(server_.uploads().size(), 2u);

  const std::filesystem::path elsewhere = folder_ / "elsewhere";
  std::filesystem::create_directory(elsewhere);
  ASSERT_EQ(Run({"ask", Write("elsewhere/abc.txt", "abc"), "And?"}).exit_code, 0);
  EXPECT_THAT(Documents(), ElementsAre(kAbcName));
  EXPECT_EQ(server_.uploads().size(), 2u) << "the server has those bytes already";
}

// The model is told the title, so it must be that of the file that was named.
TEST_F(AskedDocuments, AskTellsTheSameTextApartByTitle) {
  ASSERT_EQ(Run({"ask", Write("abc.txt", "abc"), "What?"}).exit_code, 0);
  const std::string copy = Write("copy\n\xFF\"é.txt", "abc");
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Run({"ask", copy, "And?"}).exit_code, 0);
    ASSERT_EQ(Documents().size(), 1u);
    EXPECT_THAT(Documents()[0], StartsWith(absl::StrCat(kAbcName, "-")));
    EXPECT_EQ(server_.titles().at(Documents()[0]), "copy\n\xEF\xBF\xBD\"é.txt");
    EXPECT_EQ(server_.uploads().size(), 4u) << "uploaded once more, and not again";
  }
}

TEST_F(AskedDocuments, AskTakesSeveralKindsOfDocuments) {
  server_.AddDocument("stored", "text");
  const CliResult result =
      Run({"ask", "stored", Write("x.txt", "xyz"), "-", "[why, how]"}, {.in = "abc"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto documents = Documents();
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_EQ(documents[0], "stored");
  EXPECT_THAT(documents[1], StartsWith("sha256-"));
  EXPECT_EQ(documents[2], kAbcName);
  EXPECT_EQ(server_.titles().at(kAbcName), "standard input");
  EXPECT_EQ(Question(), "[why, how]");
}

// Entries of a zip, "0.txt" and so on.
std::vector<std::pair<std::string, std::string>> Entries(int count) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (int i = 0; i < count; ++i) {
    entries.emplace_back(absl::StrCat(i, ".txt"), absl::StrCat("text ", i));
  }
  return entries;
}

TEST_F(AskedDocuments, CountsThemBeforeTheFirstUpload) {
  const std::string many = Write("many.zip", testing::MakeZip(Entries(65)));
  const std::string half = Write("half.zip", testing::MakeZip(Entries(40)));
  const std::string other = Write("other.zip", testing::MakeZip(Entries(25)));
  std::filesystem::create_directory(folder_ / "folder");
  for (int i = 0; i < 65; ++i) Write(absl::StrCat("folder/", i, ".txt"), absl::StrCat("text ", i));
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"ask", many, "Why?"},
        {"ask", half, other, "Why?"},
        {"ask", folder_ / "folder", "Why?"},
        {"plan", many, "Why?"},
        {"complete", "Why?", "--document", many},
        {"attention", "explain", "--document", many, "--prompt", "Why?"}}) {
    const CliResult result = Run(line);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("a request takes at most 64. Nothing was uploaded"));
  }
  EXPECT_THAT(Run({"ask", many, "Why?"}).err, HasSubstr("many.zip has 65 documents; "));
  EXPECT_THAT(Run({"ask", half, other, "Why?"}).err,
              HasSubstr("other.zip has 25 documents, in total 65; "));
  EXPECT_TRUE(server_.uploads().empty());
  ASSERT_EQ(Run({"ask", half, Write("24.zip", testing::MakeZip(Entries(24))), "Why?"}).exit_code,
            0);
  EXPECT_EQ(Documents().size(), 64u);
}

TEST_F(AskedDocuments, LeavesOutWhatIsNoDocumentInAFolder) {
  std::filesystem::create_directories(folder_ / "saved" / "page_files");
  Write("saved/page.html", "<p>The answer is 7.</p>");
  Write("saved/page_files/style.css", "p { color: red }");
  Write("saved/page_files/a.JS", "alert(1)");
  Write("saved/page_files/b.js", "alert(2)");
  Write("saved/logo.png", "\x89PNG\r\n\x1a\n");
  const CliResult result = Run({"ask", folder_ / "saved", "What?"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Documents().size(), 1u);
  EXPECT_THAT(result.err, HasSubstr("saved: left out 4 files that are no document (1 css, 2 js, "
                                    "1 png); --include takes them\n"));
  EXPECT_EQ(Run({"ask", folder_ / "saved", "--include", "*.js", "What?"}).exit_code, 0);
  EXPECT_EQ(Documents().size(), 1u);
  std::filesystem::remove(folder_ / "saved" / "page.html");
  EXPECT_THAT(Run({"documents", "put", folder_ / "saved"}).err,
              HasSubstr("no file is in " + (folder_ / "saved").string() + "; "));
}

// Reads all before it uploads the first.
TEST_F(AskedDocuments, UploadsNothingIfOneCannotBeRead) {
  EXPECT_EQ(
      Run({"ask", Write("a.txt", "abc"), Write("b.png", "\x89PNG\r\n\x1A\n"), "Why?"}).exit_code,
      2);
  EXPECT_TRUE(server_.uploads().empty());
}

TEST_F(AskedDocuments, WhatAskUploadsMayBeEvicted) {
  ASSERT_EQ(Run({"ask", Write("a.txt", "abc"), "Why?"}).exit_code, 0);
  EXPECT_TRUE(server_.uploads()[0].header().transient());
  EXPECT_THAT(Run({"documents", "show", kAbcName}).out, HasSubstr("stays   until it is evicted"));
  ASSERT_EQ(Run({"documents", "put", Write("b.txt", "xyz")}).exit_code, 0);
  EXPECT_FALSE(server_.uploads()[2].header().transient());
  EXPECT_THAT(Run({"documents", "show", "b.txt"}).out, HasSubstr("stays   until it is deleted"));
}

TEST_F(AskedDocuments, WhatAskUploadedGoesIfTheCallFails) {
  ASSERT_EQ(Run({"ask", Write("before.txt", "before"), "Why?"}).exit_code, 0);
  const std::map<std::string, std::string> before = server_.documents();
  FakeServer::Reply reply;
  reply.status = {grpc::StatusCode::RESOURCE_EXHAUSTED, "no room"};
  server_.SetReply(reply);
  const CliResult result =
      Run({"ask", Write("a.txt", "abc"), Write("before.txt", "before"), "Why?"});
  EXPECT_EQ(result.exit_code, 64 + grpc::StatusCode::RESOURCE_EXHAUSTED) << result.err;
  EXPECT_THAT(server_.withdrawn(), ElementsAre(kAbcName)) << "and not what was there before";
  EXPECT_EQ(server_.documents(), before);
}

TEST_F(AskedDocuments, WhatAskUploadedGoesIfAnotherUploadFails) {
  server_.FillUpWith(1);
  const CliResult result = Run({"ask", Write("a.txt", "abc"), Write("b.txt", "b"), "Why?"});
  EXPECT_EQ(result.exit_code, 64 + grpc::StatusCode::RESOURCE_EXHAUSTED) << result.err;
  EXPECT_THAT(server_.withdrawn(), ElementsAre(kAbcName));
  EXPECT_TRUE(server_.documents().empty());
}

TEST_F(AskedDocuments, NamesOfCommandsAreOrdinaryArguments) {
  server_.AddDocument("status", "text");
  ASSERT_EQ(Run({"ask", "status", "models"}).exit_code, 0);
  EXPECT_THAT(Documents(), ElementsAre("status"));
  EXPECT_EQ(Question(), "models");
  ASSERT_EQ(Run({"complete", "ask"}).exit_code, 0);
  EXPECT_EQ(server_.specs().back().text(), "ask");
}

TEST_F(AskedDocuments, AskTakesTheQuestionFromStandardInput) {
  ASSERT_EQ(Run({"ask", Write("abc", "abc"), "-"}, {.in = "What?"}).exit_code, 0);
  EXPECT_EQ(Question(), "What?");
  EXPECT_EQ(Run({"ask", "-", "-"}, {.in = "What?"}).exit_code, 2);
}

TEST_F(AskedDocuments, CompleteTakesDocuments) {
  server_.AddDocument("stored", "text");
  const std::string path = Write("abc", "abc");
  ASSERT_EQ(Run({"complete", "--document", path, "--document", "stored", "In short: "}).exit_code,
            0);
  EXPECT_THAT(Documents(), ElementsAre(kAbcName, "stored"));
  EXPECT_EQ(server_.specs().back().text(), "In short: ");

  ASSERT_EQ(Run({"complete", "--document", "-"}, {.in = "abc"}).exit_code, 0);
  EXPECT_THAT(Documents(), ElementsAre(StartsWith(kAbcName)));
  EXPECT_EQ(server_.specs().back().text(), "");

  ASSERT_EQ(Run({"complete", "--document", path}, {.in_is_terminal = true}).exit_code, 0);
  EXPECT_EQ(server_.specs().back().text(), "");
}

TEST_F(AskedDocuments, CompleteSaysThatItTakesTheNameOfAFileForAText) {
  const std::string path = Write("report.txt", "abc");
  const CliResult result = Run({"complete", path}, {.in_is_terminal = true});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(server_.specs().back().text(), path);
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat("annulus complete --document ", path)));
  EXPECT_EQ(Run({"complete", "Once"}, {.in_is_terminal = true}).err, "");
}

TEST_F(AskedDocuments, UnknownDocumentsAreNamed) {
  CliResult result = Run({"ask", "nowhere", "What?"});
  EXPECT_EQ(result.exit_code, 64 + grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(result.err,
            "annulus: nowhere is neither a local file nor a document on the server (see 'annulus "
            "documents list')\n");
  result = Run({"ask", "../nowhere", "What?"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("no file ../nowhere"));
  result = Run({"ask", folder_ / "*.pdf", "What?"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("no file matches "));
  EXPECT_EQ(Run({"ask", folder_, "What?"}).exit_code, 2) << "it is empty";
  EXPECT_TRUE(server_.specs().empty());
}

// A mistyped path is the likelier mistake than a server that is not there.
TEST_F(AskedDocuments, WithoutAServerAMissingFileIsNamed) {
  const testing::CliInput nobody{.environment = {{"ANNULUS_SERVER", "127.0.0.1:1"}}};
  const CliResult result = testing::RunCliInProcess({"ask", "nofile.txt", "What?"}, nobody);
  EXPECT_EQ(result.exit_code, 64 + grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(result.err, StartsWith("annulus: there is no file nofile.txt, and the server could "
                                     "not look up a document of that name\n"));
  EXPECT_THAT(result.err, HasSubstr("Is annulusd running at 127.0.0.1:1?"));

  const CliResult alone = testing::RunCliInProcess({"ask", "nofile.txt"}, nobody);
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("nofile.txt (there is no such file)"));
}

TEST_F(AskedDocuments, AskReadsFilesByTheirContent) {
  const std::string page = Write("page.txt", "<html><body><h1>Title</h1><script>no</script>");
  ASSERT_EQ(Run({"ask", page, "What?"}).exit_code, 0);
  EXPECT_EQ(server_.documents().at(Documents().at(0)), "# Title\n");

  const CliResult latin = Run({"ask", Write("latin", "caf\xE9 au lait, tr\xE8s cher"), "What?"});
  EXPECT_EQ(latin.exit_code, 0);
  EXPECT_THAT(latin.err, HasSubstr("latin was converted from "));
  EXPECT_EQ(server_.documents().at(Documents().at(0)), "café au lait, très cher");
  EXPECT_EQ(Run({"ask", Write("latin", "caf\xE9 au lait, tr\xE8s cher"), "x", "--quiet"}).err, "");

  const CliResult picture = Run({"ask", Write("p.txt", "\x89PNG\r\n"), "What?"});
  EXPECT_EQ(picture.exit_code, 2);
  EXPECT_THAT(picture.err, HasSubstr("p.txt is a picture"));
}

TEST_F(AskedDocuments, AskTakesFoldersAndPatterns) {
  std::filesystem::create_directories(folder_ / "r/deep/.git");
  for (const char* name : {"r/b.md", "r/a.txt", "r/deep/c.md", "r/deep/.git/no.md", "r/[x].md"}) {
    Write(name, name);
  }
  const auto texts = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "ask");
    arguments.push_back("What?");
    const CliResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<std::string> found;
    for (const std::string& name : Documents()) found.push_back(server_.documents().at(name));
    return found;
  };
  EXPECT_THAT(texts({folder_ / "r"}), ElementsAre("r/[x].md", "r/a.txt", "r/b.md", "r/deep/c.md"));
  EXPECT_THAT(texts({folder_ / "r/**/*.md"}), ElementsAre("r/[x].md", "r/b.md", "r/deep/c.md"));
  EXPECT_THAT(texts({folder_ / "r/*.txt", folder_ / "r/?.md"}), ElementsAre("r/a.txt", "r/b.md"));
  EXPECT_THAT(texts({folder_ / "r/[x].md"}), ElementsAre("r/[x].md")) << "a file beats a pattern";
  EXPECT_THAT(
      texts({folder_ / "r", "--include", "*.md", "--exclude", "deep/*", "--exclude", "[[]x*"}),
      ElementsAre("r/b.md"));
}

TEST_F(AskedDocuments, UnreadableFilesEndTheCommandOrAreSkipped) {
  const std::string good = Write("good", "abc"), bad = Write("bad", "GIF89a");
  EXPECT_EQ(Run({"ask", good, bad, "What?"}).exit_code, 2);
  EXPECT_TRUE(server_.specs().empty());
  const CliResult skipped = Run({"ask", good, bad, "What?", "--skip-unreadable"});
  EXPECT_EQ(skipped.exit_code, 3);
  EXPECT_EQ(skipped.out, "Once upon a time\n");
  EXPECT_THAT(skipped.err, HasSubstr("skipped: " + bad + " is a picture"));
  EXPECT_THAT(Documents(), ElementsAre(kAbcName));
  const CliResult none = Run({"ask", bad, "What?", "--skip-unreadable"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("none of the documents can be read"));
}

TEST_F(AskedDocuments, FlagsSayHowFilesAreRead) {
  const std::string page = Write("p", "<!DOCTYPE html><p>text<img alt='a map'>");
  const auto text_of = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"ask", page, "What?"});
    const CliResult result = Run(flags);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return server_.documents().at(Documents().at(0));
  };
  EXPECT_EQ(text_of({}), "text\n");
  EXPECT_EQ(text_of({"--with", "alt,comments"}), "text[picture: a map]\n");
  EXPECT_THAT(Run({"ask", page, "What?"}).err, HasSubstr("--with alt reads them"));
  const std::string old = Write("old", "\x9A\n");
  ASSERT_EQ(Run({"ask", old, "What?", "--encoding", "windows-1250"}).exit_code, 0);
  EXPECT_EQ(server_.documents().at(Documents().at(0)), "š\n");
  const CliResult unknown = Run({"ask", old, "What?", "--encoding", "no-such"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("no-such is not an encoding"));
  EXPECT_EQ(Run({"ask", old, "What?", "--with", "colours"}).exit_code, 2);
}

TEST_F(AskedDocuments, AnIncompleteFileIsAnsweredAndStrictSaysSo) {
  const std::string book = Write(
      "b",
      testing::MakeZip({{"META-INF/container.xml",
                         "<container><rootfiles><rootfile full-path='p'/></rootfiles></container>"},
                        {"p",
                         "<package><manifest><item id='a' href='a.xhtml'/><item id='b' "
                         "href='b.xhtml'/></manifest><spine><itemref idref='a'/><itemref "
                         "idref='b'/></spine></package>"},
                        {"a.xhtml", "<html><body>one</body></html>"}}));
  const CliResult plain = Run({"ask", book, "What?"});
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_THAT(plain.err, HasSubstr("its page b.xhtml could not be read"));
  EXPECT_EQ(Run({"ask", book, "What?", "--strict"}).exit_code, 3);
}

TEST_F(AskedDocuments, AskTakesAPipedDocumentOnlyIfNoneIsNamed) {
  ASSERT_EQ(Run({"ask", "What?"}, {.in = "abc"}).exit_code, 0);
  EXPECT_THAT(Documents(), ElementsAre(kAbcName));
  EXPECT_EQ(Question(), "What?");

  const CliResult empty = Run({"ask", "What?"});
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(empty.err, HasSubstr("standard input is empty"));

  std::istringstream list("one\ntwo\n");
  std::ostringstream out, err;
  Console console{.in = list, .out = out, .err = err};
  Cancellation cancellation;
  const auto no_environment = [](const char*) { return std::optional<std::string>(); };
  EXPECT_EQ(RunCli({"ask", Write("abc", "abc"), "What?", "--server", server_.address()}, console,
                   no_environment, cancellation),
            0);
  EXPECT_EQ(list.tellg(), 0) << "the list of a loop stays whole";
}

}  // namespace
}  // namespace annulus::client
