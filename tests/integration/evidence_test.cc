// Answers about documents name their passages: over the network, by the marks of the upload, and
// after a restart.

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "annulus/v1/document.grpc.pb.h"
#include "annulus/v1/inference.grpc.pb.h"
#include "bench/demo/document.h"
#include "tests/integration/daemon.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

class EvidenceTest : public ::testing::Test {
 protected:
  void Start(const std::vector<std::string>& more = {}) {
    std::vector<std::string> flags = {"--model", "builtin:recall", "--kv-memory",
                                      "128MiB",  "--documents",    directory_.path() / "documents"};
    flags.insert(flags.end(), more.begin(), more.end());
    daemon_ = std::make_unique<Daemon>(flags);
    ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
    const auto channel =
        grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials());
    documents_ = v1::DocumentService::NewStub(channel);
    inference_ = v1::InferenceService::NewStub(channel);
  }

  // With a mark for each thousand bytes.
  grpc::Status Put(const std::string& name, const std::string& text, bool keep_text) {
    std::vector<int64_t> marks;
    for (size_t byte = 0; byte < text.size(); byte += 1000) {
      marks.push_back(static_cast<int64_t>(byte));
    }
    return PutMarked(name, text, keep_text, marks);
  }
  grpc::Status PutMarked(const std::string& name, const std::string& text, bool keep_text,
                         const std::vector<int64_t>& marks) {
    grpc::ClientContext context;
    v1::UploadDocumentResponse response;
    const auto writer = documents_->UploadDocument(&context, &response);
    v1::UploadDocumentRequest part;
    part.mutable_header()->set_name(name);
    part.mutable_header()->set_keep_text(keep_text);
    for (const int64_t byte : marks) {
      v1::DocumentMark& mark = *part.mutable_header()->add_marks();
      mark.set_byte(byte);
      mark.set_label(absl::StrCat("part ", byte / 1000));
    }
    writer->Write(part);
    part.mutable_chunk()->set_data(text);
    writer->Write(part);
    writer->WritesDone();
    return writer->Finish();
  }

  v1::GenerationSpec Question(const bench::DemoFact& fact) {
    v1::GenerationSpec spec;
    spec.add_documents("front");
    spec.add_documents("facts");
    spec.set_text(fact.cue);
    spec.set_evidence(true);
    spec.mutable_sampling()->set_temperature(0);
    spec.mutable_sampling()->set_max_tokens(60);
    spec.mutable_sampling()->add_stop("\n");
    return spec;
  }

  v1::GenerateResponse Generate(const v1::GenerationSpec& spec, grpc::Status* status) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(120));
    v1::GenerateRequest request;
    *request.mutable_spec() = spec;
    v1::GenerateResponse response;
    *status = inference_->Generate(&context, request, &response);
    return response;
  }

  void ExpectFirst(const bench::DemoFact& fact, const v1::Evidence& evidence,
                   const std::string& text) {
    ASSERT_GE(evidence.sentences_size(), 1) << fact.depth;
    const v1::Passage& first = evidence.sentences(0).passages(0);
    const auto answer = fact.offset + static_cast<int64_t>(fact.cue.size());
    EXPECT_EQ(first.document(), "facts");
    EXPECT_EQ(first.document_index(), 1);
    EXPECT_LE(first.byte_begin(), answer);
    EXPECT_GT(first.byte_end(), answer);
    EXPECT_EQ(first.character_begin(), first.byte_begin());
    EXPECT_TRUE(absl::StrContains(first.text(), fact.answer.substr(0, 2))) << first.text();
    EXPECT_EQ(first.text(), text.substr(first.byte_begin(), first.byte_end() - first.byte_begin()));
    EXPECT_EQ(first.label(),
              absl::StrCat("part ", (first.byte_begin() + first.byte_end()) / 2 / 1000));
    EXPECT_GT(first.score(), 0.5);
    EXPECT_TRUE(absl::StrContains(evidence.heads(), "chosen by depth")) << evidence.heads();
  }

  testing::TempDirectory directory_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<v1::DocumentService::Stub> documents_;
  std::unique_ptr<v1::InferenceService::Stub> inference_;
};

TEST_F(EvidenceTest, NamesThePassageBeforeAndAfterARestart) {
  const bench::DemoDocument document =
      bench::MakeDemoDocument({.bytes = 9000, .seed = 6, .depths = {0.1, 0.5, 0.9}}).value();
  std::string front;
  for (int i = 0; i < 777; ++i) front += static_cast<char>('a' + (i * i + 3 * i) % 26);
  Start();
  ASSERT_TRUE(Put("front", front, false).ok());
  ASSERT_TRUE(Put("facts", document.text, true).ok());
  for (const bool again : {false, true}) {
    if (again) {
      daemon_->Signal(SIGKILL);
      ASSERT_TRUE(daemon_->WaitForExit(std::chrono::seconds(10)).has_value());
      Start({"--ranks", "2"});
    }
    for (const bench::DemoFact& fact : document.facts) {
      grpc::Status status;
      const v1::GenerateResponse answer = Generate(Question(fact), &status);
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(answer.text(), fact.answer);
      ExpectFirst(fact, answer.completion().evidence(), document.text);
    }
  }
}

TEST_F(EvidenceTest, ComesInTheStreamOfEveryQuestionAndOfCallsThatAttach) {
  const bench::DemoDocument document =
      bench::MakeDemoDocument({.bytes = 5000, .seed = 6, .depths = {0.2, 0.6}}).value();
  Start();
  ASSERT_TRUE(Put("front", "once upon a time there was a ring of many machines", false).ok());
  ASSERT_TRUE(Put("facts", document.text, true).ok());
  grpc::ClientContext context;
  v1::AskManyRequest request;
  *request.mutable_spec() = Question(document.facts[0]);
  request.mutable_spec()->set_text("");
  for (const bench::DemoFact& fact : document.facts) request.add_questions(fact.cue);
  const auto reader = inference_->AskMany(&context, request);
  v1::AskManyResponse event;
  std::vector<int> streamed(document.facts.size(), 0);
  while (reader->Read(&event)) {
    ASSERT_FALSE(event.has_failure()) << event.failure().message();
    const bench::DemoFact& fact = document.facts[event.index()];
    if (event.event().has_delta() && event.event().delta().evidence_size() > 0) {
      v1::Evidence evidence;
      *evidence.mutable_sentences() = event.event().delta().evidence();
      evidence.set_heads("chosen by depth");
      if (++streamed[event.index()] == 1) ExpectFirst(fact, evidence, document.text);
    }
    if (event.event().has_completion()) {
      ExpectFirst(fact, event.event().completion().evidence(), document.text);
    }
  }
  ASSERT_TRUE(reader->Finish().ok());
  for (const int count : streamed) EXPECT_GT(count, 0);
  // Two calls with one name get the same.
  v1::GenerationSpec named = Question(document.facts[0]);
  named.set_request_id("twice");
  for (int call = 0; call < 2; ++call) {
    grpc::Status status;
    const v1::GenerateResponse answer = Generate(named, &status);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ExpectFirst(document.facts[0], answer.completion().evidence(), document.text);
  }
}

TEST_F(EvidenceTest, IsRefusedByNameWhereItCannotBe) {
  Start();
  ASSERT_TRUE(Put("front", "text", false).ok());
  grpc::Status status;
  v1::GenerationSpec spec;
  spec.set_text("no document");
  spec.set_evidence(true);
  Generate(spec, &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(absl::StrContains(status.error_message(), "name some in `documents`"));
  spec.add_documents("front");
  spec.mutable_attention()->set_policy("window:window=512");
  Generate(spec, &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(absl::StrContains(status.error_message(), "attention.policy"))
      << status.error_message();
  spec.mutable_attention()->clear_policy();
  spec.mutable_sampling()->set_max_tokens(3);
  EXPECT_TRUE(Generate(spec, &status).completion().has_evidence()) << status.error_message();
}

TEST_F(EvidenceTest, BadInputIsToldByItsName) {
  Start({"--attention", "window:window=512"});
  const auto expect = [](const grpc::Status& status, grpc::StatusCode code,
                         const std::string& message) {
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_TRUE(absl::StrContains(status.error_message(), message)) << status.error_message();
  };
  constexpr auto kWrong = grpc::StatusCode::INVALID_ARGUMENT;
  expect(PutMarked("a", "text", true, {3, 2}), kWrong,
         "header.marks[1].byte: 2 is not allowed: at least 3, where the mark before it stands");
  expect(PutMarked("a", "text", true, {-1}), kWrong,
         "header.marks[0].byte: -1 is not allowed: at least 0");
  expect(PutMarked("a", "text", true, {0, 5}), kWrong,
         "header.marks: the last mark stands at byte 5, behind the end of the document, which has "
         "4 bytes");
  ASSERT_TRUE(PutMarked("a", "text", true, {0, 4}).ok());
  v1::GenerationSpec spec;
  spec.set_text("What?");
  spec.set_evidence(true);
  spec.mutable_sampling()->set_max_tokens(3);
  spec.add_documents("a");
  grpc::Status status;
  // By the server's default, too.
  Generate(spec, &status);
  expect(status, kWrong, "this request attends by window");
  spec.mutable_attention()->set_policy("dense");
  EXPECT_TRUE(Generate(spec, &status).completion().has_evidence()) << status.error_message();
  for (int i = 1; i < 1000; ++i) spec.add_documents("a");
  Generate(spec, &status);
  expect(status, kWrong, "spec.documents: 1000 documents are not allowed: at most 64");
  spec.mutable_documents()->DeleteSubrange(64, 936);
  EXPECT_TRUE(Generate(spec, &status).completion().has_evidence()) << status.error_message();
  grpc::ClientContext context;
  v1::DeleteDocumentRequest deletes;
  deletes.set_name("a");
  v1::DeleteDocumentResponse deleted;
  ASSERT_TRUE(documents_->DeleteDocument(&context, deletes, &deleted).ok());
  Generate(spec, &status);
  expect(status, grpc::StatusCode::NOT_FOUND, "there is no document \"a\"; upload it");
}

}  // namespace
}  // namespace annulus::server
