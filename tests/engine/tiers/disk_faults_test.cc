// What a store of pages does where the disk, the folder or the process is at its end.

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/engine/tiers/disk_store_fixture.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;
using testing::FaultyCalls;
using testing::kFile;
using testing::kPayload;
using testing::MarksOf;
using testing::PayloadOf;
using DiskFaultsTest = testing::DiskStoreFixture;

TEST_F(DiskFaultsTest, ShortReadsAndWritesGoOn) {
  FaultyCalls calls;
  calls.most = 37;
  const auto store = Open(1 << 20, calls);
  const PageMark mark = MarksOf(1)[0];
  ASSERT_TRUE(Put(*store, mark).ok());
  EXPECT_TRUE(Finds(*store, mark));
}

TEST_F(DiskFaultsTest, ADiskThatIsFullOrFailsTurnsItOff) {
  for (const int error : {ENOSPC, EDQUOT, EIO, EROFS}) {
    for (int good = 0; good < 3; ++good) {
      FaultyCalls calls;
      const auto store = Open(1 << 20, calls);
      for (const PageMark& mark : MarksOf(2)) Lose(*store, mark);
      ASSERT_TRUE(Put(*store, MarksOf(1)[0]).ok());
      calls.write_error = error;
      calls.good_writes = good;
      EXPECT_FALSE(Put(*store, MarksOf(2)[1]).ok());
      EXPECT_FALSE(store->on());
      EXPECT_FALSE(Finds(*store, MarksOf(1)[0])) << "it is off";
      EXPECT_EQ(store->stats().io_errors, 1);
      EXPECT_FALSE(store->stats().off.empty());
      EXPECT_EQ(Files().size(), 1u) << "a page that was not finished stays";
      EXPECT_EQ(store->stats().bytes, BytesOnDisk());
    }
  }
}

TEST_F(DiskFaultsTest, AnErrorWhileReadingOrNamingTurnsItOff) {
  FaultyCalls calls;
  auto store = Open(1 << 20, calls);
  ASSERT_TRUE(Put(*store, MarksOf(1)[0]).ok());
  calls.read_error = EIO;
  EXPECT_FALSE(Finds(*store, MarksOf(1)[0]));
  EXPECT_FALSE(store->on());
  calls.read_error = 0;
  store.reset();
  store = Open(1 << 20, calls);
  EXPECT_TRUE(Finds(*store, MarksOf(1)[0])) << "the next start has it again";
  calls.rename_error = EIO;
  EXPECT_FALSE(Put(*store, MarksOf(2)[1]).ok());
  EXPECT_FALSE(store->on());
  EXPECT_EQ(Files().size(), 1u);
}

// It is this process that has no file left: the pages are there as before once it has some again.
TEST_F(DiskFaultsTest, AProcessWithoutFilesLeftIsNoFailureOfTheDisk) {
  for (const int error : {EMFILE, ENFILE, ENOMEM}) {
    FaultyCalls calls;
    const std::vector<PageMark> marks = MarksOf(2, "default", error);
    const auto store = Open(1 << 20, calls);
    ASSERT_TRUE(Put(*store, marks[0]).ok());
    calls.open_error = error;
    EXPECT_FALSE(Put(*store, marks[1]).ok());
    EXPECT_FALSE(Finds(*store, marks[0]));
    calls.open_error = 0;
    EXPECT_TRUE(store->on());
    EXPECT_EQ(store->stats().io_errors, 0);
    EXPECT_TRUE(Finds(*store, marks[0]));
    EXPECT_TRUE(Put(*store, marks[1]).ok());
  }
}

TEST_F(DiskFaultsTest, AFolderUnderAPagesNameTurnsNothingOff) {
  const PageMark mark = MarksOf(1)[0];
  auto store = Open();
  ASSERT_TRUE(Put(*store, mark).ok());
  const fs::path path = Files().at(0);
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_FALSE(Finds(*store, mark));
  EXPECT_FALSE(Put(*store, mark).ok());
  EXPECT_TRUE(store->on());
  EXPECT_EQ(store->stats().bytes, 0);
  EXPECT_TRUE(Put(*store, MarksOf(2)[1]).ok());
}

// Pages of one use make no room for each other: the beginning of a text is worth more than its end.
TEST_F(DiskFaultsTest, ATextThatIsTooLargeKeepsItsBeginning) {
  FaultyCalls calls;
  const auto store = Open(4 * kFile, calls);
  ASSERT_TRUE(Put(*store, MarksOf(1, "default", 900)[0]).ok());
  const std::vector<PageMark> marks = MarksOf(10);
  for (int round = 0; round < 2; ++round) {
    const int64_t use = store->NextUse();
    for (size_t i = 0; i < marks.size(); ++i) {
      store->Touch(KeyOf(marks[i]), use);
      const auto payload = PayloadOf(marks[i], kPayload);
      const std::array<std::span<const std::byte>, 1> parts = {payload};
      EXPECT_EQ(store->Put(marks[i], parts, use).ok(), i < 4) << round << " " << i;
    }
    for (size_t i = 0; i < marks.size(); ++i) EXPECT_EQ(Finds(*store, marks[i]), i < 4) << i;
  }
  EXPECT_TRUE(store->on());
}

TEST_F(DiskFaultsTest, NothingIsWrittenIntoAFolderThatIsRefused) {
  ASSERT_EQ(mkdir(folder().c_str(), 0755), 0);
  EXPECT_FALSE(DiskStore::Open(folder(), 1 << 20).ok());
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(DiskFaultsTest, TimesThatNoClockShowsOrderAsTheyAre) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Put(*Open(), MarksOf(1, "default", 100 * i)[0]).ok());
  }
  // The second one was used in the far future, the third before 1970.
  const auto set = [&](int text, int64_t second) {
    const std::string chain = absl::BytesToHexString(absl::string_view(
        reinterpret_cast<const char*>(MarksOf(1, "default", 100 * text)[0].chain.data()), 32));
    for (const fs::path& path : Files()) {
      if (path.filename().string().rfind(chain, 0) != 0) continue;
      const timespec times[2] = {{second, 0}, {second, 0}};
      ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    }
  };
  set(1, 1'000'000'000'000);
  set(2, -5);
  const auto store = Open(2 * kFile);
  EXPECT_TRUE(store->Has(KeyOf(MarksOf(1, "default", 100)[0])));
  EXPECT_FALSE(store->Has(KeyOf(MarksOf(1, "default", 200)[0])));
}

}  // namespace
}  // namespace annulus
