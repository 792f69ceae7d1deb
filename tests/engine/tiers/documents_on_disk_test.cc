// A document that is deleted takes what was kept of prompts with it from the disk.

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/tiers/disk_remover.h"
#include "tests/engine/tiers/disk_store_fixture.h"

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
  // A text of six pages, with one document from its third page and another from its fifth.
  static std::vector<PageMark> Text(const std::string& tenant) {
    std::vector<PageMark> marks = MarksOf(6, tenant);
    for (size_t i = 0; i < marks.size(); ++i) {
      if (i >= 2) marks[i].documents.Add("early");
      if (i >= 4) marks[i].documents.Add("late");
      marks[i].asked = steady_clock::now();
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
  static int64_t Forget(DiskStore& store, const std::string& tenant, const std::string& content) {
    const std::vector<std::string> names = store.ForgetDocument(HashOf(tenant), content);
    EXPECT_TRUE(store.RemoveFiles(names).ok());
    return std::ssize(names);
  }
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
  std::this_thread::sleep_for(milliseconds(1));
  PutAll(*store, Text("default"));
  EXPECT_EQ(Found(*store, before), 6) << "it was sent again";
}

// Removing hangs until it is told to go on.
class HangingCalls final : public DiskCalls {
 public:
  int Remove(int folder, const std::string& name) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
    return DiskCalls::Remove(folder, name);
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
};

TEST_F(DocumentsOnDiskTest, NobodyWaitsLongForADiskThatHangs) {
  HangingCalls calls;
  const auto store = Open(1 << 20, calls);
  PutAll(*store, Text("default"));
  DiskRemover remover(*store);
  EXPECT_TRUE(remover.Remove({}, milliseconds(0)).ok());
  const auto names = store->ForgetDocument(HashOf("default"), "early");
  EXPECT_EQ(remover.Remove(names, milliseconds(20)).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(store->stats().pages, 2) << "nothing finds them";
  calls.Open();
  EXPECT_TRUE(remover.Remove({"one that is gone"}, std::chrono::seconds(60)).ok());
  EXPECT_EQ(Files().size(), 2u) << "it went on";
}

}  // namespace
}  // namespace annulus
