// The daemon's memory while it reads a long document: what the system counts against what was
// foreseen, and where keys and values lie. ANNULUS_MEMORY_TOKENS sets the length (default 120000;
// tests/nightly.sh takes a million).

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "annulus/v1/admin.grpc.pb.h"
#include "annulus/v1/document.grpc.pb.h"
#include "annulus/v1/inference.grpc.pb.h"
#include "annulus/v1/model.grpc.pb.h"
#include "bench/demo/document.h"
#include "kernels/base/sanitizers.h"
#include "tests/integration/daemon.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

constexpr int kPageTokens = 64;
// Step arenas are foreseen for the greater need of the two ring modes. Small chunks keep that
// little beside the keys and values of a short document.
constexpr int kChunkTokens = 512;

int64_t Tokens() {
  const char* const wanted = std::getenv("ANNULUS_MEMORY_TOKENS");
  return wanted == nullptr ? 120'000 : std::atoll(wanted);
}

class ServedMemoryTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "resident memory is the sanitizer's";
    document_ = bench::MakeDemoDocument({.bytes = Tokens()}).value();
    // The document's pages in float32, and 100 MiB for the window, the questions and the answers.
    const int64_t kv_memory = Tokens() * 1024 + (int64_t{100} << 20);
    daemon_ = std::make_unique<Daemon>(std::vector<std::string>{
        "--ranks", absl::StrCat(GetParam()), "--kv-memory", absl::StrCat(kv_memory),
        "--page-tokens", absl::StrCat(kPageTokens), "--chunk-tokens", absl::StrCat(kChunkTokens)});
    ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
    channel_ = grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials());
    admin_ = v1::AdminService::NewStub(channel_);
    inference_ = v1::InferenceService::NewStub(channel_);
  }

  v1::GetLoadResponse Load() {
    grpc::ClientContext context;
    v1::GetLoadResponse load;
    EXPECT_TRUE(admin_->GetLoad(&context, {}, &load).ok());
    return load;
  }

  void Upload() {
    const auto stub = v1::DocumentService::NewStub(channel_);
    grpc::ClientContext context;
    v1::UploadDocumentResponse response;
    const auto writer = stub->UploadDocument(&context, &response);
    v1::UploadDocumentRequest request;
    request.mutable_header()->set_name("d");
    writer->Write(request);
    constexpr size_t kPart = 64 << 10;
    for (size_t offset = 0; offset < document_.text.size(); offset += kPart) {
      request.mutable_chunk()->set_offset(static_cast<int64_t>(offset));
      request.mutable_chunk()->set_data(document_.text.substr(offset, kPart));
      writer->Write(request);
    }
    writer->WritesDone();
    ASSERT_TRUE(writer->Finish().ok());
  }

  // Asks for a fact; looks at the load at every event of the prompt's progress.
  std::vector<v1::GetLoadResponse> Ask(const bench::DemoFact& fact) {
    v1::StreamGenerateRequest request;
    request.mutable_spec()->set_text(fact.cue);
    request.mutable_spec()->add_documents("d");
    request.mutable_spec()->mutable_sampling()->set_temperature(0);
    request.mutable_spec()->mutable_sampling()->set_max_tokens(64);
    request.mutable_spec()->mutable_sampling()->add_stop("\n");
    grpc::ClientContext context;
    const auto reader = inference_->StreamGenerate(&context, request);
    std::vector<v1::GetLoadResponse> loads;
    std::string answer;
    v1::StreamGenerateResponse event;
    while (reader->Read(&event)) {
      if (event.has_prompt_progress()) loads.push_back(Load());
      if (event.has_delta()) answer += event.delta().text();
    }
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(answer, fact.answer);
    return loads;
  }

  static int64_t Foreseen(const v1::GetLoadResponse& load) {
    int64_t sum = 0;
    for (const auto& [part, bytes] : load.memory().foreseen_bytes()) sum += bytes;
    return sum;
  }

  // A rank's pages of one kind; a page holds one layer in float32.
  int64_t Pages(const v1::RankLoad& rank, const std::string& kind) {
    return rank.memory_bytes().at(kind) / (1024 * kPageTokens);
  }

  // Of a freshly placed sequence each rank holds its share to within one stripe, and window groups
  // hold the window and one chunk. False once that can no longer be seen: what is computed counts
  // as cached then.
  bool CheckShares(const v1::GetLoadResponse& load) {
    int64_t all = 0;
    int64_t windows = 0;
    for (const v1::RankLoad& rank : load.ranks()) {
      if (rank.memory_bytes().at("kv_cached") > 0) return false;
      all += Pages(rank, "kv_full");
      windows += Pages(rank, "kv_window");
    }
    for (const v1::RankLoad& rank : load.ranks()) {
      const int64_t share = Pages(rank, "kv_full") * GetParam();
      EXPECT_LT(std::abs(share - all), GetParam()) << "rank " << rank.rank() << " of " << all;
    }
    // The model's window is shorter than a page; at each end a page is touched in part.
    EXPECT_LE(windows, kChunkTokens / kPageTokens + 2);
    return all > 0;
  }

  bench::DemoDocument document_;
  std::unique_ptr<Daemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  std::unique_ptr<v1::InferenceService::Stub> inference_;
};

// The peak of resident memory is within a tenth of what was foreseen, also of what was foreseen
// when the first chunk had run.
TEST_P(ServedMemoryTest, ThePeakIsWhatAdmissionForesawAndRanksHoldTheirShare) {
  Upload();
  const std::vector<v1::GetLoadResponse> loads = Ask(document_.facts[0]);
  size_t seen = 0;
  while (seen < loads.size() && CheckShares(loads[seen])) ++seen;
  ASSERT_GE(seen, 3u);
  for (size_t i = 1; i < document_.facts.size(); ++i) Ask(document_.facts[i]);
  const v1::GetLoadResponse after = Load();
  const double peak = static_cast<double>(daemon_->PeakMemory());
  const double foreseen = static_cast<double>(Foreseen(after));
  const double at_admission = static_cast<double>(Foreseen(loads.front()));
  std::string parts;
  for (const auto& [part, bytes] : after.memory().foreseen_bytes()) {
    absl::StrAppend(&parts, " ", part, " ", bytes);
  }
  SCOPED_TRACE(parts);
  std::printf("peak %.1f MiB, foreseen %.1f MiB, at admission %.1f MiB\n", peak / (1 << 20),
              foreseen / (1 << 20), at_admission / (1 << 20));
  EXPECT_NEAR(peak, foreseen, foreseen / 10);
  EXPECT_NEAR(peak, at_admission, at_admission / 10);
  EXPECT_NEAR(static_cast<double>(after.memory().resident_most_bytes()), peak, 1 << 20);
  // The metrics tell the same.
  const std::string metrics = HttpGet(daemon_->metrics_address(), "/metrics");
  EXPECT_NE(metrics.find("annulus_memory_foreseen_bytes{part=\"kv\"} "), std::string::npos);
  EXPECT_NE(metrics.find("annulus_process_resident_bytes "), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ServedMemoryTest, ::testing::Values(1, 4));

}  // namespace
}  // namespace annulus::server
