// The page for people: its files, and which requests count as its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/http/page/page_files.h"
#include "tests/server/http/api_fixture.h"
#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PageTest : public ApiTest {
 protected:
  // The status of a POST that a page of `origin` sends to `host`.
  int Sent(const std::string& origin, const std::string& host) {
    const std::string body = TextBody().dump();
    return Ask(absl::StrCat("POST ", kText, " HTTP/1.1\r\nHost: ", host, "\r\nOrigin: ", origin,
                            "\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
                            "\r\n\r\n", body))
        .status;
  }
};

TEST_F(PageTest, ServesThePageForPeopleWithoutAToken) {
  const testing::TempDirectory directory;
  directory.Write("token", "s3cret\n");
  Start({"--auth-token-file", (directory.path() / "token").string()});
  const HttpReceived page = Get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.head, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(page.head,
              HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self'; "
                        "style-src 'self'; connect-src 'self'; img-src 'self' data:; "
                        "base-uri 'none'; form-action 'none'; "
                        "frame-ancestors 'none'\r\n"));
  EXPECT_THAT(page.head, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(page.head, HasSubstr("Referrer-Policy: no-referrer\r\n"));
  EXPECT_EQ(Get("/v1/models").status, 401);
  EXPECT_EQ(Get("/", "Host: evil.example\r\n").status, 403);
  EXPECT_EQ(Get("/page/no.js").status, 404);
  EXPECT_EQ(Post("/", TextBody()).status, 405);

  // The page uses no file that is not there, and none of another place.
  for (const PageFile& file : PageFiles()) {
    const HttpReceived answer = Get(absl::StrCat("/page/", file.name));
    EXPECT_EQ(answer.status, 200) << file.name;
    EXPECT_EQ(answer.body, file.text) << file.name;
    EXPECT_THAT(answer.body, Not(HasSubstr("innerHTML"))) << file.name;
    EXPECT_THAT(answer.body, Not(HasSubstr("https://"))) << file.name;
  }
  int references = 0;
  for (const PageFile& file : PageFiles()) {
    for (const absl::string_view before : {"\"/page/", "from './"}) {
      const std::vector<std::string> parts = absl::StrSplit(file.text, before);
      for (size_t i = 1; i < parts.size(); ++i, ++references) {
        const std::string name = parts[i].substr(0, parts[i].find_first_of("\"'"));
        EXPECT_EQ(Get(absl::StrCat("/page/", name)).status, 200) << name;
      }
    }
  }
  EXPECT_GE(references, 7);

  // What a browser has already is not sent again.
  const absl::string_view tag = PageFiles().front().etag;
  const HttpReceived known =
      Get("/", absl::StrCat("Host: localhost\r\nIf-None-Match: ", tag, "\r\n"));
  EXPECT_EQ(known.status, 304);
  EXPECT_EQ(known.body, "");
  EXPECT_THAT(known.head, HasSubstr(absl::StrCat("ETag: ", tag, "\r\n")));
  const HttpReceived other = Get("/", "Host: localhost\r\nIf-None-Match: \"other\"\r\n");
  EXPECT_EQ(other.status, 200);
}

// A browser names the page's origin with each POST of the page.
TEST_F(PageTest, TakesWhatItsOwnPageSends) {
  Start();
  EXPECT_EQ(Sent("http://localhost:8000", "localhost:8000"), 200);
  EXPECT_EQ(Sent("http://127.0.0.1:8000", "127.0.0.1:8000"), 200);
  EXPECT_EQ(Sent("http://[::1]:8000", "[::1]:8000"), 200);
  EXPECT_EQ(Sent("http://10.0.0.7:8000", "10.0.0.7:8000"), 403);  // not a name of loopback
  EXPECT_EQ(Sent("http://localhost:3000", "localhost:8000"), 403);
  EXPECT_EQ(Sent("https://localhost:8000", "localhost:8000"), 403);
  EXPECT_EQ(Sent("http://evil.example:8000", "evil.example:8000"), 403);
  EXPECT_EQ(Sent("null", "localhost:8000"), 403);
}

TEST_F(PageTest, ToOtherMachinesItsOwnPageIsAtAnAddressOrAtTheNameOfHttp) {
  server_ = std::make_unique<TestServer>(
      std::vector<std::string>{"--http", "0.0.0.0:0", "--insecure"}, nullptr);
  server_->engine().set_chat_template(true);
  server_->Serve();
  EXPECT_EQ(Sent("http://localhost", "localhost"), 200);
  EXPECT_EQ(Sent("http://evil.example", "localhost"), 403);
  EXPECT_EQ(Sent("http://10.0.0.7:8000", "10.0.0.7:8000"), 200);
  EXPECT_EQ(Sent("http://evil.example:8000", "evil.example:8000"),
            403);  // its own name may lead here
}

TEST_F(PageTest, WithoutThePageThereIsNothingAndNoOriginIsItsOwn) {
  Start({"--http-page", "off"});
  EXPECT_EQ(Get("/").status, 404);
  EXPECT_EQ(Get("/page/page.js").status, 404);
  EXPECT_EQ(Sent("http://localhost", "localhost"), 403);
}

}  // namespace
}  // namespace annulus::server
