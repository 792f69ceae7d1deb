// A daemon that was killed has the documents that it had acknowledged; another model reads them
// with its own tokenizer.

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "annulus/v1/document.grpc.pb.h"
#include "kernels/base/sanitizers.h"
#include "tests/integration/daemon.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class KeptDocumentsTest : public ::testing::Test {
 protected:
  void Start(const std::string& model = "builtin:recall") {
    daemon_ = std::make_unique<Daemon>(std::vector<std::string>{"--model", model, "--kv-memory",
                                                                "64MiB", "--documents", folder()});
    ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
    stub_ = v1::DocumentService::NewStub(
        grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials()));
  }
  std::string folder() const { return (directory_.path() / "documents").string(); }

  bool Put(const std::string& name, const std::string& text, v1::Document* document = nullptr) {
    grpc::ClientContext context;
    v1::UploadDocumentResponse response;
    const auto writer = stub_->UploadDocument(&context, &response);
    v1::UploadDocumentRequest part;
    part.mutable_header()->set_name(name);
    writer->Write(part);
    for (size_t at = 0; at < text.size(); at += 50'000) {
      part.mutable_chunk()->set_offset(static_cast<int64_t>(at));
      part.mutable_chunk()->set_data(text.substr(at, 50'000));
      writer->Write(part);
    }
    writer->WritesDone();
    const bool stored = writer->Finish().ok();
    if (document != nullptr) *document = response.document();
    return stored;
  }
  bool Delete(const std::string& name) {
    grpc::ClientContext context;
    v1::DeleteDocumentRequest request;
    request.set_name(name);
    v1::DeleteDocumentResponse response;
    return stub_->DeleteDocument(&context, request, &response).ok();
  }
  std::optional<std::string> Get(const std::string& name, v1::Document* document = nullptr) {
    grpc::ClientContext context;
    v1::DownloadDocumentRequest request;
    request.set_name(name);
    const auto reader = stub_->DownloadDocument(&context, request);
    std::string text;
    v1::DownloadDocumentResponse part;
    while (reader->Read(&part)) {
      if (part.has_document() && document != nullptr) *document = part.document();
      if (part.has_chunk()) text += part.chunk().data();
    }
    return reader->Finish().ok() ? std::optional(text) : std::nullopt;
  }

  testing::TempDirectory directory_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<v1::DocumentService::Stub> stub_;
};

std::string TextOf(int number, size_t bytes) {
  std::string text;
  while (text.size() < bytes) absl::StrAppend(&text, "word ", number, " of ", text.size(), ". ");
  return text;
}

// What a client knows of a name: the text it must have; absent: none. Unknown once a call for it
// failed, which happens to one name for each kill.
using Known = std::map<std::string, std::optional<std::string>>;

TEST_F(KeptDocumentsTest, KilledAgainAndAgainItHasWhatItAcknowledged) {
  std::mt19937_64 random(testing::TestSeed());
  Known known;
  int number = 0;
  for (int round = 0; round < (kSanitized ? 4 : 10); ++round) {
    Start();
    for (const auto& [name, text] : known) EXPECT_EQ(Get(name), text) << round << ": " << name;
    const milliseconds until_killed(5 + random() % 300);
    std::thread killer([&] {
      std::this_thread::sleep_for(until_killed);
      daemon_->Signal(SIGKILL);
    });
    for (bool alive = true; alive;) {
      const bool deletes = !known.empty() && random() % 3 == 0;
      const std::string name =
          deletes ? std::next(known.begin(), static_cast<int64_t>(random() % known.size()))->first
                  : absl::StrCat("document-", ++number);
      const std::string text = TextOf(number, 1 + random() % 300'000);
      if (deletes && known[name].has_value()) {
        alive = Delete(name);
        known[name] = std::nullopt;
      } else if (!deletes) {
        alive = Put(name, text);
        known[name] = text;
      }
      if (!alive) known.erase(name);
    }
    killer.join();
    EXPECT_EQ(daemon_->WaitForExit(seconds(20)), 128 + SIGKILL);
  }
}

// Its context of 512 tokens is shorter than the document.
TEST_F(KeptDocumentsTest, AnotherModelHasIdsOfItsOwnAndTheSameBytes) {
  const auto model = testing::TestData("models/stories260K");
  if (!model.has_value()) GTEST_SKIP() << "no stories260K";
  const std::string text = TextOf(1, 10'000);
  Start();
  v1::Document first;
  ASSERT_TRUE(Put("text", text, &first));
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->WaitForExit(seconds(20)), 0);
  Start(*model);
  v1::Document second;
  EXPECT_EQ(Get("text", &second), text);
  EXPECT_EQ(second.sha256(), first.sha256());
  EXPECT_NE(second.token_count(), first.token_count());
  EXPECT_TRUE(daemon_->WaitForOutput("documents_loaded documents=1", seconds(1)))
      << daemon_->output();
}

TEST_F(KeptDocumentsTest, ASecondDaemonOnTheFolderEndsWithItsName) {
  Start();
  Daemon second({"--kv-memory", "64MiB", "--documents", folder()});
  EXPECT_EQ(second.WaitForExit(seconds(20)), 1);
  EXPECT_TRUE(second.WaitForOutput("--documents: folder " + folder() + ": another daemon uses it",
                                   seconds(1)))
      << second.output();
}

}  // namespace
}  // namespace annulus::server
