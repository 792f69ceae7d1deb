// Whatever the disk does, no request waits for it longer than computing takes, and no page of
// memory stays out of use.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "engine/tiers/disk_folder.h"
#include "engine/tiers/disk_store.h"
#include "tests/engine/core/page_tier_fixture.h"

namespace annulus {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::CollectingSink;
using testing::SlowToCompute;
using testing::WithoutWindows;
namespace fs = std::filesystem;

// A disk that answers when it is told to.
class GatedCalls final : public DiskCalls {
 public:
  ssize_t Read(int file, void* bytes, size_t count, int64_t offset) override {
    Pass(reads_);
    return DiskCalls::Read(file, bytes, count, offset);
  }
  ssize_t Write(int file, const void* bytes, size_t count, int64_t offset) override {
    Pass(writes_);
    return DiskCalls::Write(file, bytes, count, offset);
  }

  void HangReads() { Set(reads_, 0); }
  void HangWrites() { Set(writes_, 0); }
  // So many more reads are answered.
  void AllowReads(int64_t calls) { Set(reads_, calls); }
  void Open() {
    Set(reads_, kAny);
    Set(writes_, kAny);
  }
  // Waits until a call hangs.
  bool WaitForHanging() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(30), [&] { return hanging_ > 0; });
  }

 private:
  static constexpr int64_t kAny = int64_t{1} << 60;

  void Set(int64_t& gate, int64_t calls) {
    std::lock_guard lock(mutex_);
    gate = calls;
    changed_.notify_all();
  }
  void Pass(int64_t& gate) {
    std::unique_lock lock(mutex_);
    ++hanging_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return gate > 0; });
    --hanging_;
    --gate;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t reads_ = kAny;
  int64_t writes_ = kAny;
  int hanging_ = 0;
};

class PageTierDiskTest : public testing::PageTierFixture {
 protected:
  PageTierDiskTest() : model_(WithoutWindows(folder_)) {}

  EngineOptions Gated(GatedCalls& calls) const {
    EngineOptions options = Options(model_, 1);
    options.kv_memory_bytes = 1 << 20;
    options.kv_disk_calls = &calls;
    return options;
  }

  // What an engine leaves that answers the prompts.
  void Leave(const std::vector<std::vector<int32_t>>& prompts) {
    const auto engine = Make(Options(model_, 1));
    int pages = 0;
    for (const std::vector<int32_t>& prompt : prompts) {
      Ask(*engine, Spec(prompt));
      pages += static_cast<int>(prompt.size() - 1) / kPage;
    }
    ASSERT_TRUE(WaitForPages(*engine, pages));
  }

  static std::shared_ptr<CollectingSink> Send(Engine& engine, RequestSpec spec) {
    auto sink = std::make_shared<CollectingSink>();
    spec.deadline = std::chrono::steady_clock::now() + seconds(40);  // so that a fault ends
    EXPECT_TRUE(engine.Submit(std::move(spec), sink).ok());
    return sink;
  }

  static bool Answered(CollectingSink& sink) {
    const auto done = sink.Wait();
    return done.has_value() && done->status.ok();
  }

  // As many tokens as fit into the engine's memory if it holds nothing else.
  static int Largest(const Engine& engine) {
    int fits = 1;
    for (int step = 1 << 14; step > 0; step /= 2) {
      if (engine.Validate(Spec(Prompt(fits + step, 250))).ok()) fits += step;
    }
    return fits;
  }

  std::string model_;
};

// Lets the calls go before the engine, declared before this, waits for them.
auto OpenAtEnd(GatedCalls& calls) {
  return absl::Cleanup([&calls] { calls.Open(); });
}

TEST_F(PageTierDiskTest, AReadThatHangsKeepsNeitherPagesNorTheRequest) {
  const std::vector<int32_t> prompt = Prompt(600, 250);
  Leave({prompt});
  GatedCalls calls;
  EngineOptions options = Gated(calls);
  options.kv_disk_timeout = milliseconds(300);
  const auto engine = Make(options);
  const auto end = OpenAtEnd(calls);
  calls.HangReads();
  const auto sink = Send(*engine, Spec(prompt));
  ASSERT_TRUE(calls.WaitForHanging());
  EXPECT_TRUE(Answered(*sink));
  EXPECT_EQ(Metric(*engine, "kv_tier_up"), 0);
  EXPECT_TRUE(Answered(*Send(*engine, Spec(Prompt(Largest(*engine), 250, 9)))))
      << "the pages that were to be filled are not free";
  EXPECT_FALSE(engine->Load().tiers.at(0).off.empty());
}

TEST_F(PageTierDiskTest, ARequestThatEndsGivesItsPagesBackWhileTheDiskHangs) {
  const std::vector<int32_t> prompt = Prompt(600, 250);
  Leave({prompt});
  GatedCalls calls;
  const auto engine = Make(Gated(calls));
  const auto end = OpenAtEnd(calls);
  calls.HangReads();
  auto sink = std::make_shared<CollectingSink>();
  const auto id = engine->Submit(Spec(prompt), sink);
  ASSERT_TRUE(id.ok() && calls.WaitForHanging());
  engine->Cancel(*id);
  ASSERT_TRUE(sink->Wait().has_value());
  EXPECT_TRUE(Answered(*Send(*engine, Spec(Prompt(Largest(*engine), 250, 9)))));
  EXPECT_EQ(Metric(*engine, "kv_tier_up"), 1);
}

// Never still, and never done: neither the text that is read nor a short one behind it waits.
TEST_F(PageTierDiskTest, ADiskThatTricklesHoldsNobodyLongerThanComputing) {
  const std::vector<int32_t> text = Prompt(900, 250);
  const std::vector<int32_t> small = Prompt(90, 250, 4);
  Leave({text, small});
  GatedCalls calls;
  const auto engine = Make(Gated(calls));
  const auto end = OpenAtEnd(calls);
  calls.HangReads();
  const auto first = Send(*engine, Spec(text));
  ASSERT_TRUE(calls.WaitForHanging());
  const auto second = Send(*engine, Spec(small));
  bool answered = false;
  for (int i = 0; i < 75 && !answered; ++i) {  // of the 112 reads of the text
    calls.AllowReads(1);
    answered = first->Wait(0.1).has_value() && second->Wait(0.1).has_value();
  }
  EXPECT_TRUE(answered);
  EXPECT_TRUE(Answered(*first) && Answered(*second));
  EXPECT_EQ(Metric(*engine, "kv_tier_up"), 1);
  for (const auto& each : {first, second}) {
    const std::optional<CacheMiss> miss = each->Wait()->usage.cache_miss;
    ASSERT_TRUE(miss.has_value());
    EXPECT_EQ(miss->reason, CacheMiss::Reason::kDiskSlower) << "the reply says why it was computed";
  }
}

TEST_F(PageTierDiskTest, PagesThatWaitToBeWrittenMakeRoom) {
  GatedCalls calls;
  const auto engine = Make(Gated(calls));
  const auto end = OpenAtEnd(calls);
  calls.HangWrites();
  EXPECT_TRUE(Answered(*Send(*engine, Spec(Prompt(600, 250)))));
  ASSERT_TRUE(calls.WaitForHanging());
  EXPECT_TRUE(Answered(*Send(*engine, Spec(Prompt(Largest(*engine), 250, 9)))));
  EXPECT_EQ(Metric(*engine, "kv_tier_up"), 1);
}

// Another request says of a page that waits to be written that it holds a document: so does the
// file, and the document's deletion finds it.
TEST_F(PageTierDiskTest, APageThatWaitsLearnsItsDocument) {
  GatedCalls calls;
  EngineOptions options = Gated(calls);
  options.kv_memory_bytes = 64 << 20;
  const auto engine = Make(options);
  const absl::Cleanup open = [&] { calls.Open(); };  // before the engine ends
  calls.HangWrites();
  RequestSpec spec = Spec(Prompt(320, 250));
  Ask(*engine, spec);
  ASSERT_TRUE(calls.WaitForHanging());
  spec.documents = {{0, "text"}};
  Ask(*engine, spec);
  calls.Open();
  ASSERT_TRUE(WaitForPages(*engine, 20));
  const auto nameless = [&] {
    const std::vector<fs::path> files = Files();
    return std::count_if(files.begin(), files.end(), [](const fs::path& file) {
      return EntryName::Parse(file.filename().string())->documents.empty();
    });
  };
  for (int i = 0; i < 1000 && nameless() > 0; ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(nameless(), 0);
  EXPECT_EQ(Files().size(), 20u);
  EXPECT_TRUE(engine->ForgetDocument(TenantId(), "text", CancelFlag::Never()).ok());
  EXPECT_EQ(Files().size(), 0u);
}

TEST_F(PageTierDiskTest, AWriteThatHangsIsNoticed) {
  GatedCalls calls;
  EngineOptions options = Gated(calls);
  options.kv_disk_timeout = milliseconds(300);
  const auto engine = Make(options);
  const auto end = OpenAtEnd(calls);
  calls.HangWrites();
  EXPECT_TRUE(Answered(*Send(*engine, Spec(Prompt(600, 250)))));
  for (int i = 0; i < 2000 && Metric(*engine, "kv_tier_up") > 0; ++i) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(Metric(*engine, "kv_tier_up"), 0);
}

TEST_F(PageTierDiskTest, TheSameBeginningIsReadOnce) {
  model_ = SlowToCompute(folder_);
  const std::vector<int32_t> before = Prompt(200, 250, 8);
  const std::vector<int32_t> text = Prompt(600, 250);
  Leave({before, text});
  std::vector<int32_t> other = text;
  other.back() = 77;
  GatedCalls calls;
  EngineOptions options = Gated(calls);
  options.kv_memory_bytes = 64 << 20;
  const auto engine = Make(options);
  const auto end = OpenAtEnd(calls);
  EXPECT_EQ(Ask(*engine, Spec(before)).usage.restored_tokens, 192);  // its rates are known now
  calls.HangReads();
  const auto first = Send(*engine, Spec(text));
  ASSERT_TRUE(calls.WaitForHanging());
  const auto second = Send(*engine, Spec(other));
  second->Wait(0.3);  // meanwhile it is looked at
  calls.Open();
  for (const auto& sink : {first, second}) {
    ASSERT_TRUE(Answered(*sink));
    EXPECT_EQ(sink->Wait()->usage.restored_tokens, 592);
  }
  EXPECT_EQ(Metric(*engine, "kv_tier_restores_total"), 2);
  EXPECT_EQ(Metric(*engine, "kv_tier_hits_total"), 192 + 592);
}

// What was restored goes as it came: the end of a text before its beginning.
TEST_F(PageTierDiskTest, ARestoredTextKeepsItsBeginningInASmallerFolder) {
  const std::vector<int32_t> text = Prompt(600, 250);
  Leave({text});
  EXPECT_EQ(Ask(*Make(Options(model_, 1)), Spec(text)).usage.restored_tokens, 592);
  int64_t bytes = 0;
  for (const auto& file : Files()) bytes += (fs::file_size(file) + 4095) / 4096 * 4096;
  ASSERT_TRUE(DiskStore::Open(disk(), bytes / 2).ok());
  const Answer answer = Ask(*Make(Options(model_, 1)), Spec(text));
  EXPECT_GE(answer.usage.restored_tokens, 592 / 2 - 2 * kPage);
}

}  // namespace
}  // namespace annulus
