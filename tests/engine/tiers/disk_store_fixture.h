#ifndef ANNULUS_TESTS_ENGINE_TIERS_DISK_STORE_FIXTURE_H_
#define ANNULUS_TESTS_ENGINE_TIERS_DISK_STORE_FIXTURE_H_

#include <errno.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "engine/tiers/disk_store.h"
#include "tests/engine/tiers/marks.h"
#include "tests/support/temp_directory.h"

namespace annulus::testing {

namespace fs = std::filesystem;

inline constexpr size_t kPayload = 64;
inline constexpr int64_t kFile = 8192;  // what a file of such a page counts for

class DiskStoreFixture : public ::testing::Test {
 protected:
  std::unique_ptr<DiskStore> Open(int64_t limit = int64_t{1} << 30,
                                  DiskCalls& calls = DiskCalls::System(),
                                  const Clock& clock = Clock::Real()) {
    auto store = DiskStore::Open(folder(), limit, calls, clock);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  static absl::Status Put(DiskStore& store, const PageMark& mark, size_t bytes = kPayload) {
    const std::vector<std::byte> payload = PayloadOf(mark, bytes);
    const std::span<const std::byte> all(payload);
    const std::array<std::span<const std::byte>, 2> parts = {all.first(bytes / 3),
                                                             all.subspan(bytes / 3)};
    return store.Put(mark, parts, store.NextUse()).status();
  }

  // Whether the page is there; if so, its bytes must be right.
  static bool Finds(DiskStore& store, const PageMark& mark, size_t bytes = kPayload) {
    std::vector<std::byte> read(bytes);
    const auto got = store.Get(mark, read, store.NextUse());
    if (got.ok()) {
      EXPECT_EQ(read, PayloadOf(mark, bytes));
      EXPECT_EQ(*got, mark.coverage);
    }
    return got.ok();
  }

  // The page is lost: its file goes, and the store finds that out.
  void Lose(DiskStore& store, const PageMark& mark) const {
    const std::string chain = absl::BytesToHexString(
        absl::string_view(reinterpret_cast<const char*>(mark.chain.data()), mark.chain.size()));
    for (const fs::path& file : Files()) {
      if (file.filename().string().rfind(chain, 0) == 0) fs::remove(file);
    }
    EXPECT_FALSE(Finds(store, mark));
  }

  std::string folder() const { return (directory_.path() / "pages").string(); }
  // What is in the folder, but for the lock and the notes of identities.
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& each : fs::directory_iterator(folder())) {
      const std::string name = each.path().filename().string();
      if (name != "lock" && !IdentityNote::Parse(name).has_value()) files.push_back(each.path());
    }
    return files;
  }
  int64_t BytesOnDisk() const {
    int64_t bytes = 0;
    for (const fs::path& file : Files()) {
      bytes += (static_cast<int64_t>(fs::file_size(file)) + 4095) / 4096 * 4096;
    }
    return bytes;
  }

  TempDirectory directory_;
};

// Fails from the given call on; or writes and reads a few bytes at a time.
class FaultyCalls final : public DiskCalls {
 public:
  ssize_t Write(int file, const void* bytes, size_t count, int64_t offset) override {
    if (on_change) on_change();
    if (write_error != 0 && writes++ >= good_writes) return errno = write_error, -1;
    return DiskCalls::Write(file, bytes, std::min(count, most), offset);
  }
  ssize_t Read(int file, void* bytes, size_t count, int64_t offset) override {
    if (read_error != 0) return errno = read_error, -1;
    if (on_read) on_read();
    return DiskCalls::Read(file, bytes, std::min(count, most), offset);
  }
  int Open(int folder, const std::string& name, int flags, mode_t mode) override {
    if (open_error != 0) return errno = open_error, -1;
    return DiskCalls::Open(folder, name, flags, mode);
  }
  int Rename(int folder, const std::string& from, const std::string& to) override {
    if (on_change) on_change();
    if (rename_error != 0) return errno = rename_error, -1;
    return DiskCalls::Rename(folder, from, to);
  }
  size_t most = SIZE_MAX;
  int write_error = 0;
  int good_writes = 0;
  std::atomic<int> writes{0};
  int read_error = 0;
  int rename_error = 0;
  int open_error = 0;
  std::function<void()> on_read;
  std::function<void()> on_change;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_TIERS_DISK_STORE_FIXTURE_H_
