#include "engine/tiers/disk_store.h"

#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/tiers/disk_store_fixture.h"
#include "tests/support/processor_time.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;
using testing::FaultyCalls;
using ::testing::HasSubstr;
using testing::kFile;
using testing::kPayload;
using testing::MarksOf;
using testing::PayloadOf;

using DiskStoreTest = testing::DiskStoreFixture;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteFile(const fs::path& path, absl::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

TEST_F(DiskStoreTest, PagesOutliveTheStore) {
  std::vector<PageMark> marks = MarksOf(5);
  marks[1].coverage = 0.5;
  marks[2].group = 1;
  {
    const auto store = Open();
    for (const PageMark& mark : marks) ASSERT_TRUE(Put(*store, mark).ok());
    for (const PageMark& mark : marks) EXPECT_TRUE(Finds(*store, mark));
  }
  const auto store = Open();
  EXPECT_EQ(store->stats().pages, 5);
  EXPECT_EQ(store->stats().bytes, 5 * kFile);
  for (const PageMark& mark : marks) EXPECT_TRUE(Finds(*store, mark));
  EXPECT_FALSE(Finds(*store, MarksOf(6)[5]));
}

TEST_F(DiskStoreTest, FolderAndFilesAreTheirOwnersAlone) {
  const auto store = Open();
  ASSERT_TRUE(Put(*store, MarksOf(1)[0]).ok());
  struct stat state {};
  ASSERT_EQ(stat(folder().c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777, 0700u);
  for (const fs::path& file : Files()) {
    ASSERT_EQ(stat(file.c_str(), &state), 0);
    EXPECT_EQ(state.st_mode & 0777, 0600u) << file;
  }
}

TEST_F(DiskStoreTest, AFolderThatOthersMayReadIsRefused) {
  ASSERT_TRUE(fs::create_directory(folder()));
  ASSERT_EQ(chmod(folder().c_str(), 0755), 0);
  const auto store = DiskStore::Open(folder(), 1 << 20);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("other users can access it"));
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("run chmod 700 " + folder()));
}

TEST_F(DiskStoreTest, ASecondDaemonIsRefused) {
  const auto first = Open();
  const auto second = DiskStore::Open(folder(), 1 << 20);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another daemon"));
}

// The payload is small, so the header is most of the file; page_entry_test tries its bits too.
TEST_F(DiskStoreTest, AFlippedBitIsAMissWhereverItIs) {
  const PageMark mark = MarksOf(1)[0];
  auto store = Open();
  ASSERT_TRUE(Put(*store, mark).ok());
  const fs::path path = Files().at(0);
  const std::string whole = ReadFile(path);
  ASSERT_EQ(whole.size(), kEntryHeaderBytes + kPayload);
  int64_t flipped = 0;
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    // Files are slow to make; of the header page_entry_test tries every bit.
    const bool of_header = bit < kEntryHeaderBytes * 8;
    if (of_header ? bit % 31 != 0 : kThreadSanitizer && bit % 7 != 0) continue;
    std::string broken = whole;
    broken[bit / 8] = static_cast<char>(broken[bit / 8] ^ (1 << (bit % 8)));
    WriteFile(path, broken);
    ASSERT_FALSE(Finds(*store, mark)) << "bit " << bit;
    ASSERT_FALSE(fs::exists(path)) << "a broken page stays";
    ASSERT_TRUE(Put(*store, mark).ok());
    ++flipped;
  }
  EXPECT_EQ(store->stats().rejects, flipped);
  EXPECT_TRUE(store->on());
  EXPECT_TRUE(Finds(*store, mark));
}

TEST_F(DiskStoreTest, ACutOrPaddedFileIsAMissAtAnyLength) {
  const PageMark mark = MarksOf(1)[0];
  auto store = Open();
  ASSERT_TRUE(Put(*store, mark).ok());
  const fs::path path = Files().at(0);
  const std::string whole = ReadFile(path);
  for (size_t length = 0; length < whole.size() + 2; ++length) {
    if (length == whole.size() || (kThreadSanitizer && length % 13 != 0)) continue;
    WriteFile(path, (whole + "x").substr(0, length));
    ASSERT_FALSE(Finds(*store, mark)) << length;
    ASSERT_TRUE(Put(*store, mark).ok());
  }
  for (const size_t length : {size_t{0}, size_t{1}, kEntryHeaderBytes, whole.size() - 1}) {
    WriteFile(path, whole.substr(0, length));
    store.reset();
    store = Open();
    EXPECT_EQ(store->stats().pages, 0) << length;
    EXPECT_TRUE(Files().empty()) << length;
    ASSERT_TRUE(Put(*store, mark).ok());
  }
}

TEST_F(DiskStoreTest, AnotherPagesFileIsAMiss) {
  const PageMark mark = MarksOf(2)[1];
  PageMark policy = mark;
  policy.policy = HashOf("window");
  PageMark group = mark;
  group.group = 1;
  const std::vector<PageMark> others = {MarksOf(2, "default", 0, "other model")[1],
                                        MarksOf(2, "stranger")[1], MarksOf(2, "default", 9)[1],
                                        policy, group};
  for (const PageMark& other : others) {
    auto store = Open();
    ASSERT_TRUE(Put(*store, mark).ok());
    const fs::path path = Files().at(0);
    Lose(*store, mark);
    ASSERT_TRUE(Put(*store, other).ok());
    const std::string bytes = ReadFile(Files().at(0));
    Lose(*store, other);
    ASSERT_TRUE(Put(*store, mark).ok());
    WriteFile(path, bytes);  // under the name of the page that is wanted
    EXPECT_FALSE(Finds(*store, mark));
    EXPECT_EQ(store->stats().rejects, 1);
  }
}

TEST_F(DiskStoreTest, TheSizeIsNeverExceededAndTheOldestGo) {
  constexpr int kPages = 6;
  const auto store = Open(kPages * kFile);
  const std::vector<PageMark> old = MarksOf(4, "default", 100);
  const std::vector<PageMark> used = MarksOf(3, "default", 200);
  const auto put_all = [&](const std::vector<PageMark>& marks) {
    const int64_t use = store->NextUse();
    for (const PageMark& mark : marks) {
      const auto payload = PayloadOf(mark, kPayload);
      const std::array<std::span<const std::byte>, 1> parts = {payload};
      ASSERT_TRUE(store->Put(mark, parts, use).ok());
      EXPECT_LE(BytesOnDisk(), kPages * kFile);
    }
  };
  put_all(old);
  put_all(used);
  // Of the older text its last page went first.
  EXPECT_TRUE(Finds(*store, old[0]));
  EXPECT_FALSE(store->Has(KeyOf(old[3])));
  const int64_t use = store->NextUse();
  for (const PageMark& mark : old) store->Touch(KeyOf(mark), use);
  put_all(MarksOf(2, "default", 300));
  EXPECT_TRUE(store->Has(KeyOf(old[2])));
  EXPECT_FALSE(store->Has(KeyOf(used[2])));
  EXPECT_TRUE(store->Has(KeyOf(used[0])));
  EXPECT_EQ(store->stats().bytes, BytesOnDisk());
}

TEST_F(DiskStoreTest, ATenantThatMayHaveNoMoreLosesItsOwn) {
  const auto store = Open(100 * kFile);
  const auto limited = [](std::vector<PageMark> marks) {
    for (PageMark& mark : marks) mark.tenant_bytes = 3 * kFile;
    return marks;
  };
  const std::vector<PageMark> others = MarksOf(4, "other", 1);
  for (const PageMark& mark : others) ASSERT_TRUE(Put(*store, mark).ok());
  const std::vector<PageMark> old = limited(MarksOf(2, "default", 100));
  const std::vector<PageMark> fresh = limited(MarksOf(2, "default", 200));
  for (const PageMark& mark : old) ASSERT_TRUE(Put(*store, mark).ok());
  for (const PageMark& mark : fresh) ASSERT_TRUE(Put(*store, mark).ok());
  EXPECT_FALSE(store->Has(KeyOf(old[0]))) << "it was used first";
  EXPECT_TRUE(store->Has(KeyOf(old[1])));
  for (const PageMark& mark : others) EXPECT_TRUE(Finds(*store, mark));
  EXPECT_EQ(store->stats().bytes, BytesOnDisk());
  // A text that is longer than that keeps its beginning.
  const std::vector<PageMark> long_text = limited(MarksOf(5, "default", 300));
  const int64_t use = store->NextUse();
  for (size_t i = 0; i < long_text.size(); ++i) {
    const auto payload = PayloadOf(long_text[i], kPayload);
    const std::array<std::span<const std::byte>, 1> parts = {payload};
    EXPECT_EQ(store->Put(long_text[i], parts, use).ok(), i < 3) << i;
  }
  EXPECT_EQ(store->stats().pages, 4 + 3);
  // No file of its own fits into less than a page.
  PageMark none = MarksOf(1, "default", 400)[0];
  none.tenant_bytes = kFile - 1;
  EXPECT_EQ(Put(*store, none).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store->on());
}

TEST_F(DiskStoreTest, ASmallerLimitAtTheNextStartHolds) {
  {
    const auto store = Open();
    for (const PageMark& mark : MarksOf(8)) ASSERT_TRUE(Put(*store, mark).ok());
  }
  const auto store = Open(3 * kFile);
  EXPECT_EQ(store->stats().pages, 3);
  EXPECT_LE(BytesOnDisk(), 3 * kFile);
  EXPECT_EQ(Put(*store, MarksOf(1, "default", 9)[0], 4 * kFile).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store->on());
}

// The process dies before each call that changes anything.
class DyingCalls final : public DiskCalls {
 public:
  explicit DyingCalls(int calls) : left_(calls) {}
  ssize_t Write(int file, const void* bytes, size_t count, int64_t offset) override {
    if (left_-- == 0) {  // in the middle of it
      DiskCalls::Write(file, bytes, count / 2, offset);
      raise(SIGKILL);
    }
    return DiskCalls::Write(file, bytes, count, offset);
  }
  int Rename(int folder, const std::string& from, const std::string& to) override {
    if (left_-- == 0) raise(SIGKILL);
    return DiskCalls::Rename(folder, from, to);
  }

 private:
  int left_;
};

TEST_F(DiskStoreTest, KilledAtAnyWriteItHasWholePagesOnly) {
  const std::vector<PageMark> marks = MarksOf(3);
  for (int calls = 0; calls <= 12; ++calls) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      DyingCalls dying(calls);
      auto store = DiskStore::Open(folder(), 1 << 20, dying);
      if (!store.ok()) _exit(1);
      for (const PageMark& mark : marks) {
        if (!Put(**store, mark).ok()) _exit(2);
      }
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    // Four calls a page: the header, two parts, the name.
    ASSERT_EQ(WIFSIGNALED(status), calls < 12) << status;
    const auto store = Open(1 << 20);
    for (int page = 0; page < 3; ++page) {
      EXPECT_EQ(Finds(*store, marks[page]), page < calls / 4) << calls;
    }
    EXPECT_EQ(std::ssize(Files()), calls / 4) << "what was not finished stays";
    for (const PageMark& mark : marks) Lose(*store, mark);
  }
}

TEST_F(DiskStoreTest, AFileReplacedWhileItIsReadIsAMissOrTheOldPage) {
  FaultyCalls calls;
  calls.most = 100;
  const auto store = Open(1 << 20, calls);
  const PageMark mark = MarksOf(1)[0];
  const fs::path other = directory_.path() / "other";
  for (const bool in_place : {false, true}) {
    for (int at = 0; at < 43; ++at) {
      calls.on_read = nullptr;
      ASSERT_TRUE(Put(*store, mark).ok());
      const fs::path path = Files().at(0);
      const std::string whole = ReadFile(path);
      std::string evil(whole.size(), 'x');
      int reads = 0;
      calls.on_read = [&] {
        if (reads++ != at) return;
        if (in_place) {
          WriteFile(path, evil);
        } else {
          WriteFile(other, evil);
          fs::rename(other, path);
        }
      };
      Finds(*store, mark);  // it looks at the bytes, if there are any
      calls.on_read = nullptr;
      Lose(*store, mark);
      fs::remove(path);
    }
  }
  EXPECT_TRUE(store->on());
}

TEST_F(DiskStoreTest, NamesThatAreNoFilesAreMisses) {
  const PageMark mark = MarksOf(1)[0];
  auto store = Open();
  ASSERT_TRUE(Put(*store, mark).ok());
  const fs::path path = Files().at(0);
  const fs::path aside = directory_.path() / "aside";
  const std::vector<std::function<void()>> kinds = {
      [&] { fs::create_symlink(aside, path); },
      [&] { ASSERT_EQ(mkfifo(path.c_str(), 0600), 0); },
      [&] { fs::create_directory(path); },
  };
  fs::copy_file(path, aside);
  for (size_t i = 0; i < kinds.size(); ++i) {
    fs::remove(path);
    kinds[i]();
    EXPECT_FALSE(Finds(*store, mark)) << i;
    fs::remove(path);
    store.reset();
    store = Open();
    ASSERT_TRUE(Put(*store, mark).ok());
    fs::remove(path);
    kinds[i]();
    store.reset();
    store = Open();
    EXPECT_EQ(store->stats().pages, 0) << i;
    EXPECT_TRUE(store->on()) << i;
  }
}

TEST_F(DiskStoreTest, AFolderInAPagesPlaceIsNamed) {
  const PageMark mark = MarksOf(1)[0];
  auto store = Open();
  ASSERT_TRUE(Put(*store, mark).ok());
  EXPECT_EQ(store->stats().obstacle, "");
  const fs::path path = Files().at(0);
  fs::remove(path);
  fs::create_directory(path);
  store.reset();
  store = Open();
  EXPECT_TRUE(absl::IsFailedPrecondition(Put(*store, mark)));
  EXPECT_EQ(store->stats().obstacle, path.string());
  EXPECT_TRUE(store->on());
}

// What is not trusted is found no more, and counts until its file is gone. A page that is put again
// meanwhile keeps its file.
TEST_F(DiskStoreTest, WhatIsNotTrustedIsFoundNoMore) {
  const auto store = Open();
  const std::vector<PageMark> marks = MarksOf(4);
  for (const PageMark& mark : marks) ASSERT_TRUE(Put(*store, mark).ok());
  const std::vector<PageKey> keys = {KeyOf(marks[1]), KeyOf(marks[2]), KeyOf(MarksOf(9)[8])};
  const std::vector<EntryName> pages = store->Distrust(keys);
  ASSERT_EQ(pages.size(), 2u);
  EXPECT_EQ(store->stats().mismatches, 1);
  EXPECT_EQ(store->stats().bytes, 4 * kFile);
  EXPECT_TRUE(Finds(*store, marks[0]));
  EXPECT_FALSE(Finds(*store, marks[1]));
  EXPECT_FALSE(Finds(*store, marks[2]));
  ASSERT_TRUE(Put(*store, marks[1]).ok());
  for (const EntryName& page : pages) EXPECT_TRUE(store->RemoveForgotten(page).ok());
  EXPECT_EQ(store->stats().bytes, 3 * kFile);
  EXPECT_TRUE(Finds(*store, marks[1]));
  EXPECT_EQ(Files().size(), 3u);
}

TEST_F(DiskStoreTest, OtherFilesInTheFolderStay) {
  { const auto store = Open(); }
  for (const char* name : {"notes.txt", "x.page", "00-0-0-0-0.page"}) {
    WriteFile(fs::path(folder()) / name, "mine");
  }
  WriteFile(fs::path(folder()) / "unfinished-7", "half a page");
  // A length that wraps around to the file's.
  const std::string name =
      absl::StrCat(std::string(64, 'a'), "-0-0-18446744073709547520-0000000000000000.page");
  WriteFile(fs::path(folder()) / name, "");
  const auto store = Open();
  EXPECT_EQ(store->stats().pages, 0);
  EXPECT_EQ(Files().size(), 4u);
}

// The latest others are named, however many there were; the rest is not remembered.
TEST_F(DiskStoreTest, KnowsWhoseElsePagesMayBe) {
  const auto name = [](size_t number) { return absl::StrCat("model ", number); };
  const auto identity = [&](size_t number) { return HashOf(name(number)); };
  const auto page = [&](size_t number) { return MarksOf(1, "default", 0, name(number))[0]; };
  const auto note = [&](size_t number) {
    return fs::path(folder()) / IdentityNote{identity(number)}.Text();
  };
  const auto start = [&](size_t number) { return Open()->OtherIdentities(identity(number)); };
  const auto start_and_put = [&](size_t number) {
    const auto store = Open();
    const std::vector<ContentHash> others = store->OtherIdentities(identity(number));
    EXPECT_TRUE(Put(*store, page(number)).ok());
    return others;
  };
  EXPECT_THAT(start_and_put(0), ::testing::IsEmpty());
  EXPECT_THAT(start_and_put(1), ::testing::ElementsAre(identity(0)));
  EXPECT_THAT(start(1), ::testing::ElementsAre(identity(0))) << "it is no other";
  EXPECT_THAT(start(2), ::testing::SizeIs(2));
  EXPECT_THAT(start(0), ::testing::ElementsAre(identity(1))) << "who put nothing is no other";
  constexpr size_t kMost = DiskStore::kMostIdentities;
  const auto now = fs::file_time_type::clock::now();
  for (size_t number = 0; number < kMost + 2; ++number) {
    // A page that is there already is not put, so that no note is left for it.
    if (number > 1) start_and_put(number);
    fs::last_write_time(note(number), now - std::chrono::hours(100 - number));
  }
  // Who reads a page uses it as well.
  {
    const auto store = Open();
    EXPECT_TRUE(Finds(*store, page(0)));
    EXPECT_GT(fs::last_write_time(note(0)), now - std::chrono::hours(1));
    fs::last_write_time(note(0), now - std::chrono::hours(100));
  }
  std::vector<ContentHash> latest;
  for (size_t number = kMost + 2; number > 2; --number) latest.push_back(identity(number - 1));
  EXPECT_EQ(start(100), latest);
  EXPECT_FALSE(fs::exists(note(1)));
  EXPECT_TRUE(fs::exists(note(2)));
  EXPECT_FALSE(fs::exists(note(100)));
  // What is no such note stays, and names nobody.
  const size_t files = Files().size();
  WriteFile(fs::path(folder()) / "identity-00", "mine");
  fs::create_directory(fs::path(folder()) / absl::StrCat("identity-", std::string(64, 'A')));
  fs::create_directory(note(200));
  fs::create_symlink("lock", note(201));
  EXPECT_EQ(start(100), latest);
  EXPECT_EQ(Files().size(), files + 2);
  EXPECT_TRUE(fs::is_directory(note(200)));
  EXPECT_TRUE(fs::is_symlink(note(201)));
}

TEST_F(DiskStoreTest, ManyThreadsNeverMixPages) {
  constexpr int kThreads = 4;
  const auto store = Open(20 * kFile);
  const std::vector<PageMark> marks = MarksOf(30);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < (kThreadSanitizer ? 100 : 400); ++i) {
        const PageMark& mark = marks[random() % marks.size()];
        if (random() % 2 == 0) {
          Put(*store, mark).IgnoreError();
        } else {
          Finds(*store, mark);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(store->on()) << store->stats().off;
  EXPECT_EQ(store->stats().rejects, 0);
  EXPECT_LE(BytesOnDisk(), 20 * kFile);
}

TEST_F(DiskStoreTest, AHundredThousandPagesAreKnownSoon) {
  constexpr int kPages = kThreadSanitizer ? 2'000 : kSanitized ? 20'000 : 100'000;
  { const auto store = Open(); }
  PageMark mark = MarksOf(1)[0];
  for (int i = 0; i < kPages; ++i) {
    std::memcpy(mark.chain.data(), &i, sizeof(i));
    const EntryName name{KeyOf(mark), TenantPart(mark.tenant), 4 * i, kPayload, {}};
    const fs::path path = fs::path(folder()) / name.Text();
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(file, 0);
    const bool broken = i % 100 == 0;
    ASSERT_EQ(ftruncate(file, static_cast<off_t>(kEntryHeaderBytes + (broken ? 1 : kPayload))), 0);
    close(file);
  }
  const double start = testing::ThreadSeconds();  // this thread does it all
  const auto store = Open(int64_t{1} << 40);
  const double taken = testing::ThreadSeconds() - start;
  EXPECT_EQ(store->stats().pages, kPages - kPages / 100);
  EXPECT_EQ(store->stats().rejects, kPages / 100);
  EXPECT_LT(taken, 5);  // 0.8 s; looking through all at each, minutes
  RecordProperty("seconds", std::to_string(taken));
}

}  // namespace
}  // namespace annulus
