#include "client/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/client/fake_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::client {
namespace {

using testing::FakeServer;

constexpr char kAbcHash[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

class DocumentsTest : public ::testing::Test {
 protected:
  DocumentsTest() {
    connection_ = std::move(Connection::Open({.server = server_.address()}, cancellation_)).value();
  }

  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  FakeServer server_;
  Cancellation cancellation_;
  std::unique_ptr<Connection> connection_;
  const testing::TempDirectory directory_;
  const std::filesystem::path& folder_ = directory_.path();
};

TEST(DocumentName, AllowsLettersDigitsAndThreeSigns) {
  for (const char* name : {"a", "A9", "report.txt", "x_y-z.1"}) {
    EXPECT_TRUE(IsDocumentName(name)) << name;
  }
  for (const char* name : {"", ".", "../x", "a..b", "a/b", "-x", "_x", "a b", "é", "a\n"}) {
    EXPECT_FALSE(IsDocumentName(name)) << name;
  }
  EXPECT_TRUE(IsDocumentName(std::string(128, 'a')));
  EXPECT_FALSE(IsDocumentName(std::string(129, 'a')));
}

TEST_F(DocumentsTest, RefusesWhatIsNoText) {
  const auto message = [](const auto& content) { return std::string(content.status().message()); };
  const std::string empty = Write("empty", "");
  EXPECT_EQ(message(OpenDocument(empty)), empty + " is empty; a document must have text");
  std::istringstream nothing;
  EXPECT_EQ(message(ReadDocument(nothing)), "standard input is empty; a document must have text");

  const std::string latin = Write("latin", "caf\xE9 au lait");
  EXPECT_EQ(message(OpenDocument(latin)),
            latin +
                " is not UTF-8 text (byte 3); convert it first, for example by iconv or "
                "pdftotext");
  std::istringstream cut("ab\xE2\x82");
  EXPECT_THAT(message(ReadDocument(cut)), ::testing::HasSubstr("(byte 2)"));
}

// Files are read in parts of 256 KiB: characters on the border are whole, and bytes are counted on.
TEST_F(DocumentsTest, ChecksTextAcrossParts) {
  const std::string euro = "\xE2\x82\xAC";
  for (int before = (256 << 10) - 4; before <= 256 << 10; ++before) {
    const std::string text = std::string(before, 'x') + euro;
    std::istringstream good(text + euro);
    EXPECT_TRUE(ReadDocument(good).ok()) << before;
    for (const char* bad : {"\xFF", "\xE2\x82", "\xE2\x82x",
                            "\xF0\x9F\x98"
                            "xyz"}) {
      std::istringstream stream(text + bad);
      const auto content = ReadDocument(stream);
      ASSERT_FALSE(content.ok()) << before;
      EXPECT_THAT(std::string(content.status().message()),
                  ::testing::HasSubstr(absl::StrCat("(byte ", before + 3, ")")));
    }
  }
}

TEST_F(DocumentsTest, HashesFilesAndStreams) {
  const auto file = OpenDocument(Write("abc", "abc"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->size, 3);
  EXPECT_EQ(file->sha256, kAbcHash);
  EXPECT_EQ(ContentName(*file), absl::StrCat("sha256-", kAbcHash));
  EXPECT_TRUE(IsDocumentName(ContentName(*file)));
  std::istringstream piped("abc");
  EXPECT_EQ(ReadDocument(piped)->sha256, kAbcHash);
}

TEST_F(DocumentsTest, RefusesFoldersAndMissingFiles) {
  EXPECT_EQ(OpenDocument(folder_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenDocument(folder_ / "no").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(DocumentsTest, UploadsInOrderedChunks) {
  const std::string text((600 << 10) + 7, 'x');
  auto content = OpenDocument(Write("long", text));
  ASSERT_TRUE(content.ok());
  std::vector<std::pair<int64_t, int64_t>> seen;
  v1::Document document;
  const grpc::Status status = UploadDocument(
      *connection_, "long", *content,
      [&](int64_t sent, int64_t total) { seen.emplace_back(sent, total); }, &document);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(server_.documents().at("long"), text);
  EXPECT_EQ(document.sha256(), content->sha256);

  const int64_t size = static_cast<int64_t>(text.size());
  EXPECT_EQ(seen, (std::vector<std::pair<int64_t, int64_t>>{
                      {256 << 10, size}, {512 << 10, size}, {size, size}}));
  const auto messages = server_.uploads();
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0].header().name(), "long");
  EXPECT_EQ(messages[0].header().total_bytes(), size);
  EXPECT_EQ(messages[0].header().sha256(), content->sha256);
  EXPECT_EQ(messages[1].chunk().offset(), 0);
  EXPECT_EQ(messages[2].chunk().offset(), 256 << 10);
  EXPECT_EQ(messages[3].chunk().offset(), 512 << 10);

  const grpc::Status again = UploadDocument(
      *connection_, "again", *content, [](int64_t, int64_t) {}, &document);
  EXPECT_TRUE(again.ok()) << "content can be uploaded twice";
  EXPECT_EQ(server_.documents().at("again"), text);
}

TEST_F(DocumentsTest, AnUploadThatTheServerRefusesEndsEarly) {
  server_.SetFailure(testing::MakeFailure(grpc::StatusCode::OUT_OF_RANGE, "too long"));
  std::istringstream stream(std::string(16 << 20, 'x'));
  auto content = ReadDocument(stream);
  ASSERT_TRUE(content.ok());
  int64_t sent = 0;
  v1::Document document;
  const grpc::Status status = UploadDocument(
      *connection_, "x", *content, [&](int64_t s, int64_t) { sent = s; }, &document);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_LT(sent, 16 << 20);
}

TEST_F(DocumentsTest, ListsEveryPage) {
  for (const char* name : {"a", "b", "c", "d", "e"}) server_.AddDocument(name, "text");
  std::vector<v1::Document> documents;
  ASSERT_TRUE(ListDocuments(*connection_, &documents).ok());
  ASSERT_EQ(documents.size(), 5u);
  EXPECT_EQ(documents[4].name(), "e");
}

TEST_F(DocumentsTest, DownloadsEveryByteOrSaysSo) {
  server_.AddDocument("a", "abcde");
  std::string text;
  const auto take = [&](absl::string_view bytes) {
    absl::StrAppend(&text, bytes);
    return text.size() < 100;
  };
  v1::Document document;
  ASSERT_TRUE(DownloadDocument(*connection_, "a", take, &document).ok());
  EXPECT_EQ(text, "abcde");
  EXPECT_EQ(document.size_bytes(), 5);
  EXPECT_EQ(DownloadDocument(*connection_, "b", take, &document).error_code(),
            grpc::StatusCode::NOT_FOUND);
  server_.LoseBytes(2);
  EXPECT_EQ(DownloadDocument(*connection_, "a", take, &document).error_code(),
            grpc::StatusCode::DATA_LOSS);
}

TEST_F(DocumentsTest, GetsAndDeletes) {
  server_.AddDocument("a", "abc");
  v1::Document document;
  ASSERT_TRUE(GetDocument(*connection_, "a", &document).ok());
  EXPECT_EQ(document.sha256(), kAbcHash);
  EXPECT_TRUE(DeleteDocument(*connection_, "a").ok());
  EXPECT_EQ(DeleteDocument(*connection_, "a").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(GetDocument(*connection_, "a", &document).error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace annulus::client
