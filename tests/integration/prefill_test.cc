// A document is put and read ahead by the real program; questions then read their own words only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/demo/document.h"
#include "tests/integration/daemon.h"
#include "tests/integration/plain_model.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using Json = nlohmann::ordered_json;

// A daemon, and the client as a program.
class DocumentsTest : public ::testing::Test {
 protected:
  // Runs the client; its last line on both streams is JSON.
  Json Annulus(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), testing::BuildFolder() / "annulus");
    for (const char* more : {"--json", "--quiet", "--server"}) arguments.emplace_back(more);
    arguments.push_back(daemon_->address());
    Program program(arguments, {"HOME=/nonexistent"});
    EXPECT_EQ(program.WaitForExit(std::chrono::seconds(60)), 0) << program.output();
    program.WaitForOutput("\n", std::chrono::seconds(10));
    return Json::parse(program.output(), nullptr, /*allow_exceptions=*/false);
  }

  const testing::TempDirectory directory_;
  std::unique_ptr<Daemon> daemon_;
};

class PrefilledDocumentTest : public DocumentsTest {
 protected:
  PrefilledDocumentTest() {
    daemon_ =
        std::make_unique<Daemon>(std::vector<std::string>{"--ranks", "2", "--kv-memory", "64MiB"});
    document_ = bench::MakeDemoDocument({.bytes = 20'000}).value();
    directory_.Write("records.txt", document_.text);
  }

  bench::DemoDocument document_;
};

TEST_F(PrefilledDocumentTest, AskFindsWhatPutHasRead) {
  ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
  const std::string file = directory_.path() / "records.txt";
  const int64_t pages = std::ssize(document_.text) / 64 * 64;
  const Json put = Annulus({"documents", "put", "--prefill", file});
  EXPECT_EQ(put["prefilled"]["tokens"], pages) << put;
  EXPECT_EQ(put["prefilled"]["cached_tokens"], 0);
  for (const bench::DemoFact& fact : document_.facts) {
    const Json answer = Annulus({"ask", file, fact.cue, "--stop", "\\n"});
    EXPECT_EQ(answer["usage"]["cached_tokens"], pages) << answer;
    EXPECT_EQ(answer["text"], fact.answer);
  }
  // By its name, too; and once more is not read again.
  EXPECT_EQ(Annulus({"ask", "records.txt", "?", "-n", "1"})["usage"]["cached_tokens"], pages);
  EXPECT_EQ(Annulus({"documents", "put", "--prefill", file})["prefilled"]["cached_tokens"], pages);
}

// The store has place for one document, so each question evicts that of the one before. What the
// model has read of it is found again.
TEST_F(DocumentsTest, AskFindsWhatItReadOfADocumentThatWasEvicted) {
  daemon_ = std::make_unique<Daemon>(
      std::vector<std::string>{"--max-documents", "1", "--kv-memory", "64MiB"});
  ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
  const std::string text = bench::MakeDemoDocument({.bytes = 3'000}).value().text;
  directory_.Write("a.txt", text);
  directory_.Write("b.txt", std::string(500, 'b'));
  const auto cached = [&](const std::string& name) {
    return Annulus({"ask", directory_.path() / name, "?", "-n", "1"})["usage"]["cached_tokens"]
        .get<int64_t>();
  };
  const auto listed = [&] {
    const Json documents = Annulus({"documents", "list"})["documents"];
    EXPECT_EQ(documents.size(), 1u) << documents;
    return documents[0]["title"].get<std::string>();
  };
  EXPECT_EQ(cached("a.txt"), 0);
  EXPECT_EQ(cached("b.txt"), 0);
  EXPECT_EQ(listed(), "b.txt");
  EXPECT_EQ(cached("a.txt"), std::ssize(text) / 64 * 64);
  EXPECT_EQ(listed(), "a.txt");
}

// Versions of one document under one title share what stands before the first change, also once
// another of them is deleted, and the reply says where that is; not why, since the daemon does not
// know its callers.
TEST_F(DocumentsTest, AnEditedDocumentIsReadFromItsFirstChange) {
  daemon_ = std::make_unique<Daemon>(std::vector<std::string>{
      "--model", testing::PlainModel(directory_), "--ranks", "2", "--kv-memory", "64MiB"});
  ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
  const std::string text = bench::MakeDemoDocument({.bytes = 3'000}).value().text;
  const auto put = [&](const std::string& name, const std::string& version) {
    directory_.Write(name, version);
    return Annulus({"documents", "put", "--prefill", directory_.path() / name, "--title",
                    "report.txt"})["prefilled"];
  };
  const auto changed = [&text](size_t at) {
    std::string version = text;
    version[at] = version[at] == 'x' ? 'y' : 'x';
    return version;
  };
  const Json first = put("a.txt", text);
  EXPECT_EQ(first["cached_tokens"], 0);
  EXPECT_FALSE(first.contains("cache_miss")) << first;
  const Json second = put("b.txt", changed(1000));
  const Json third = put("c.txt", changed(2001));
  for (const Json* each : {&second, &third}) {
    ASSERT_TRUE(each->contains("cache_miss")) << *each;
    EXPECT_EQ((*each)["cache_miss"]["reason"], "unknown");
    const int64_t position = (*each)["cache_miss"]["position"];
    EXPECT_EQ((*each)["cached_tokens"], position / 64 * 64);
  }
  // Tokens are bytes, and the same frame stands before each.
  const int64_t between = third["cache_miss"]["position"].get<int64_t>() -
                          second["cache_miss"]["position"].get<int64_t>();
  EXPECT_EQ(between, 1001);
  const auto cached = [&](const std::string& name) {
    return Annulus({"ask", name, "Why?", "-n", "1"})["usage"]["cached_tokens"].get<int64_t>();
  };
  for (const char* name : {"a.txt", "b.txt", "c.txt"}) EXPECT_EQ(cached(name), first["tokens"]);
  Annulus({"documents", "delete", "a.txt"});
  for (const char* name : {"b.txt", "c.txt"}) EXPECT_EQ(cached(name), first["tokens"]);
}

// Pinned documents stay while others come and go, and the list tells.
TEST_F(DocumentsTest, APinnedDocumentStays) {
  daemon_ = std::make_unique<Daemon>(
      std::vector<std::string>{"--model", testing::PlainModel(directory_), "--kv-memory", "8MiB",
                               "--max-pinned", "40", "--max-pinned-by-tenant", "40"});
  ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
  const std::string text = bench::MakeDemoDocument({.bytes = 1'000}).value().text;
  directory_.Write("a.txt", text);
  const Json put = Annulus(
      {"documents", "put", "--prefill", "--pin", "--ttl", "1h", directory_.path() / "a.txt"});
  EXPECT_EQ(put["pinned"], true) << put;
  EXPECT_GT(put["expires_in"], 3500);
  EXPECT_GT(put["memory_tokens"], 900);
  EXPECT_EQ(put["disk_tokens"], 0);
  // Twice what memory holds.
  const int64_t bytes_a_token = 4 * 2 * 64 * 4;  // layers, keys and values, elements, float32
  for (int i = 0; i < 4; ++i) {
    const std::string other((size_t{4} << 20) / bytes_a_token, static_cast<char>('a' + i));
    directory_.Write("other.txt", other);
    Annulus({"complete", "?", "--document", directory_.path() / "other.txt", "-n", "1"});
  }
  EXPECT_EQ(Annulus({"documents", "show", "a.txt"})["pinned"], true);
  EXPECT_EQ(Annulus({"ask", "a.txt", "Why?", "-n", "1"})["usage"]["cached_tokens"],
            put["prefilled"]["tokens"]);
  Annulus({"documents", "unpin", "a.txt"});
  Annulus({"ask", "a.txt", "Who?", "-n", "1"});  // a step: what was ordered is done
  EXPECT_EQ(Annulus({"documents", "show", "a.txt"})["pinned"], false);
  Annulus({"documents", "delete", "a.txt"});
  EXPECT_TRUE(Annulus({"documents", "list"})["documents"].is_array());
}

}  // namespace
}  // namespace annulus::server
