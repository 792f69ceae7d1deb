// What the reader of forms takes, however the bytes are cut, and what it refuses.

#include "server/http/files/multipart_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace annulus::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Notes what it gets: "name/filename/type=value".
class Notes final : public FormTaker {
 public:
  absl::Status OnPart(const FormPart& part) override {
    parts.push_back(
        absl::StrCat(part.name, "/", part.filename.value_or("-"), "/", part.content_type, "="));
    return absl::OkStatus();
  }
  absl::Status OnData(absl::string_view bytes) override {
    EXPECT_FALSE(bytes.empty());
    absl::StrAppend(&parts.back(), bytes);
    return absl::OkStatus();
  }
  absl::Status OnPartEnd() override {
    parts.back() += ";";
    return absl::OkStatus();
  }
  std::vector<std::string> parts;
};

struct Read {
  absl::Status status;
  std::vector<std::string> parts;
};

Read ReadIn(const std::string& body, size_t piece, const std::string& boundary = "XX") {
  Notes notes;
  MultipartReader reader(boundary, notes);
  Read read;
  for (size_t at = 0; at < body.size() && read.status.ok(); at += piece) {
    read.status = reader.Take(body.substr(at, piece));
  }
  if (read.status.ok()) read.status = reader.Finish();
  read.parts = notes.parts;
  return read;
}

constexpr char kPart[] = "Content-Disposition: form-data; name=\"a\"\r\n\r\n";

TEST(MultipartReaderTest, ReadsTheSameWhereverBytesAreCut) {
  // Texts that begin like the boundary, an empty value, a preamble and an epilogue.
  const std::string body =
      "nobody reads this\r\n--X\r\n--XX \t\r\n"
      "content-disposition: form-data; name=\"file\"; filename=\"a \\\"b\\\".txt\"\r\n"
      "Content-Type: text/plain; charset=utf-8\r\n\r\n"
      "one\r\n--Xtwo\r\n-\r\n\r\n--X\r\n--XX\r\n"
      "Content-Disposition: form-data; name=purpose\r\n\r\n\r\n--XX\r\n"
      "Content-Disposition: form-data; name=\"last\"\r\n\r\n\r\n\r\n--XX--\r\nnor this\r\n--XX\r\n";
  for (size_t piece = 1; piece <= body.size(); ++piece) {
    SCOPED_TRACE(piece);
    const Read read = ReadIn(body, piece);
    ASSERT_TRUE(read.status.ok()) << read.status;
    ASSERT_THAT(
        read.parts,
        ElementsAre("file/a \"b\".txt/text/plain; charset=utf-8=one\r\n--Xtwo\r\n-\r\n\r\n--X;",
                    "purpose/-/=;", "last/-/=\r\n;"));
  }
  EXPECT_THAT(ReadIn(absl::StrCat("--XX\r\n", kPart, "v\r\n--XX--"), 5).parts,
              ElementsAre("a/-/=v;"));
}

TEST(MultipartReaderTest, RefusesWhatIsNoForm) {
  const auto message = [](const std::string& body) {
    const Read read = ReadIn(body, 3);
    EXPECT_TRUE(absl::IsInvalidArgument(read.status)) << read.status << " " << body.substr(0, 80);
    return std::string(read.status.message());
  };
  EXPECT_THAT(message(""), HasSubstr("ends before its last boundary"));
  EXPECT_THAT(message("nothing"), HasSubstr("ends before"));
  EXPECT_THAT(message(absl::StrCat("--XX\r\n", kPart, "v\r\n--XX\r\n")), HasSubstr("ends before"));
  EXPECT_THAT(message("--XXY\r\n\r\n"), HasSubstr("text behind a boundary"));
  EXPECT_THAT(message(absl::StrCat("--XX", std::string(100, ' '), "\r\n")), HasSubstr("blanks"));
  EXPECT_THAT(message("--XX\r\nno colon\r\n\r\nv\r\n--XX--"), HasSubstr("without a colon"));
  EXPECT_THAT(message("--XX\r\n\r\n\r\nv\r\n--XX--"), HasSubstr("no name"));
  EXPECT_THAT(message("--XX\r\nContent-Disposition: attachment; name=a\r\n\r\n"),
              HasSubstr("form-data"));
  EXPECT_THAT(message("--XX\r\nContent-Disposition: form-data; name=\"a\r\n\r\n"),
              HasSubstr("cannot be read"));
  EXPECT_THAT(message("--XX\r\nContent-Disposition: form-data; name=a; filename=\"b\r\n\r\n"),
              HasSubstr("cannot be read"));
  EXPECT_THAT(message("--XX\r\nContent-Type: multipart/mixed; boundary=Y\r\n\r\n"),
              HasSubstr("has parts itself"));
  EXPECT_THAT(message("--XX\r\nContent-Transfer-Encoding: base64\r\n\r\n"),
              HasSubstr("as they are"));
  EXPECT_THAT(message(absl::StrCat("--XX\r\nX: ", std::string(100'000, 'x'))),
              HasSubstr("of headers"));
  std::string many = "--XX";
  for (int i = 0; i < 40; ++i) absl::StrAppend(&many, "\r\n", kPart, "\r\n--XX");
  EXPECT_THAT(message(many), HasSubstr("more than 32 parts"));
}

TEST(MultipartReaderTest, TakesItsBoundaryFromTheContentType) {
  const auto boundary = [](const std::string& type) {
    return MultipartReader::BoundaryOf(type).value_or("none");
  };
  EXPECT_EQ(boundary("multipart/form-data; boundary=a_b"), "a_b");
  EXPECT_EQ(boundary("Multipart/Form-Data ; charset=utf-8; Boundary=\"a b\""), "a b");
  EXPECT_EQ(boundary("multipart/mixed; boundary=a"), "none");
  EXPECT_EQ(boundary("multipart/form-data"), "none");
  EXPECT_EQ(boundary("multipart/form-data; boundary="), "none");
  EXPECT_EQ(boundary("multipart/form-data; boundary=" + std::string(71, 'a')), "none");
  EXPECT_EQ(boundary("application/json"), "none");
}

// Whatever comes, it ends with a value or an error, and keeps no more than it says.
TEST(MultipartReaderTest, AnyBytesEnd) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const std::vector<std::string> pieces = {"--XX",
                                           "\r\n",
                                           "--",
                                           kPart,
                                           "v",
                                           "\r",
                                           "\n",
                                           ";",
                                           "name=",
                                           "\"",
                                           "Content-Disposition: form-data",
                                           ":",
                                           std::string(1, '\0')};
  for (int i = 0; i < 3000; ++i) {
    std::string body;
    for (size_t left = random() % 30; left > 0; --left) body += pieces[random() % pieces.size()];
    const Read one = ReadIn(body, 1);
    const Read whole = ReadIn(body, body.size() + 1);
    ASSERT_EQ(one.status.ok(), whole.status.ok()) << body;
    if (one.status.ok()) {
      ASSERT_EQ(one.parts, whole.parts) << body;
    }
  }
}

}  // namespace
}  // namespace annulus::server
