// The folder of --documents under faults: damage, kills at every call, disks that are full, fail or
// hang.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kernels/base/sanitizers.h"
#include "tests/server/documents/document_folder_fixture.h"

namespace annulus::server {
namespace {

namespace fs = std::filesystem;
using ::testing::SizeIs;

class DocumentFolderFaultsTest : public DocumentFolderTest {};

constexpr char kNoFork[] =
    "the thread sanitizer starts no thread in a fork of a program with threads";

// What a disk does in its bad moments. `mutate` changes one file of a folder.
class Mutation {
 public:
  explicit Mutation(uint64_t seed) : random_(seed) {}

  void Apply(const fs::path& folder, const fs::path& file) {
    const uint64_t size = fs::file_size(file);
    const uint64_t at = Below(size);
    switch (Below(8)) {
      case 0:
        return fs::resize_file(file, at);
      case 1:
        return fs::resize_file(file, size + 1 + Below(100'000));
      case 2:
        fs::remove(file);
        fs::create_directory(file);
        return;
      case 3:
        fs::remove(file);
        fs::create_symlink(folder / "lock", file);
        return;
      case 4: {  // it comes back under another number
        const std::string name = absl::StrCat(absl::Hex(Below(1000), absl::kZeroPad16));
        if (!fs::exists(folder / (name + ".document"))) {
          fs::rename(file, folder / (name + ".document"));
        }
        return;
      }
      case 5:
        return Overwrite(file, at, std::string(std::min<uint64_t>(size - at, Below(5000)), '\0'));
      default:  // a bit, mostly of the header
        return Flip(file, Below(3) == 0 ? at : Below(200));
    }
  }

 private:
  uint64_t Below(uint64_t end) { return random_() % end; }
  static void Overwrite(const fs::path& file, uint64_t at, const std::string& bytes) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(at));
    stream << bytes;
  }
  void Flip(const fs::path& file, uint64_t at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(stream.get() ^ (1 << Below(8)));
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(byte);
  }

  std::mt19937_64 random_;
};

TEST_F(DocumentFolderFaultsTest, AThousandMutationsCostThatDocumentAlone) {
  std::map<std::string, std::string> texts;
  {
    Process process(folder());
    for (int i = 0; i < 4; ++i) {
      const std::string name = absl::StrCat("document-", i);
      texts[name] = TextOf(i < 3 ? 100 + i : kFileBlockBytes + 100, static_cast<char>('a' + i));
      ASSERT_TRUE(process.StatusOfPut(name, texts[name]).ok());
    }
  }
  const fs::path whole = directory_.path() / "whole";
  fs::rename(folder(), whole);
  int lost = 0;
  const int rounds = kSanitized ? 100 : 1000;
  for (int round = 0; round < rounds; ++round) {
    fs::remove_all(folder());
    fs::copy(whole, folder());
    const std::set<std::string> files = Files();
    const auto chosen = std::next(files.begin(), round % static_cast<int>(files.size()));
    Mutation(static_cast<uint64_t>(round)).Apply(folder(), folder() / *chosen);
    Process process(folder());
    ASSERT_TRUE(process.status.ok()) << process.status;
    const LoadedDocuments loaded = process.Load();
    ASSERT_GE(loaded.documents, 3u) << round;
    lost += static_cast<int>(loaded.lost);
    for (const std::string& name : process.Names()) {
      ASSERT_EQ(process.Text(name).value(), texts[name]) << round;
    }
    ASSERT_TRUE(round % 10 != 0 || process.StatusOfPut("new", "text").ok()) << round;
  }
  EXPECT_GT(lost, rounds / 2) << "hardly anything was damaged";
}

// The process dies in one of its calls that change something.
class DyingCalls final : public DiskCalls {
 public:
  explicit DyingCalls(int calls) : left_(calls) {}
  int Open(int folder, const std::string& name, int flags, mode_t mode) override {
    if ((flags & O_CREAT) != 0) MayDie();
    return DiskCalls::Open(folder, name, flags, mode);
  }
  ssize_t Write(int file, const void* bytes, size_t count, int64_t offset) override {
    if (left_-- == 0) {  // in the middle of it
      DiskCalls::Write(file, bytes, count / 2, offset);
      raise(SIGKILL);
    }
    return DiskCalls::Write(file, bytes, count, offset);
  }
  int Remove(int folder, const std::string& name) override {
    MayDie();
    return DiskCalls::Remove(folder, name);
  }
  int Rename(int folder, const std::string& from, const std::string& to) override {
    MayDie();
    return DiskCalls::Rename(folder, from, to);
  }
  int Sync(int file) override {
    MayDie();
    return DiskCalls::Sync(file);
  }

 private:
  void MayDie() {
    if (left_-- == 0) raise(SIGKILL);
  }
  std::atomic<int> left_;
};

// What a process that was killed had done.
struct Done {
  int put = 0;
  int deleted = 0;
};

// Puts and deletes documents in a child that dies in call number `calls`, and returns what the
// child was told is done. Sets `killed` to whether it died.
Done RunUntilKilled(const fs::path& folder, int calls, bool* killed) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    DyingCalls dying(calls);
    Process process(folder, Process::kFolderBytes, dying);
    process.Load();
    const auto tell = [&](char what) { return write(ends[1], &what, 1) == 1; };
    for (int i = 0; i < 3; ++i) {
      const std::string text = TextOf(1000 + kFileBlockBytes * i, static_cast<char>('a' + i));
      if (!process.StatusOfPut(absl::StrCat("d", i), text).ok() || !tell('p')) _exit(1);
      if (i == 0) continue;
      const auto deleted = process.store->Delete({}, absl::StrCat("d", i - 1));
      if (!deleted.ok() || !deleted->file.ok() || !tell('d')) _exit(2);
    }
    _exit(0);
  }
  close(ends[1]);
  Done done;
  for (char what; read(ends[0], &what, 1) == 1;) ++(what == 'p' ? done.put : done.deleted);
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  *killed = WIFSIGNALED(status);
  EXPECT_TRUE(*killed || WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
  return done;
}

TEST_F(DocumentFolderFaultsTest, KilledAtAnyCallItHasWhatWasAcknowledged) {
  if (kThreadSanitizer) GTEST_SKIP() << kNoFork;
  bool killed = true;
  int calls = 0;
  for (; killed && calls < 200; ++calls) {
    fs::remove_all(folder());
    const Done done = RunUntilKilled(folder(), calls, &killed);
    Process process(folder());
    ASSERT_TRUE(process.status.ok()) << process.status;
    EXPECT_EQ(process.Load().lost, 0u) << calls;
    for (int i = 0; i < 3; ++i) {
      const auto text = process.Text(absl::StrCat("d", i));
      const std::string expected = TextOf(1000 + kFileBlockBytes * i, static_cast<char>('a' + i));
      EXPECT_EQ(text.value_or(expected), expected) << calls;
      EXPECT_FALSE(i < done.deleted && text.ok()) << calls << ": d" << i << " came back";
      // The one that was being deleted may be there or not.
      EXPECT_FALSE(i < done.put && i > done.deleted && !text.ok()) << calls << ": d" << i;
    }
    EXPECT_EQ(Files().size(), process.Names().size()) << "what was not finished stays";
  }
  EXPECT_GT(calls, 20);
  EXPECT_FALSE(killed);
}

// Fails, or hangs, as told.
class FaultyCalls final : public DiskCalls {
 public:
  ssize_t Write(int file, const void* bytes, size_t count, int64_t offset) override {
    writing = true;
    writing.notify_all();
    hang.wait(true);
    if (write_error != 0) return errno = write_error, -1;
    return DiskCalls::Write(file, bytes, count, offset);
  }
  int Rename(int folder, const std::string& from, const std::string& to) override {
    if (rename_error != 0) return errno = rename_error, -1;
    return DiskCalls::Rename(folder, from, to);
  }
  int Remove(int folder, const std::string& name) override {
    ++removals;
    return DiskCalls::Remove(folder, name);
  }
  int Sync(int file) override {
    if (sync_error != 0) return errno = sync_error, -1;
    return DiskCalls::Sync(file);
  }
  std::atomic<int> write_error{0}, rename_error{0}, sync_error{0};
  std::atomic<int> removals{0};
  std::atomic<bool> hang{false}, writing{false};

  void EndHanging() {
    hang = false;
    hang.notify_all();
  }
};

TEST_F(DocumentFolderFaultsTest, AFullOrFailingDiskCostsThatDocumentAlone) {
  FaultyCalls calls;
  Process process(folder(), Process::kFolderBytes, calls);
  ASSERT_TRUE(process.StatusOfPut("before", "text").ok());
  int name = 0;
  for (std::atomic<int>* const fault :
       {&calls.write_error, &calls.rename_error, &calls.sync_error}) {
    for (const int error : {ENOSPC, EDQUOT, EFBIG, EIO}) {
      *fault = error;
      const absl::Status status = process.StatusOfPut(absl::StrCat(++name), "text");
      *fault = 0;
      if (error == EIO) {
        EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
      } else {
        EXPECT_EQ(ReasonOf(status), "DOCUMENT_STORE_FULL") << status;
      }
      EXPECT_TRUE(process.StatusOfPut(absl::StrCat(name, "-again"), "text").ok());
    }
  }
  EXPECT_GE(process.store->folder()->stats().errors, name);
  EXPECT_THAT(Files(), SizeIs(1 + name));
  EXPECT_EQ(process.Names().size(), static_cast<size_t>(1 + name));
  EXPECT_EQ(process.Text("before").value(), "text");
}

TEST_F(DocumentFolderFaultsTest, AFileThatMayNotGrowIsAFullDisk) {
  if (kThreadSanitizer) GTEST_SKIP() << kNoFork;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{20'000, 20'000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    Process process(folder());
    if (ReasonOf(process.StatusOfPut("a", TextOf(30'000, 'a'))) != "DOCUMENT_STORE_FULL") _exit(2);
    _exit(process.StatusOfPut("b", TextOf(10'000, 'b')).ok() ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  Process process(folder());
  EXPECT_EQ(process.Load().documents, 1u);
}

TEST_F(DocumentFolderFaultsTest, ADiskThatHangsHoldsNobody) {
  FaultyCalls calls;
  Process process(folder(), Process::kFolderBytes, calls, std::chrono::milliseconds(50));
  calls.hang = true;
  for (const char* const name : {"a", "b"}) {
    const absl::Status status = process.StatusOfPut(name, "text");
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_EQ(ReasonOf(status), "DISK_SLOW");
  }
  EXPECT_TRUE(process.Put("transient", "text", {}, /*transient=*/true).ok());
  calls.EndHanging();
  while (absl::IsUnavailable(process.StatusOfPut("a", "text"))) {
  }
  EXPECT_EQ(process.Text("a").value(), "text");
  EXPECT_THAT(Files(), SizeIs(1));
}

// Until the disk answers again, nothing gathers for it.
TEST_F(DocumentFolderFaultsTest, UploadsThatAHangingDiskRefusesLeaveNoWork) {
  FaultyCalls calls;
  {
    Process process(folder(), Process::kFolderBytes, calls, std::chrono::milliseconds(50));
    calls.hang = true;
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(absl::IsUnavailable(process.StatusOfPut(absl::StrCat(i), "text"))) << i;
    }
    calls.EndHanging();
  }
  EXPECT_EQ(calls.removals, 1) << "of the file that the first one had begun";
  EXPECT_THAT(Files(), SizeIs(0));
}

// Whoever deletes does not wait for the disk, but the file goes.
TEST_F(DocumentFolderFaultsTest, ADeletionThatDoesNotWaitTakesTheFileAllTheSame) {
  for (const bool cancels : {false, true}) {
    SCOPED_TRACE(cancels);
    FaultyCalls calls;
    {
      const std::chrono::milliseconds most_call(cancels ? 600'000 : 50);
      Process process(folder(), Process::kFolderBytes, calls, most_call);
      ASSERT_TRUE(process.StatusOfPut("a", "text").ok());
      calls.writing = false;
      calls.hang = true;
      CancelFlag never;
      CancelFlag cancel;
      if (cancels) cancel.Cancel();
      std::thread writer([&] {
        Upload upload(*process.store, process.engine, {}, never);
        v1::UploadDocumentRequest part;
        part.mutable_header()->set_name("b");
        EXPECT_TRUE(upload.Accept(part).ok());
        part.mutable_chunk()->set_data("text");
        EXPECT_EQ(upload.Accept(part).ok(), cancels);
      });
      calls.writing.wait(false);
      const auto deleted = process.store->Delete({}, "a", cancel);
      ASSERT_TRUE(deleted.ok());
      EXPECT_EQ(absl::IsCancelled(deleted->file), cancels) << deleted->file;
      EXPECT_EQ(absl::IsUnavailable(deleted->file), !cancels) << deleted->file;
      if (!cancels) writer.join();  // it gives up by itself
      calls.EndHanging();
      if (cancels) writer.join();
    }
    EXPECT_THAT(Files(), SizeIs(0));
    Process next(folder());
    EXPECT_EQ(next.Load().documents, 0u) << "it came back";
  }
}

TEST_F(DocumentFolderFaultsTest, AnUploadThatIsCancelledWaitsForNoDisk) {
  FaultyCalls calls;
  Process process(folder(), Process::kFolderBytes, calls);
  CancelFlag cancel;
  calls.hang = true;
  Upload upload(*process.store, process.engine, {}, cancel);
  v1::UploadDocumentRequest part;
  part.mutable_header()->set_name("a");
  ASSERT_TRUE(upload.Accept(part).ok());
  std::thread canceller([&] {
    calls.writing.wait(false);
    cancel.Cancel();
  });
  part.mutable_chunk()->set_data("text");
  EXPECT_TRUE(absl::IsCancelled(upload.Accept(part)));
  canceller.join();
  calls.EndHanging();
}

}  // namespace
}  // namespace annulus::server
