#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/client/cli/run_cli.h"
#include "tests/client/fake_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::client {
namespace {

using testing::CliInput;
using testing::CliResult;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kAbcHash[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

class DocumentCommands : public ::testing::Test {
 protected:
  DocumentCommands() { directory_.Write("abc.txt", "abc"); }

  CliResult Run(std::vector<std::string> arguments, const CliInput& input = {}) {
    arguments.insert(arguments.begin(), "documents");
    arguments.insert(arguments.end(), {"--server", server_.address()});
    return testing::RunCliInProcess(arguments, input);
  }

  std::string Contents(const std::string& name) const {
    std::ifstream stream(folder_ / name);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  }
  int FileCount() const {
    const std::filesystem::directory_iterator files(folder_);
    return static_cast<int>(std::distance(begin(files), end(files)));
  }

  FakeServer server_;
  const testing::TempDirectory directory_;
  const std::filesystem::path& folder_ = directory_.path();
};

TEST_F(DocumentCommands, PutStoresAFileUnderItsName) {
  const CliResult result = Run({"put", folder_ / "abc.txt"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(
      result.out,
      absl::StrCat("title   abc.txt\nname    abc.txt\nsize    3 B\ntokens  3\nsha256  ", kAbcHash,
                   "\nage     1 min 1 s\nused    never\nmemory  0 tokens\n"
                   "host    0 tokens\ndisk    0 tokens\nkept    -\nstays   until it is deleted\n"));
  EXPECT_EQ(server_.documents().at("abc.txt"), "abc");
}

TEST_F(DocumentCommands, PutTakesANameAndStandardInput) {
  EXPECT_EQ(Run({"put", folder_ / "abc.txt", "--name", "other"}).exit_code, 0);
  EXPECT_EQ(server_.documents().at("other"), "abc");
  EXPECT_EQ(Run({"put", "-", "--name", "piped"}, {.in = "xyz"}).exit_code, 0);
  EXPECT_EQ(server_.documents().at("piped"), "xyz");
  EXPECT_EQ(server_.titles().at("other"), "abc.txt");
  EXPECT_EQ(server_.titles().at("piped"), "");
  EXPECT_EQ(Run({"put", "-", "--name", "titled", "--title", "Ä\x1b[2J"}, {.in = "x"}).exit_code, 0);
  EXPECT_EQ(server_.titles().at("titled"), "Ä\x1b[2J");
  EXPECT_THAT(Run({"show", "titled"}).out, HasSubstr("title   Ä\\u001b[2J\n"));
  EXPECT_EQ(Run({"put", "-", "--name", "bad", "--title", "\xFF"}, {.in = "x"}).exit_code, 2);
}

TEST_F(DocumentCommands, PutReadsAheadWithPrefill) {
  const CliResult one =
      Run({"put", "--prefill", "--system", "be brief", "-m", "tiny", folder_ / "abc.txt"},
          {.err_is_terminal = true});
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("\nahead   3 tokens, 2 of them computed in 1.50 s\n"
                                 "reuse   ends: the most similar cached prompt differs at token "
                                 "1\n"));
  EXPECT_THAT(one.err, HasSubstr("Reading"));
  ASSERT_EQ(server_.prefills().size(), 1u);
  EXPECT_EQ(server_.prefills()[0].name(), "abc.txt");
  EXPECT_EQ(server_.prefills()[0].system(), "be brief");
  EXPECT_EQ(server_.prefills()[0].model(), "tiny");

  directory_.Write("b.txt", "b");
  const CliResult json = Run({"put", "--prefill", folder_ / "*.txt", "--json"});
  EXPECT_EQ(json.exit_code, 0) << json.err;
  EXPECT_THAT(
      json.out,
      HasSubstr(
          R"("disk_tokens":0,"transient":false,"has_bytes":false,"has_text":false,"prefilled":{"tokens":3,)"
          R"("cached_tokens":1,"queue":0,"prefill":1.5,"cache_miss":{"reason":"other_tokens","position":1}}})"));
  EXPECT_THAT(json.out, HasSubstr(R"("prefilled":{"tokens":1,"cached_tokens":1,)"));
  EXPECT_FALSE(server_.prefills()[1].has_system());
  const CliResult table = Run({"put", "--prefill", folder_ / "*.txt"});
  EXPECT_THAT(table.out, HasSubstr("ahead of b.txt: 1 token, there before\n"));
  EXPECT_EQ(Run({"put", "--prefill", "--system", "\xFF", folder_ / "abc.txt"}).exit_code, 2);
  EXPECT_THAT(Run({"put", folder_ / "abc.txt", "--json"}).out, Not(HasSubstr("prefilled")));
}

// What a terminal shows of a name can be typed.
TEST_F(DocumentCommands, ATerminalGetsShortNamesAndColumnsThatSaySomething) {
  const std::string hash = absl::StrCat("sha256-", kAbcHash);
  server_.AddDocument(hash, "abc", "report.pdf");
  server_.AddDocument("book", "abcd");
  const std::string shown = Run({"ls"}, {.out_is_terminal = true, .columns = 80}).out;
  EXPECT_THAT(shown, HasSubstr("TITLE       SIZE  TOKENS  MEMORY   USED  NAME\n"));
  const std::string name = hash.substr(0, 15) + "*";
  EXPECT_THAT(shown, HasSubstr(name + "\n"));
  EXPECT_THAT(Run({"rm", name}).out, HasSubstr("deleted " + hash));
  // Two with the same beginning are told apart.
  server_.AddDocument(hash, "abc", "report.pdf");
  server_.AddDocument(hash + "-0123456789abcdef", "abc", "copy.pdf");
  EXPECT_THAT(Run({"ls"}, {.out_is_terminal = true, .columns = 200}).out, HasSubstr(hash + "\n"));
}

TEST_F(DocumentCommands, PutTakesSeveralFilesAndPatterns) {
  directory_.Write("b.txt", "b");
  directory_.Write("page", "<html><body>text");
  const CliResult result = Run({"put", folder_ / "*.txt", folder_ / "page"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("abc.txt   3 B"));
  EXPECT_EQ(server_.documents().size(), 3u);
  EXPECT_EQ(server_.documents().at("page"), "text\n");
  EXPECT_THAT(Run({"put", folder_ / "*.txt", "--name", "x"}).err,
              HasSubstr("--name and --title need a single file, but there are 2"));

  directory_.Write("bad", "GIF89a");
  const CliResult partial = Run({"put", folder_ / "bad", folder_ / "b.txt"});
  EXPECT_EQ(partial.exit_code, 3);
  EXPECT_THAT(partial.err, HasSubstr("bad is a picture"));
  EXPECT_THAT(partial.out, HasSubstr("b.txt"));
}

TEST_F(DocumentCommands, NamesMayBePatternsAndSeveral) {
  for (const char* name : {"rep-1", "rep-2", "other"}) server_.AddDocument(name, "abc");
  EXPECT_THAT(Run({"ls", "rep*"}).out, ::testing::Not(HasSubstr("other")));
  EXPECT_THAT(Run({"show", "rep-1", "oth*"}).out, HasSubstr("\n\ntitle   -\nname    other\n"));
  EXPECT_EQ(Run({"rm", "rep*"}).out, "deleted rep-1\ndeleted rep-2\n");
  EXPECT_EQ(Run({"rm", "rep*"}).err, "annulus: no document on the server matches rep*\n");
  EXPECT_EQ(Run({"rm", "gone", "--force"}).exit_code, 0);
  const CliResult partial = Run({"rm", "gone", "other"});
  EXPECT_EQ(partial.exit_code, 3);
  EXPECT_EQ(partial.out, "deleted other\n");
}

TEST_F(DocumentCommands, TitlesStandForNamesWhereOneDocumentHasThem) {
  server_.AddDocument("sha256-1", "abc", "report.pdf");
  server_.AddDocument("sha256-2", "abcd", "twice.txt");
  server_.AddDocument("sha256-3", "abcde", "twice.txt");
  server_.AddDocument("twice", "abcdef", "report.pdf of May");
  EXPECT_THAT(Run({"show", "report.pdf"}).out, HasSubstr("name    sha256-1\n"));
  const CliResult twice = Run({"show", "twice.txt"});
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, HasSubstr("2 documents have the title twice.txt; give the name of one: "
                                   "sha256-2, sha256-3"));
  EXPECT_THAT(Run({"show", "twice"}).out, HasSubstr("name    twice\n"));  // a name comes first
  EXPECT_THAT(Run({"ls", "*.pdf"}).out, ::testing::Not(HasSubstr("sha256-2")));
  EXPECT_THAT(Run({"show", "*.pdf"}).out, HasSubstr("sha256-1"));
  // What is deleted is named.
  EXPECT_EQ(Run({"rm", "report.pdf"}).exit_code, 64 + grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Run({"rm", ""}).exit_code, 64 + grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Run({"rm", "*.pdf"}).exit_code, 2);
  EXPECT_EQ(server_.documents().size(), 4u);
}

TEST_F(DocumentCommands, PutRefusesBadNamesAndFiles) {
  EXPECT_THAT(Run({"put", "-"}).err, HasSubstr("--name"));
  const CliResult named = Run({"put", folder_ / "abc.txt", "--name", "../up"});
  EXPECT_EQ(named.exit_code, 2);
  EXPECT_THAT(named.err, HasSubstr("../up"));
  EXPECT_EQ(Run({"put", folder_ / "missing.txt"}).exit_code, 2);
  EXPECT_EQ(Run({"put", folder_ / "*.none"}).exit_code, 2);
  EXPECT_TRUE(server_.documents().empty());
}

TEST_F(DocumentCommands, ListShowsEveryDocument) {
  EXPECT_EQ(Run({"list"}).out, "TITLE  SIZE  TOKENS  MEMORY  HOST  DISK  AGE  USED  KEPT  NAME\n");
  server_.AddDocument("a", std::string(2048, 'x'), "a.txt");
  server_.AddDocument("book", "abc", "two\nlines\u202e");
  server_.AddDocument("c", "abc");
  EXPECT_EQ(
      Run({"list"}).out,
      "TITLE                SIZE  TOKENS  MEMORY  HOST  DISK        AGE   USED  KEPT  NAME\n"
      "a.txt             2.0 KiB   2,048       0     0     0  1 min 1 s  never  -     a\n"
      "two\\nlines\\u202e      3 B       3       0     0     0  1 min 1 s  never  -     book\n"
      "-                     3 B       3       0     0     0  1 min 1 s  never  -     c\n");
}

TEST_F(DocumentCommands, TellWhatIsKeptOfADocument) {
  server_.AddDocument("a", std::string(2048, 'x'));
  v1::Document kept;
  kept.set_pinned(true);
  kept.set_expires_in(7200);
  kept.set_memory_tokens(2000);
  kept.set_host_tokens(1990);
  kept.set_disk_tokens(1984);
  server_.SetKept("a", kept);
  EXPECT_THAT(Run({"list"}).out, HasSubstr("2,048   2,000  1,990  1,984  1 min 1 s  never  "
                                           "pinned, 2 h 0 min left  a\n"));
  EXPECT_THAT(Run({"show", "a"}).out, HasSubstr("memory  2,000 tokens\nhost    1,990 tokens\n"
                                                "disk    1,984 tokens\n"
                                                "kept    pinned, 2 h 0 min left\n"));
  EXPECT_THAT(
      Run({"list", "--json"}).out,
      HasSubstr(
          R"("pinned":true,"expires_in":7200,"memory_tokens":2000,)"
          R"("host_tokens":1990,"disk_tokens":1984,"transient":false,"has_bytes":false,"has_text":false})"));
  kept.set_pinned(false);
  server_.SetKept("a", kept);
  EXPECT_THAT(Run({"show", "a"}).out, HasSubstr("kept    2 h 0 min left\n"));
}

TEST_F(DocumentCommands, PinsAndUnpins) {
  const std::string file = folder_ / "abc.txt";
  EXPECT_EQ(Run({"put", "--prefill", "--pin", "--ttl", "2h", file}).exit_code, 0);
  EXPECT_EQ(Run({"put", "--prefill", file}).exit_code, 0);
  ASSERT_EQ(server_.prefills().size(), 2u);
  EXPECT_TRUE(server_.prefills()[0].pin());
  EXPECT_EQ(server_.prefills()[0].ttl(), 7200);
  EXPECT_FALSE(server_.prefills()[1].pin());
  EXPECT_FALSE(server_.prefills()[1].has_ttl());
  EXPECT_THAT(Run({"put", "--pin", file}).err, HasSubstr("need --prefill"));
  EXPECT_THAT(Run({"put", "--prefill", "--ttl", "soon", file}).err,
              HasSubstr("soon is not a time"));
  EXPECT_EQ(Run({"unpin", "abc*"}).out, "unpinned abc.txt\n");
  EXPECT_EQ(Run({"unpin", "abc.txt", "--json"}).out, "{\"unpinned\":\"abc.txt\"}\n");
  EXPECT_THAT(server_.unpinned(), ::testing::ElementsAre("abc.txt", "abc.txt"));
  EXPECT_EQ(Run({"unpin", "gone"}).exit_code, 64 + grpc::StatusCode::NOT_FOUND);
}

TEST_F(DocumentCommands, JsonHasEveryField) {
  server_.AddDocument("a", "abc");
  const std::string document =
      absl::StrCat(R"({"name":"a","size_bytes":3,"sha256":")", kAbcHash,
                   R"(","token_count":3,"age":61,"title":"","last_used":null,)"
                   R"("pinned":false,"expires_in":null,"memory_tokens":0,"host_tokens":0,)"
                   R"("disk_tokens":0,"transient":false,"has_bytes":false,"has_text":false})");
  EXPECT_EQ(Run({"show", "a", "--json"}).out, absl::StrCat(document, "\n"));
  EXPECT_EQ(Run({"list", "--json"}).out, absl::StrCat("{\"documents\":[", document, "]}\n"));
  EXPECT_EQ(Run({"delete", "a", "--json"}).out, "{\"deleted\":\"a\"}\n");
  EXPECT_EQ(Run({"list", "--json"}).out, "{\"documents\":[]}\n");
}

TEST_F(DocumentCommands, DeleteForgets) {
  server_.AddDocument("a", "abc");
  EXPECT_EQ(Run({"delete", "a"}).out, "deleted a\n");
  const CliResult again = Run({"delete", "a"});
  EXPECT_EQ(again.exit_code, 64 + grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(again.err,
            "annulus: NOT_FOUND: no such document\n  reason: DOCUMENT_NOT_FOUND\n  document: a\n");
  EXPECT_EQ(Run({"show", "a"}).exit_code, 64 + grpc::StatusCode::NOT_FOUND);
}

TEST_F(DocumentCommands, GetBringsTheTextBack) {
  server_.AddDocument("abc.txt", "a\u00e4bc", "The title");
  for (const char* const name : {"abc.txt", "The title"}) {
    const CliResult printed = Run({"get", name});
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    EXPECT_EQ(printed.out, "a\u00e4bc");
    // Chunks of the fake server part the umlaut.
    EXPECT_EQ(Run({"get", name}, {.out_is_terminal = true}).out, "a\u00e4bc");
  }
  const std::filesystem::path file = folder_ / "back.txt";
  const CliResult saved = Run({"get", "abc.txt", "-o", file, "--json"});
  EXPECT_EQ(saved.exit_code, 0) << saved.err;
  EXPECT_THAT(saved.out, HasSubstr("\"name\":\"abc.txt\""));
  std::ifstream stream(file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), "a\u00e4bc");
  EXPECT_EQ(FileCount(), 2) << "abc.txt and back.txt";
}

// Only the file that was named is written, and a pipe stays one.
TEST_F(DocumentCommands, GetWritesNothingElse) {
  server_.AddDocument("one", "abcd");
  directory_.Write("victim.txt", "as it was");
  std::filesystem::create_symlink(folder_ / "victim.txt", folder_ / "back.txt.part");
  EXPECT_EQ(Run({"get", "one", "-o", folder_ / "back.txt"}).exit_code, 0);
  EXPECT_EQ(Contents("victim.txt"), "as it was");
  EXPECT_EQ(Contents("back.txt"), "abcd");
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "back.txt.part"));

  const std::filesystem::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDWR | O_NONBLOCK);  // so that no end waits
  ASSERT_GE(reader, 0);
  EXPECT_EQ(Run({"get", "one", "-o", pipe}).exit_code, 0);
  std::string read(10, ' ');
  EXPECT_EQ(::read(reader, read.data(), read.size()), 4);
  EXPECT_EQ(read.substr(0, 4), "abcd");
  close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_EQ(Run({"get", "one", "-o", "/dev/null"}).exit_code, 0);
  EXPECT_EQ(Run({"get", "one", "-o", folder_}).exit_code, 1) << "a folder";
}

TEST_F(DocumentCommands, GetLeavesNoHalfFile) {
  server_.AddDocument("one", "abcd");
  server_.AddDocument("other", "abcd");
  directory_.Write("back.txt", "as it was");
  server_.LoseBytes(2);
  const CliResult cut = Run({"get", "one", "-o", folder_ / "back.txt"});
  EXPECT_EQ(cut.exit_code, 64 + grpc::StatusCode::DATA_LOSS);
  EXPECT_THAT(cut.err, HasSubstr("before all bytes had come"));
  std::ifstream stream(folder_ / "back.txt");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), "as it was");
  EXPECT_EQ(FileCount(), 2) << "abc.txt and back.txt";

  EXPECT_EQ(Run({"get", "none"}).exit_code, 64 + grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Run({"get", "one", "-o", folder_ / "no" / "such"}).exit_code, 1);
  EXPECT_THAT(Run({"get", "one", "--json"}).err, HasSubstr("-o FILE"));
  EXPECT_THAT(Run({"get", "o*"}).err, HasSubstr("o* matches 2 documents; name one"));
}

TEST_F(DocumentCommands, PutNamesAFileThatIsLongerThanTheContext) {
  v1::Model model;
  model.set_name("tiny");
  model.set_max_context(6);
  server_.SetModels({model});
  directory_.Write("fits.txt", "12345");
  directory_.Write("long.txt", "1234567");
  const std::string fits = folder_ / "fits.txt", too_long = folder_ / "long.txt";
  const CliResult put = Run({"put", too_long, fits});
  EXPECT_EQ(put.exit_code, 3);
  EXPECT_THAT(put.err, HasSubstr("long.txt has 7 tokens. The model tiny reads 6 at a time"));
  ASSERT_EQ(server_.documents().size(), 1u);
  EXPECT_EQ(Run({"put", too_long}).exit_code, 2);
}

TEST_F(DocumentCommands, PutSaysBeforeItReadsAheadMoreThanFits) {
  v1::Model model;
  model.set_name("tiny");
  model.set_max_context(4096);
  model.set_kv_bytes_per_token(1024);
  server_.SetModels({model});
  v1::GetLoadResponse load;
  load.add_ranks()->set_kv_bytes_total(4096);
  load.add_ranks()->set_kv_bytes_total(4096);
  server_.SetLoad(load);
  directory_.Write("fits.txt", "12345678");
  directory_.Write("more.txt", "1");
  const std::string fits = folder_ / "fits.txt", more = folder_ / "more.txt";
  EXPECT_THAT(Run({"put", "--prefill", "--pin", fits}).err, Not(HasSubstr("room")));
  ASSERT_EQ(server_.prefills().size(), 1u);
  const CliResult warned = Run({"put", "--prefill", fits, more});
  EXPECT_EQ(warned.exit_code, 0);
  EXPECT_THAT(warned.err, HasSubstr("keys and values of 9 tokens take 9.0 KiB, and the server has "
                                    "room for 8.0 KiB of them: those read first leave"));
  ASSERT_EQ(server_.prefills().size(), 3u);
  const CliResult refused = Run({"put", "--prefill", "--pin", fits, more});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("so not all can be pinned. Nothing was read ahead"));
  EXPECT_EQ(server_.prefills().size(), 3u);
  server_.SetLoad({}, {grpc::StatusCode::PERMISSION_DENIED, "no role"});
  EXPECT_EQ(Run({"put", "--prefill", "--pin", fits, more}).exit_code, 0);
}

}  // namespace
}  // namespace annulus::client
