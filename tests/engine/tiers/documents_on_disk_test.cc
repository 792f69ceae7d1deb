// A document that is deleted takes what was kept of prompts with it from the disk.

#include <errno.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/tiers/disk_remover.h"
#include "tests/engine/tiers/disk_store_fixture.h"
#include "tests/support/manual_clock.h"

namespace annulus {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::FaultyCalls;
using testing::kFile;
using testing::MarksOf;

DocumentSet SetOf(const std::vector<std::string>& contents) {
  DocumentSet set;
  for (const std::string& content : contents) set.Add(content);
  return set;
}

TEST(DocumentSetTest, HoldsWhatWasAdded) {
  const DocumentSet one = SetOf({"one"});
  const DocumentSet both = SetOf({"one", "two"});
  EXPECT_TRUE(DocumentSet().empty() && !one.empty());
  EXPECT_TRUE(both.Holds(one) && both.Holds(SetOf({"two"})) && both.Holds(DocumentSet()));
  EXPECT_FALSE(one.Holds(both));
  DocumentSet sum = one;
  sum.Add(SetOf({"two"}));
  EXPECT_EQ(sum, both);
  EXPECT_EQ(DocumentSet::Parse(both.Text()), both);
  EXPECT_FALSE(DocumentSet::Parse(both.Text().substr(1)).has_value());
  EXPECT_FALSE(DocumentSet::Parse("X" + both.Text().substr(1)).has_value());
  // Few of many seem to be held that are not.
  DocumentSet eight;
  for (int i = 0; i < 8; ++i) eight.Add("document " + std::to_string(i));
  int seem = 0;
  for (int i = 8; i < 10008; ++i) seem += eight.Holds(SetOf({"document " + std::to_string(i)}));
  EXPECT_LT(seem, 100);
}

class DocumentsOnDiskTest : public testing::DiskStoreFixture {
 protected:
  std::unique_ptr<DiskStore> Open(int64_t limit = int64_t{1} << 30,
                                  DiskCalls& calls = DiskCalls::System()) {
    return DiskStoreFixture::Open(limit, calls, clock_);
  }
  // A text of six pages, with one document from its third page and another from its fifth.
  std::vector<PageMark> Text(const std::string& tenant) const {
    std::vector<PageMark> marks = MarksOf(6, tenant);
    for (size_t i = 0; i < marks.size(); ++i) {
      if (i >= 2) marks[i].documents.Add("early");
      if (i >= 4) marks[i].documents.Add("late");
      marks[i].asked = clock_.Now();
    }
    return marks;
  }
  static void PutAll(DiskStore& store, const std::vector<PageMark>& marks) {
    for (const PageMark& mark : marks) ASSERT_TRUE(Put(store, mark).ok());
  }
  static int Found(DiskStore& store, const std::vector<PageMark>& marks) {
    int found = 0;
    for (const PageMark& mark : marks) found += Finds(store, mark) ? 1 : 0;
    return found;
  }
  static DiskStore::Deletion Forgotten(DiskStore& store, const std::string& tenant,
                                       const std::string& content) {
    auto deletion = store.ForgetDocument(HashOf(tenant), content, CancelFlag::Never());
    EXPECT_TRUE(deletion.ok()) << deletion.status();
    return deletion.ok() ? *std::move(deletion) : DiskStore::Deletion();
  }
  static int64_t Forget(DiskStore& store, const std::string& tenant, const std::string& content) {
    const DiskStore::Deletion deletion = Forgotten(store, tenant, content);
    for (const EntryName& page : deletion.pages) EXPECT_TRUE(store.RemoveForgotten(page).ok());
    return std::ssize(deletion.pages);
  }

  testing::ManualClock clock_;
};

TEST_F(DocumentsOnDiskTest, WhatHoldsOrFollowsItGoesOfItsTenantAlone) {
  for (const bool restart : {false, true}) {
    auto store = Open();
    PutAll(*store, Text("one"));
    PutAll(*store, Text("two"));
    if (restart) {
      store.reset();
      store = Open();
    }
    EXPECT_EQ(Found(*store, Text("one")), 6) << restart;
    EXPECT_EQ(Forget(*store, "one", "another"), 0);
    EXPECT_EQ(Forget(*store, "one", "late"), 2);
    EXPECT_EQ(Found(*store, Text("one")), 4);
    EXPECT_EQ(Files().size(), 10u);
    EXPECT_EQ(Forget(*store, "one", "early"), 2);
    EXPECT_EQ(Found(*store, Text("one")), 2);
    EXPECT_EQ(Found(*store, Text("two")), 6);
    EXPECT_EQ(Files().size(), 8u);
    EXPECT_EQ(store->stats().bytes, 8 * kFile);
    store.reset();
    EXPECT_EQ(Found(*Open(), Text("one")), 2);
  }
}

// The same tokens came before without the document.
TEST_F(DocumentsOnDiskTest, APageThatWasThereLearnsItsDocument) {
  auto store = Open();
  PutAll(*store, MarksOf(6));
  EXPECT_FALSE(store->Has(KeyOf(MarksOf(6)[3]), SetOf({"early"})));
  PutAll(*store, Text("default"));
  EXPECT_TRUE(store->Has(KeyOf(MarksOf(6)[3]), SetOf({"early"})));
  EXPECT_EQ(Files().size(), 6u);
  EXPECT_EQ(Found(*store, MarksOf(6)), 6);
  store.reset();
  store = Open();
  EXPECT_EQ(Found(*store, MarksOf(6)), 6);
  EXPECT_EQ(Forget(*store, "default", "early"), 4);
  EXPECT_EQ(Found(*store, MarksOf(6)), 2);
  EXPECT_EQ(Files().size(), 2u);
}

// At each call to the disk: whatever a write has done by then, nothing stays.
TEST_F(DocumentsOnDiskTest, AWriteUnderWayLeavesNothingOfADeletedDocument) {
  for (const bool known : {false, true}) {
    for (int at = 0; at < 4; ++at) {
      FaultyCalls calls;
      const auto store = Open(1 << 20, calls);
      const PageMark mark = Text("default")[3];
      if (known) {
        ASSERT_TRUE(Put(*store, MarksOf(6)[3]).ok());
      }
      int call = 0;
      calls.on_change = [&] {
        if (call++ == at) Forget(*store, "default", "early");
      };
      ASSERT_TRUE(Put(*store, mark).ok());
      calls.on_change = nullptr;
      const bool deleted = call > at;
      EXPECT_TRUE(deleted || known) << "the write has more calls";
      EXPECT_EQ(Finds(*store, mark), !deleted) << known << " " << at;
      EXPECT_EQ(Files().size(), deleted ? 0u : 1u) << known << " " << at;
      EXPECT_EQ(store->stats().bytes, BytesOnDisk());
      Forget(*store, "default", "early");
      EXPECT_TRUE(Files().empty());
    }
  }
}

TEST_F(DocumentsOnDiskTest, OnlyRequestsFromBeforeTheDeletionLeaveNothing) {
  const auto store = Open();
  const std::vector<PageMark> before = Text("default");
  EXPECT_EQ(Forget(*store, "default", "early"), 0);
  PutAll(*store, before);
  EXPECT_EQ(Found(*store, before), 2) << "the pages in front of the document";
  clock_.Advance(milliseconds(1));
  PutAll(*store, Text("default"));
  EXPECT_EQ(Found(*store, before), 6) << "it was sent again";
}

// Removing hangs until it is told to go on.
class HangingCalls final : public DiskCalls {
 public:
  int Remove(int folder, const std::string& name) override {
    std::unique_lock lock(mutex_);
    removed_.push_back(name);
    changed_.wait(lock, [&] { return open_; });
    return DiskCalls::Remove(folder, name);
  }
  void Close() {
    std::lock_guard lock(mutex_);
    open_ = false;
  }
  std::vector<std::string> removed() {
    std::lock_guard lock(mutex_);
    return removed_;
  }
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  std::vector<std::string> removed_;  // in this order
};

TEST_F(DocumentsOnDiskTest, NobodyWaitsLongForADiskThatHangs) {
  HangingCalls calls;
  const auto store = Open(1 << 20, calls);
  PutAll(*store, Text("default"));
  DiskRemover remover(*store, {.most_wait = milliseconds(20)});
  const ContentHash tenant = HashOf("default");
  EXPECT_TRUE(remover.Remove(tenant, {}, CancelFlag::Never()).ok());
  EXPECT_EQ(
      remover.Remove(tenant, Forgotten(*store, "default", "late"), CancelFlag::Never()).code(),
      absl::StatusCode::kUnavailable);
  EXPECT_EQ(store->stats().pages, 4) << "nothing finds them";
  EXPECT_EQ(store->stats().bytes, 6 * kFile) << "their files are still there";
  const auto more = Forgotten(*store, "default", "early");
  const auto begun = steady_clock::now();
  EXPECT_FALSE(remover.Remove(tenant, more, CancelFlag::Never()).ok());
  EXPECT_LT(steady_clock::now() - begun, std::chrono::seconds(10));
  calls.Open();
  while (Files().size() > 2) std::this_thread::yield();
  while (store->stats().bytes > 2 * kFile) std::this_thread::yield();
  EXPECT_TRUE(store->on());
}

TEST_F(DocumentsOnDiskTest, WhoIsCancelledWaitsNoLonger) {
  HangingCalls calls;
  const auto store = Open(1 << 20, calls);
  PutAll(*store, Text("default"));
  DiskRemover remover(*store, {});
  CancelFlag cancel;
  std::thread waits([&] {
    EXPECT_TRUE(absl::IsCancelled(
        remover.Remove(HashOf("default"), Forgotten(*store, "default", "early"), cancel)));
  });
  while (calls.removed().empty()) std::this_thread::yield();
  cancel.Cancel();
  waits.join();
  calls.Open();
}

TEST_F(DocumentsOnDiskTest, ARemovalThatHangsTurnsTheStoreOff) {
  HangingCalls calls;
  const auto store = Open(1 << 20, calls);
  PutAll(*store, Text("default"));
  DiskRemover remover(*store, {}, clock_);
  std::atomic<bool> told{false};
  std::thread waits([&] {
    EXPECT_TRUE(absl::IsUnavailable(remover.Remove(
        HashOf("default"), Forgotten(*store, "default", "early"), CancelFlag::Never())));
    told = true;
  });
  while (calls.removed().empty()) std::this_thread::yield();
  const SteadyTime hangs = clock_.Now();
  EXPECT_TRUE(clock_.AdvanceUntil([&] { return told.load(); }, std::chrono::seconds(1)));
  EXPECT_GE(clock_.Now() - hangs, DiskRemover::Options().most_wait);
  EXPECT_TRUE(clock_.AdvanceUntil([&] { return !store->on(); }, std::chrono::seconds(1)));
  EXPECT_GE(clock_.Now() - hangs, DiskRemover::Options().most_call);
  waits.join();
  EXPECT_FALSE(store->stats().off.empty());
  calls.Open();
}

// One has deleted a long text; another's page does not wait for all of it.
TEST_F(DocumentsOnDiskTest, TenantsTakeTurns) {
  constexpr int kMany = 400;
  HangingCalls calls;
  const auto store = Open(int64_t{1} << 30, calls);
  std::vector<PageMark> marks = MarksOf(kMany, "one");
  for (PageMark& mark : marks) mark.documents.Add("long");
  PutAll(*store, marks);
  PutAll(*store, Text("two"));
  DiskRemover remover(*store, {.most_wait = milliseconds(0)});
  EXPECT_FALSE(
      remover.Remove(HashOf("one"), Forgotten(*store, "one", "long"), CancelFlag::Never()).ok());
  EXPECT_FALSE(
      remover.Remove(HashOf("two"), Forgotten(*store, "two", "late"), CancelFlag::Never()).ok());
  calls.Open();
  while (calls.removed().size() < kMany + 2) std::this_thread::yield();
  const std::vector<std::string> removed = calls.removed();
  const std::string other =
      absl::StrCat("-", absl::Hex(TenantPart(HashOf("two")), absl::kZeroPad16));
  for (int i = 0; i < kMany + 2; ++i) {
    EXPECT_TRUE(i < kMany / 2 || removed[i].find(other) == std::string::npos) << i;
  }
}

// A disk that is full, or fails, keeps the files; the daemon ends, and the next one meets them.
class UnremovableCalls final : public DiskCalls {
 public:
  int Remove(int folder, const std::string& name) override {
    if (fails && name.find(".page") != std::string::npos) return errno = EIO, -1;
    return DiskCalls::Remove(folder, name);
  }
  bool fails = true;
};

TEST_F(DocumentsOnDiskTest, ARestartRemovesWhatADeletionLeft) {
  UnremovableCalls calls;
  {
    const auto store = Open(1 << 20, calls);
    PutAll(*store, Text("default"));
    PutAll(*store, Text("other"));
    DiskRemover remover(*store, {});
    EXPECT_FALSE(
        remover
            .Remove(HashOf("default"), Forgotten(*store, "default", "early"), CancelFlag::Never())
            .ok());
  }
  EXPECT_EQ(Files().size(), 13u) << "12 pages, and the note";
  // The disk still keeps them: they are not found all the same, and the note stays.
  EXPECT_EQ(Found(*Open(1 << 20, calls), Text("default")), 0) << "the store is off";
  EXPECT_EQ(Files().size(), 13u);
  calls.fails = false;
  const auto store = Open(1 << 20, calls);
  EXPECT_EQ(Found(*store, Text("default")), 2) << "the pages in front of the document";
  EXPECT_EQ(Found(*store, Text("other")), 6);
  EXPECT_EQ(Files().size(), 8u);
  EXPECT_EQ(store->stats().bytes, BytesOnDisk());
}

TEST_F(DocumentsOnDiskTest, ARestartKeepsWhatCameAfterTheDeletion) {
  DeletionNote note;
  {
    const auto store = Open();
    PutAll(*store, Text("default"));
    const DiskStore::Deletion deletion = Forgotten(*store, "default", "early");
    note = deletion.note;
    store->LeaveNote(note);
    for (const EntryName& page : deletion.pages) EXPECT_TRUE(store->RemoveForgotten(page).ok());
    clock_.Advance(milliseconds(1));
    PutAll(*store, Text("default"));  // the document was sent again
  }
  const auto store = Open();
  EXPECT_EQ(Found(*store, Text("default")), 6);
  EXPECT_EQ(Files().size(), 6u) << "the note has done its work";
  EXPECT_EQ(DeletionNote::Parse(note.Text())->Text(), note.Text());
  for (const char* broken : {"deleted-", "deleted-0-0-0", "x"}) {
    EXPECT_FALSE(DeletionNote::Parse(broken).has_value()) << broken;
  }
}

// The page was computed and put again while its old file waited to be removed.
TEST_F(DocumentsOnDiskTest, APageThatIsPutAgainKeepsItsFile) {
  const auto store = Open();
  PutAll(*store, Text("default"));
  const DiskStore::Deletion old = Forgotten(*store, "default", "early");
  clock_.Advance(milliseconds(1));
  const std::vector<PageMark> again = Text("default");
  PutAll(*store, again);
  for (const EntryName& page : old.pages) EXPECT_TRUE(store->RemoveForgotten(page).ok());
  EXPECT_EQ(Found(*store, again), 6);
  EXPECT_EQ(store->stats().bytes, BytesOnDisk());
}

// The page was put again as part of another document while its old file waited to be removed, and
// then the daemon was killed: neither file has the labels of both, and only one would be counted.
TEST_F(DocumentsOnDiskTest, ARestartLeavesNoSecondFileOfAPage) {
  {
    const auto store = Open();
    PutAll(*store, Text("default"));
    EXPECT_EQ(Forgotten(*store, "default", "early").pages.size(), 4u);
    clock_.Advance(milliseconds(1));
    std::vector<PageMark> again = Text("default");
    for (size_t i = 2; i < again.size(); ++i) again[i].documents.Add("another");
    PutAll(*store, again);
    EXPECT_EQ(Files().size(), 10u);
  }
  const auto store = Open();
  EXPECT_EQ(Found(*store, Text("default")), 2);
  EXPECT_EQ(Files().size(), 2u);
  EXPECT_EQ(store->stats().bytes, BytesOnDisk());
  EXPECT_TRUE(store->on());
  PutAll(*store, Text("default"));
  EXPECT_EQ(Found(*store, Text("default")), 6);
}

// Others' deletions never make it forget one that a request from before still has to heed.
TEST_F(DocumentsOnDiskTest, ManyDeletionsLaterNothingComesBack) {
  const auto store = Open();
  const std::vector<PageMark> before = Text("default");
  Forget(*store, "default", "early");
  for (int i = 0; i < 5000; ++i) Forget(*store, "another", std::to_string(i));
  PutAll(*store, before);
  EXPECT_EQ(Found(*store, before), 2);
}

// Pages are looked at some at a time, and those that are used meanwhile are not passed by.
TEST_F(DocumentsOnDiskTest, AmongManyPagesOthersMayPause) {
  class Touching final : public CancelFlag {
   public:
    std::function<void()> touch;
    void MayPause() const override { touch(); }
  };
  const auto store = Open();
  for (int text = 0; text < 5; ++text) {
    std::vector<PageMark> marks = MarksOf(1000, "default", 10'000 * text);
    for (PageMark& mark : marks) mark.documents.Add("long");
    PutAll(*store, marks);
  }
  int pauses = 0;
  Touching flag;
  flag.touch = [&] {
    ++pauses;
    for (int text = 3; text < 5; ++text) {
      for (const PageMark& mark : MarksOf(1000, "default", 10'000 * text)) {
        store->Touch(KeyOf(mark), store->NextUse());
      }
    }
  };
  const auto deletion = store->ForgetDocument(HashOf("default"), "long", flag);
  ASSERT_TRUE(deletion.ok());
  EXPECT_EQ(deletion->pages.size(), 5000u);
  EXPECT_GE(pauses, 2);
  EXPECT_EQ(store->stats().pages, 0);
}

}  // namespace
}  // namespace annulus
