// Files over HTTP: uploads that come in parts, and hostile ones; downloads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/http/http_message.h"
#include "tests/server/http/api_fixture.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Field(const std::string& name, const std::string& value) {
  return absl::StrCat("--XX\r\nContent-Disposition: form-data; name=\"", name, "\"\r\n\r\n", value,
                      "\r\n");
}
std::string File(const std::string& text, const std::string& name = "a.txt",
                 const std::string& type = "text/plain") {
  return absl::StrCat("--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"", name,
                      "\"\r\nContent-Type: ", type, "\r\n\r\n", text, "\r\n");
}
constexpr char kEnd[] = "--XX--\r\n";

std::string Head(size_t length, const std::string& headers = "") {
  return absl::StrCat("POST /v1/files HTTP/1.1\r\nHost: localhost\r\n", headers,
                      "Content-Type: multipart/form-data; boundary=XX\r\nContent-Length: ", length,
                      "\r\n\r\n");
}

class FilesTest : public ApiTest {
 protected:
  HttpReceived Upload(const std::string& form, const std::string& headers = "") {
    return Ask(Head(form.size(), headers) + form);
  }
  std::string Refused(const std::string& form, int status) {
    const HttpReceived answer = Upload(form);
    EXPECT_EQ(answer.status, status) << answer.body;
    return json::parse(answer.body)["error"]["message"];
  }
  json List(const std::string& query = "") {
    return json::parse(Get(absl::StrCat("/v1/files", query)).body);
  }
  HttpReceived Delete(const std::string& id) {
    return Ask(absl::StrCat("DELETE /v1/files/", id, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  }
};

TEST_F(FilesTest, StoresListsAndDeletes) {
  Start();
  const HttpReceived answer =
      Upload(absl::StrCat(Field("purpose", "user_data"), File("Text", "dir/report.txt"), kEnd));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json file = json::parse(answer.body);
  EXPECT_THAT(file["id"].get<std::string>(), StartsWith("file-"));
  EXPECT_EQ(file["object"], "file");
  EXPECT_EQ(file["type"], "file");
  EXPECT_EQ(file["filename"], "report.txt");
  EXPECT_EQ(file["bytes"], 4);
  EXPECT_EQ(file["size_bytes"], 4);
  EXPECT_NEAR(file["created_at"].get<double>(), static_cast<double>(time(nullptr)), 60);
  const std::string id = file["id"];
  EXPECT_EQ(file["annulus"]["tokens"], 4);
  const json got = json::parse(Get("/v1/files/" + id).body);
  EXPECT_EQ(got["id"], id);
  EXPECT_EQ(got["annulus"]["pinned"], false);
  EXPECT_EQ(List()["data"][0]["id"], id);

  // What gRPC stores is a file, too.
  ASSERT_TRUE(server_->Upload("a", "A").ok());
  ASSERT_TRUE(server_->Upload("b", "B").ok());
  const json page = List("?limit=2&beta=true");
  EXPECT_EQ(page["data"].size(), 2u);
  EXPECT_EQ(page["has_more"], true);
  EXPECT_EQ(page["next_page"], "b");
  for (const char* name : {"after", "after_id", "page"}) {
    const json rest = List(absl::StrCat("?", name, "=b"));
    EXPECT_EQ(rest["data"].size(), 1u);
    EXPECT_EQ(rest["has_more"], false);
    EXPECT_TRUE(rest["next_page"].is_null());
  }
  EXPECT_EQ(Get("/v1/files?order=asc").status, 400);
  EXPECT_EQ(Get("/v1/files?limit=0").status, 400);

  const json deleted = json::parse(Delete(id).body);
  EXPECT_EQ(deleted["deleted"], true);
  EXPECT_EQ(deleted["type"], "file_deleted");
  EXPECT_EQ(Delete(id).status, 404);
  const HttpReceived missing = Get("/v1/files/" + id);
  EXPECT_EQ(missing.status, 404);
  EXPECT_THAT(missing.body, HasSubstr("upload it again"));
  EXPECT_EQ(server_->engine().forgotten().size(), 1u);
}

TEST_F(FilesTest, ChatsTakeFiles) {
  Start();
  server_->engine().set_frames_documents(true);
  const json file = json::parse(Upload(absl::StrCat(File("Text", "one"), kEnd)).body);
  const auto ask = [&](const json& part, int choices = 1) {
    const json body = {
        {"n", choices},
        {"messages",
         {{{"role", "user"},
           {"content", {{{"type", "file"}, {"file", part}}, {{"type", "text"}, {"text", "q"}}}}}}}};
    return Post("/v1/chat/completions", body);
  };
  const auto prompt = [&] {
    std::string text;
    for (const int32_t id : Submitted().prompt) {
      if (id < 256) text.push_back(static_cast<char>(id));
    }
    return text;
  };
  ASSERT_EQ(ask({{"file_id", file["id"]}}).status, 200);
  EXPECT_THAT(prompt(), HasSubstr("[one:Text]"));
  ASSERT_EQ(ask({{"file_data", "data:text/plain;base64,VGV4dA=="}, {"filename", "two"}}).status,
            200);
  EXPECT_THAT(prompt(), HasSubstr("[two:Text]"));
  const json inline_file = {{"file_data", "data:text/plain;base64,VGV4dA=="}, {"filename", "two"}};
  const size_t before = server_->engine().submitted().size();
  ASSERT_EQ(ask(inline_file, 2).status, 200) << "for several choices";
  EXPECT_EQ(server_->engine().submitted().size(), before + 2);
  EXPECT_THAT(prompt(), HasSubstr("[two:Text]"));
  EXPECT_EQ(ask({{"file_data", "data:application/pdf;base64,JVBERi0="}}).status, 415);
  EXPECT_EQ(ask({{"file_data", "data:text/plain,Text"}}).status, 400);
  EXPECT_EQ(ask(json::object()).status, 400);
  EXPECT_EQ(ask({{"file_id", "file-0"}}).status, 404);
}

TEST_F(FilesTest, RefusesWhatIsNoTextDocument) {
  Start();
  EXPECT_THAT(Refused(File("x", "a.pdf", "application/pdf") + kEnd, 415),
              HasSubstr("annulus documents put"));
  EXPECT_THAT(Refused(File("%PDF-1.4", "a", "") + kEnd, 415), HasSubstr("annulus documents put"));
  EXPECT_THAT(Refused(File(std::string("PK\x03\x04") + std::string(100, 'x')) + kEnd, 415),
              HasSubstr("annulus documents put"));
  EXPECT_THAT(Refused(File("caf\xe9") + kEnd, 400), HasSubstr("UTF-8"));
  EXPECT_THAT(Refused(File("") + kEnd, 400), HasSubstr("file: is empty"));
  EXPECT_THAT(Refused(Field("purpose", "user_data") + kEnd, 400), HasSubstr("file: is required"));
  EXPECT_THAT(Refused(File("a") + File("b") + kEnd, 400), HasSubstr("twice"));
  EXPECT_THAT(Refused(Field("expires_after[seconds]", "5") + File("a") + kEnd, 400),
              HasSubstr("until they are deleted"));
  EXPECT_THAT(Refused(Field("more", "x") + File("a") + kEnd, 400), HasSubstr("more: "));
  EXPECT_THAT(Refused(Field("purpose", std::string(2000, 'x')) + kEnd, 400),
              HasSubstr("purpose: has more than"));
  EXPECT_THAT(Refused(File("a", std::string(2000, 'n')) + kEnd, 400), HasSubstr("name"));
  EXPECT_THAT(Refused(File("a", "caf\xe9.txt") + kEnd, 400), HasSubstr("file: has a name"));
  EXPECT_THAT(Refused(File("a"), 400), HasSubstr("last boundary"));
  const HttpReceived text =
      Ask("POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
          "Content-Length: 2\r\n\r\n{}");
  EXPECT_EQ(text.status, 415);
  EXPECT_THAT(text.body, HasSubstr("multipart/form-data"));
  EXPECT_EQ(List()["data"].size(), 0u);
  EXPECT_EQ(Get("/v1/files", "Host: localhost\r\nContent-Type: multipart/form-data\r\n").status,
            200);
}

TEST_F(FilesTest, TakesLongFilesInParts) {
  Start({"--max-message-size", "64KiB", "--max-prompts-memory", "2MiB", "--max-document-size",
         "8MiB", "--max-documents-memory", "256MiB"});
  server_->engine().set_max_context(10'000'000);
  // Longer than a message and than all of the memory for requests; no JSON may be.
  const std::string form = absl::StrCat(File(std::string(6 << 20, 'x')), kEnd);
  HttpPeer peer(server_->http_port());
  for (const std::string headers :
       {"", "Expect: 100-continue\r\n", "Transfer-Encoding: chunked\r\n"}) {
    const bool chunked = absl::StartsWith(headers, "Transfer");
    std::string request = Head(form.size(), headers);
    if (chunked) {
      request.erase(request.find("Content-Length"));
      request += "\r\n";
      for (size_t at = 0; at < form.size(); at += 100'000)
        request += Chunk(form.substr(at, 100'000));
      request += kLastChunk;
    } else if (!headers.empty()) {
      EXPECT_EQ(peer.Ask(request).status, 100);
      request = form;
    } else {
      request += form;
    }
    std::thread sender([&] { peer.Send(request); });
    const HttpReceived stored = peer.ReadAnswer();
    sender.join();
    ASSERT_EQ(stored.status, 200) << stored.body;
    EXPECT_EQ(json::parse(stored.body)["bytes"], 6 << 20);
  }
  EXPECT_EQ(Post("/v1/completions", {{"prompt", std::string(100'000, 'x')}}).status, 413);
  const HttpReceived longer = Ask(Head(size_t{9} << 20));
  EXPECT_EQ(longer.status, 413);
  // Chunks do not tell how much comes.
  HttpPeer endless(server_->http_port());
  std::string request = Head(0);
  request.replace(request.find("Content-Length: 0"), 17, "Transfer-Encoding: chunked");
  endless.Send(request + Chunk(absl::StrCat(File(""))));
  std::thread sender([&] {
    while (endless.Send(Chunk(std::string(100'000, 'x')))) {
    }
  });
  const HttpReceived refused = endless.ReadAnswer();
  endless.EndBoth();
  sender.join();
  EXPECT_GE(refused.status, 400) << refused.body;
}

TEST_F(FilesTest, FormsMayBeCutAnywhere) {
  Start();
  const std::string form = absl::StrCat(Field("purpose", "x"), File("a text"), kEnd);
  HttpPeer peer(server_->http_port());
  for (size_t cut = 1; cut < form.size(); cut += 3) {
    peer.Send(Head(form.size()) + form.substr(0, cut));
    peer.Send(form.substr(cut));
    const HttpReceived answer = peer.ReadAnswer();
    ASSERT_EQ(answer.status, 200) << cut << answer.body;
    ASSERT_EQ(json::parse(answer.body)["bytes"], 6);
  }
}

TEST_F(FilesTest, LeavesNothingOfUploadsThatDoNotEnd) {
  Start({"--max-document-size", "8MiB"});
  server_->engine().set_max_context(10'000'000);
  const std::string begun = File(std::string(500'000, 'x'));
  {
    // Its length is a lie.
    HttpPeer peer(server_->http_port());
    peer.Send(Head(2'000'000) + begun);
  }
  // An error comes while the client still sends.
  HttpPeer peer(server_->http_port());
  peer.Send(Head(2'000'000) + File("caf\xe9") + std::string(200'000, 'x'));
  const HttpReceived refused = peer.ReadAnswer();
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.head, HasSubstr("Connection: close"));
  EXPECT_EQ(List()["data"].size(), 0u);
  // No file begins once the server drains.
  HttpPeer drained(server_->http_port());
  EXPECT_EQ(drained.Ask(Head(2'000'000, "Expect: 100-continue\r\n")).status, 100);
  server_->server().RequestDrain(milliseconds(0));
  drained.Send(begun);
  const HttpReceived told = drained.ReadAnswer();
  EXPECT_EQ(told.status, 503) << told.body;
}

std::string Download(const std::string& id) {
  return absl::StrCat("GET /v1/files/", id, "/content HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

// Some parts of 256 KiB.
std::string LongText() {
  std::string text(700'000, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i * 31 % 26);
  return text;
}

TEST_F(FilesTest, ADownloadBringsEveryByteBackAfterARestart) {
  const testing::TempDirectory folder;
  const std::vector<std::string> flags = {"--documents", folder.path()};
  Start(flags);
  server_->engine().set_max_context(1'000'000);
  const std::string text = LongText();
  const json file = json::parse(Upload(absl::StrCat(File(text), kEnd)).body);
  EXPECT_EQ(file["downloadable"], true);
  const std::string id = file["id"];
  for (int round = 0; round < 2; ++round) {
    HttpPeer peer(server_->http_port());
    for (const std::string version : {"1.1", "1.1", "1.0"}) {
      std::string request = Download(id);
      request.replace(request.find("1.1"), 3, version);
      const HttpReceived answer = peer.Ask(request);
      ASSERT_EQ(answer.status, 200) << answer.body;
      EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/plain"));
      EXPECT_THAT(answer.head, HasSubstr("\r\nx-request-id: r-"));
      EXPECT_TRUE(answer.body == text) << answer.body.size();
    }
    server_.reset();
    Start(flags);
  }
}

TEST_F(FilesTest, SaysWhyThereIsNoDownload) {
  Start();
  const json file = json::parse(Upload(absl::StrCat(File("Text"), kEnd)).body);
  EXPECT_EQ(file["downloadable"], false);
  const HttpReceived not_kept = Ask(Download(file["id"]));
  EXPECT_EQ(not_kept.status, 400);
  EXPECT_EQ(json::parse(not_kept.body)["error"]["code"], "document_not_kept");
  EXPECT_THAT(not_kept.body, HasSubstr("start it with --documents DIR"));
  const HttpReceived missing = Ask(Download("file-0"));
  EXPECT_EQ(missing.status, 404);
  EXPECT_THAT(missing.body, HasSubstr("upload it again"));
  EXPECT_EQ(json::parse(Ask(Download("%2e%2e")).body)["error"]["param"], "id");
  const HttpReceived posted =
      Ask("POST /v1/files/a/content HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(posted.status, 405);
  EXPECT_THAT(posted.head, HasSubstr("Allow: GET\r\n"));
}

TEST_F(FilesTest, ADownloadOfADamagedFileBreaksOff) {
  const testing::TempDirectory folder;
  Start({"--documents", folder.path()});
  server_->engine().set_max_context(1'000'000);
  const std::string id = json::parse(Upload(absl::StrCat(File(LongText()), kEnd)).body)["id"];
  const auto damage = [&](std::streamoff at) {
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      if (entry.file_size() < 700'000) continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(at);
      file << '#';
    }
  };
  damage(600'000);
  HttpPeer peer(server_->http_port());
  const HttpReceived answer = peer.Ask(Download(id));
  EXPECT_EQ(answer.status, 200);
  EXPECT_FALSE(answer.complete);
  EXPECT_TRUE(peer.ReadToEnd());
  damage(5'000);
  const HttpReceived refused = Ask(Download(id));
  EXPECT_EQ(refused.status, 500);
  EXPECT_EQ(json::parse(refused.body)["error"]["code"], "document_damaged");
}

// They last as long as their clients like.
TEST_F(FilesTest, DownloadsThatNobodyReadsLeaveMemoryForOthersAndEndWithTheServer) {
  constexpr size_t kBytes = size_t{32} << 20;  // more than sockets hold
  const testing::TempDirectory folder;
  Start(
      {"--documents", folder.path(), "--max-message-size", "1MiB", "--max-prompts-memory", "6MiB"});
  server_->engine().set_max_context(100'000'000);
  const grpc::Status stored =
      server_->Upload("big", std::string(kBytes, 'x'), nullptr, size_t{128} << 10);
  ASSERT_TRUE(stored.ok()) << stored.error_message();
  HttpPeer leaves(server_->http_port());
  HttpPeer stays(server_->http_port());
  for (HttpPeer* const peer : {&leaves, &stays}) {
    peer->Send(Download("big"));
    ASSERT_TRUE(peer->ReadUntil("xxx"));
  }
  const HttpReceived full = Ask(Download("big"));
  EXPECT_EQ(full.status, 429) << full.body;
  EXPECT_THAT(full.head, HasSubstr("retry-after-ms: "));
  leaves.Leave();
  ASSERT_TRUE(server_->Upload("small", "text").ok());
  EXPECT_TRUE(Eventually([&] { return Ask(Download("small")).body == "text"; }))
      << "its share is free";
  server_->server().Stop(nullptr);
  EXPECT_TRUE(stays.ReadToEnd());
  EXPECT_LT(stays.received().size(), kBytes);
}

TEST_F(FilesTest, NeedsRoom) {
  Start({"--max-documents", "1"});
  ASSERT_EQ(Upload(absl::StrCat(File("a"), kEnd)).status, 200);
  const HttpReceived full = Upload(absl::StrCat(File("b"), kEnd));
  EXPECT_EQ(full.status, 429) << full.body;
  EXPECT_EQ(List()["data"].size(), 1u);
}

}  // namespace
}  // namespace annulus::server
