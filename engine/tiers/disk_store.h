#ifndef ANNULUS_ENGINE_TIERS_DISK_STORE_H_
#define ANNULUS_ENGINE_TIERS_DISK_STORE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/tiers/disk_calls.h"
#include "engine/tiers/disk_folder.h"
#include "engine/tiers/page_store.h"

namespace annulus {

// Pages of keys and values in the files of one folder, one page a file, so that a daemon that ended
// in any way finds them again.
//
// A file appears under its name whole, by rename. Nothing is flushed: after a power failure a file
// may hold anything, which its checksums tell. The limit is that of the files together.
//
// A disk that is full or fails turns the store off until the next start: it then has nothing.
//
// Thread-safe. Put, Get, RemoveForgotten and notes take as long as the disk does; the others never
// wait for it.
class DiskStore final : public PageStore {
 public:
  // FAILED_PRECONDITION as DiskFolder::Open. `calls` must outlive the store.
  static absl::StatusOr<std::unique_ptr<DiskStore>> Open(const std::string& folder,
                                                         int64_t limit_bytes,
                                                         DiskCalls& calls = DiskCalls::System());

  // Leaves a note before the files are removed, and takes it back once all of them are gone. The
  // next start removes the files that a note names. If the disk takes no note, the files are
  // removed without one.
  void LeaveNote(const DeletionNote& note);
  void TakeBackNote(const DeletionNote& note);

  absl::Status RemoveForgotten(const EntryName& page) override;

 private:
  DiskStore(std::unique_ptr<DiskFolder> folder, int64_t limit, DiskCalls& calls)
      : PageStore(limit), folder_(std::move(folder)), calls_(calls) {}

  // FAILED_PRECONDITION if something else has the file's name. An error of the disk turns the store
  // off.
  absl::StatusOr<bool> PutNew(const EntryName& name, const PageMark& mark,
                              std::span<const std::span<const std::byte>> payload,
                              int64_t use) override;
  absl::StatusOr<bool> AddDocuments(const EntryName& from, const PageMark& mark) override;
  absl::StatusOr<std::optional<double>> Read(const EntryName& name, const PageMark& expected,
                                             std::span<std::byte> payload, int64_t use) override;
  bool OnDropped(const EntryName& name) override;

  absl::Status WriteFile(const EntryName& name, const PageMark& mark,
                         std::span<const std::span<const std::byte>> payload, int64_t use);
  absl::Status WriteAll(int file, std::span<const std::byte> bytes, int64_t offset);
  absl::Status ReadAll(int file, std::span<std::byte> bytes, int64_t offset);
  // Of pages that nobody finds any more.
  absl::Status RemoveFiles(std::span<const EntryName> pages);
  // At the start: removes what a note of an earlier daemon names.
  void RemoveNoted(const DeletionNote& note);
  absl::Status OpenFailed(absl::string_view what, int error);
  absl::Status Failed(absl::string_view what, int error);

  const std::unique_ptr<DiskFolder> folder_;
  DiskCalls& calls_;
  std::atomic<uint64_t> next_file_{0};
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_DISK_STORE_H_
