// A daemon that was killed finds on disk what it had read.
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "annulus/v1/inference.grpc.pb.h"
#include "bench/demo/document.h"
#include "engine/tiers/disk_folder.h"
#include "kernels/base/sanitizers.h"
#include "tests/integration/daemon.h"
#include "tests/integration/plain_model.h"
#include "tests/support/false_pages.h"
#include "tests/support/temp_directory.h"
#include "tests/support/thinned.h"

namespace annulus::server {
namespace {

class KvDiskTest : public ::testing::Test {
 protected:
  void Start(const std::string& model = "builtin:recall", const std::string& folder = "pages",
             const std::vector<std::string>& options = {"--chunk-tokens", "256"}) {
    directory_.Write("token", "s3cret\n");  // a daemon tells why to callers that it knows
    std::vector<std::string> all = {
        "--model",        model, "--ranks",           "2",
        "--kv-memory",    room_, "--kv-disk",         (directory_.path() / folder).string(),
        "--kv-disk-size", room_, "--auth-token-file", (directory_.path() / "token").string()};
    all.insert(all.end(), options.begin(), options.end());
    daemon_ = std::make_unique<Daemon>(all);
    ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
    loaded_seconds_ = daemon_->ProcessorSeconds();
    inference_ = v1::InferenceService::NewStub(
        grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials()));
  }

  // What the daemon has computed since it was ready.
  double processor_seconds() const { return daemon_->ProcessorSeconds() - loaded_seconds_; }

  void Kill() {
    daemon_->Signal(SIGKILL);
    EXPECT_EQ(daemon_->WaitForExit(std::chrono::seconds(20)), 128 + SIGKILL);
  }

  struct Answer {
    std::string text;
    v1::Completion completion;
    int64_t cached = 0;            // as the first word of progress says
    int64_t processed = 0;         // as the last one does
    double processor_seconds = 0;  // up to the kill
  };
  // Kills the daemon once so many tokens are processed; 0: lets it answer.
  Answer Ask(const std::string& text, int64_t kill_at = 0) {
    v1::StreamGenerateRequest request;
    request.mutable_spec()->set_text(text);
    request.mutable_spec()->set_digest(true);
    request.mutable_spec()->mutable_sampling()->set_max_tokens(64);
    request.mutable_spec()->mutable_sampling()->set_temperature(0);
    request.mutable_spec()->mutable_sampling()->add_stop("\n");
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer s3cret");
    const auto reader = inference_->StreamGenerate(&context, request);
    Answer answer;
    v1::StreamGenerateResponse event;
    bool killed = false;
    while (reader->Read(&event)) {
      if (event.has_delta()) answer.text += event.delta().text();
      if (event.has_completion()) answer.completion = event.completion();
      if (!event.has_prompt_progress() || killed) continue;
      if (answer.processed == 0) answer.cached = event.prompt_progress().cached();
      answer.processed = event.prompt_progress().processed();
      if (kill_at == 0 || answer.processed < kill_at) continue;
      killed = true;
      answer.processor_seconds = processor_seconds();
      Kill();
    }
    EXPECT_EQ(reader->Finish().ok(), kill_at == 0);
    return answer;
  }

  // Waits until so many pages are on disk.
  bool WaitForPages(int64_t pages) const {
    for (int i = 0; i < 3000; ++i) {
      int64_t found = 0;
      for (const auto& each : std::filesystem::directory_iterator(directory_.path() / "pages")) {
        if (each.path().extension() == ".page") ++found;
      }
      if (found >= pages) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  // Waits until both groups' pages of this position are on disk, which come after all before them.
  bool WaitForPosition(int32_t position) const {
    for (int i = 0; i < 3000; ++i) {
      int found = 0;
      for (const auto& each : std::filesystem::directory_iterator(directory_.path() / "pages")) {
        const auto name = EntryName::Parse(each.path().filename().string());
        if (name.has_value() && name->first_position == position) ++found;
      }
      if (found == 2) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  // Kills daemons while they read a text, and expects the same answer without much more work.
  void ExpectToGoOn(const std::string& model);

  std::string room_ = "256MiB";
  testing::TempDirectory directory_;
  std::unique_ptr<Daemon> daemon_;
  double loaded_seconds_ = 0;
  std::unique_ptr<v1::InferenceService::Stub> inference_;
};

bench::DemoDocument Document(int64_t bytes) {
  bench::DemoOptions options;
  options.bytes = bytes;
  return *bench::MakeDemoDocument(options);
}

TEST_F(KvDiskTest, WhatWasReadIsThereAfterAKill) {
  constexpr int64_t kBytes = kSanitized ? 20'000 : 100'000;
  const bench::DemoDocument document = Document(kBytes);
  Start();
  const bench::DemoFact& fact = document.facts.at(1);
  const Answer first = Ask(document.text + fact.cue);
  EXPECT_EQ(first.text, fact.answer);
  EXPECT_EQ(first.completion.usage().cached_tokens(), 0);
  // All of the full layer, and then those that the window needs: nothing begins without them.
  const auto pages = static_cast<int32_t>(first.completion.usage().prompt_tokens() / 64);
  ASSERT_TRUE(WaitForPosition((pages - 1) * 64));
  Kill();
  Start();
  const Answer again = Ask(document.text + fact.cue);
  EXPECT_EQ(again.text, fact.answer);
  EXPECT_GE(again.completion.usage().restored_tokens(), kBytes / 64 * 64);
  EXPECT_EQ(again.completion.usage().cached_tokens(), again.completion.usage().restored_tokens());
  const double before = first.completion.timings().time_to_first_token();
  const double after = again.completion.timings().time_to_first_token();
  std::printf("first token: %.3f s, after the kill %.3f s\n", before, after);
  EXPECT_LT(after, before);
  // Memory has it by now.
  const Answer third = Ask(document.text + fact.cue);
  EXPECT_EQ(third.text, fact.answer);
  EXPECT_EQ(third.completion.usage().restored_tokens(), 0);
  EXPECT_GE(third.completion.usage().cached_tokens(), kBytes / 64 * 64);
}

// The daemon's log says so, and the reply says why nothing came back.
TEST_F(KvDiskTest, APageThatIsNotWhatComputingGivesIsToldOf) {
  const std::string text = Document(2'000).text;
  const std::string model = testing::PlainModel(directory_);
  Start(model);
  const Answer first = Ask(text);
  ASSERT_TRUE(WaitForPages((first.completion.usage().prompt_tokens() - 1) / 64));
  Kill();
  ASSERT_EQ(testing::FalsifyPages(directory_.path() / "pages", 0, 64), 1);
  Start(model);
  const Answer again = Ask(text);
  EXPECT_EQ(again.completion.origin().digest(), first.completion.origin().digest());
  EXPECT_EQ(again.completion.usage().restored_tokens(), 0);
  EXPECT_TRUE(again.completion.usage().has_checked_position());
  EXPECT_EQ(again.completion.usage().cache_miss().reason(), v1::CacheMiss::REASON_DISK_REFUSED);
  EXPECT_TRUE(daemon_->WaitForOutput("kv_disk_mismatch", std::chrono::seconds(20)));
}

// The log says so, and prompts are answered without it.
TEST_F(KvDiskTest, ADiskThatFailsIsToldOfAndLeftAlone) {
  const std::string text = Document(2'000).text;
  Start(testing::PlainModel(directory_));
  std::filesystem::remove_all(directory_.path() / "pages");
  const Answer first = Ask(text);
  EXPECT_FALSE(first.completion.origin().digest().empty());
  EXPECT_TRUE(daemon_->WaitForOutput("kv_disk_off", std::chrono::seconds(20)));
  EXPECT_EQ(Ask(text).completion.origin().digest(), first.completion.origin().digest());
}

// Every chunk of a prompt leaves. After 20 kills all starts together have computed at most 1.1
// times the prompt, if it takes 5 s to read: a kill costs the chunk under way, and those that are
// not on disk yet.
//   ANNULUS_KILLS=20          as often as tests/nightly.sh does
//   ANNULUS_TEST_SEED=SEED    other points; both are printed
void KvDiskTest::ExpectToGoOn(const std::string& model) {
  constexpr int kChunk = 64;
  const char* const more = std::getenv("ANNULUS_KILLS");
  const int kills = more != nullptr ? std::stoi(more) : kSanitized ? 1 : 3;
  const bool many = kills > 3;
  const auto start = [&](const std::string& folder) {
    Start(model, folder, {"--page-tokens", "32", "--chunk-tokens", std::to_string(kChunk)});
  };
  std::string text;
  Answer expected;
  double prefill = 0;
  double alone = 0;
  // A disk can stand still for a moment, which is much of a short prefill.
  if (many) room_ = "2GiB";
  int bytes = kSanitized ? 4'000 : many ? 45'000 : 12'000;
  do {
    text = Document(bytes).text;
    start(absl::StrCat("other", bytes));
    expected = Ask(text);
    prefill = expected.completion.timings().prefill();
    ASSERT_GT(prefill, 0) << bytes << " bytes were refused";
    alone = processor_seconds();
    Kill();
    bytes *= 2;
  } while (many && prefill < 5);
  const auto tokens = static_cast<int64_t>(text.size());
  std::printf("ANNULUS_KILLS=%d ANNULUS_TEST_SEED=%llu; a prefill takes %.1f s\n", kills,
              static_cast<unsigned long long>(testing::TestSeed()), prefill);
  std::mt19937_64 random(testing::TestSeed());
  std::uniform_int_distribution<int64_t> anywhere(1, tokens - 2 * kChunk);
  std::vector<int64_t> points(static_cast<size_t>(kills));
  for (int64_t& point : points) point = anywhere(random);
  std::sort(points.begin(), points.end());
  int64_t computed = 0;
  int64_t reached = 0;
  int64_t most_behind = 0;
  double together = 0;
  for (const int64_t point : points) {
    start("pages");
    const Answer cut = Ask(text, point);
    most_behind = std::max(most_behind, reached - cut.cached);
    reached = cut.processed;
    computed += cut.processed - cut.cached + kChunk;  // the one that was under way
    together += cut.processor_seconds;
  }
  start("pages");
  const Answer whole = Ask(text);
  EXPECT_EQ(whole.text, expected.text);
  ASSERT_FALSE(expected.completion.origin().digest().empty());
  EXPECT_EQ(whole.completion.origin().digest(), expected.completion.origin().digest());
  const v1::Usage& usage = whole.completion.usage();
  most_behind = std::max(most_behind, reached - usage.cached_tokens());
  computed += usage.prompt_tokens() - usage.cached_tokens();
  together += processor_seconds();
  const double share = static_cast<double>(computed) / static_cast<double>(usage.prompt_tokens());
  std::printf(
      "computed: %.3f times the prompt of %lld tokens, in %.3f times the processor's time; "
      "the disk was at most %.1f chunks behind\n",
      share, static_cast<long long>(usage.prompt_tokens()), together / alone,
      static_cast<double>(most_behind) / kChunk);
  EXPECT_LE(share, many ? 1.1 : 1.5);  // few kills even nothing out
}

TEST_F(KvDiskTest, APromptGoesOnWhereItWasKilled) { ExpectToGoOn(testing::PlainModel(directory_)); }

TEST_F(KvDiskTest, APromptOfAModelWithWindowsToo) { ExpectToGoOn("builtin:recall"); }

}  // namespace
}  // namespace annulus::server
