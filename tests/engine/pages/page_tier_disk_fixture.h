#ifndef ANNULUS_TESTS_ENGINE_PAGES_PAGE_TIER_DISK_FIXTURE_H_
#define ANNULUS_TESTS_ENGINE_PAGES_PAGE_TIER_DISK_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "engine/disk/disk_calls.h"
#include "tests/engine/pages/page_tier_fixture.h"

namespace annulus::testing {

// A disk that answers when it is told to.
class GatedCalls final : public DiskCalls {
 public:
  ssize_t Read(int file, void* bytes, size_t count, int64_t offset) override {
    Pass(reads_);
    ++answered_reads_;
    if (read_time_.load().count() > 0) std::this_thread::sleep_for(read_time_.load());
    return DiskCalls::Read(file, bytes, count, offset);
  }
  ssize_t Write(int file, const void* bytes, size_t count, int64_t offset) override {
    Pass(writes_);
    if (clock_ != nullptr) clock_->Advance(std::chrono::milliseconds(1));
    return DiskCalls::Write(file, bytes, count, offset);
  }

  void HangReads() { Set(reads_, 0); }
  void HangWrites() { Set(writes_, 0); }
  // So many more reads, or writes, are answered. A page takes two: its header, and its bytes.
  void AllowReads(int64_t calls) { Set(reads_, calls); }
  void AllowWrites(int64_t calls) { Set(writes_, calls); }
  // How long each read takes from now on.
  void SlowReads(std::chrono::milliseconds time) { read_time_ = time; }
  int64_t answered_reads() const { return answered_reads_; }
  // Of an engine with this clock, before the first call: each write takes a millisecond by it,
  // which is longer than the pace of writing asks for.
  void WriteBy(ManualClock& clock) { clock_ = &clock; }
  void Open() {
    Set(reads_, kAny);
    Set(writes_, kAny);
  }
  // Waits until a call hangs.
  bool WaitForHanging() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), [&] { return hanging_ > 0; });
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
  std::atomic<int64_t> answered_reads_{0};
  std::atomic<std::chrono::milliseconds> read_time_{};
  ManualClock* clock_ = nullptr;
};

// Engines of a model without windows whose disk is gated.
class PageTierDiskFixture : public PageTierFixture {
 protected:
  PageTierDiskFixture() : model_(WithoutWindows(folder_)) {}

  SeamedOptions Gated(GatedCalls& calls) const {
    SeamedOptions options{Options(model_, 1)};
    options.kv_memory_bytes = 1 << 20;
    options.seams.disk_calls = &calls;
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
inline auto OpenAtEnd(GatedCalls& calls) {
  return absl::Cleanup([&calls] { calls.Open(); });
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_PAGES_PAGE_TIER_DISK_FIXTURE_H_
