#ifndef ANNULUS_ENGINE_TIERS_DISK_STORE_H_
#define ANNULUS_ENGINE_TIERS_DISK_STORE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/disk/disk_calls.h"
#include "engine/tiers/disk_folder.h"
#include "engine/tiers/page_store.h"

namespace annulus {

// A PageStore in a folder, with one file per page. The next daemon finds the pages again, however
// this one ends.
//
// A file is renamed to its name when it is complete. Nothing is flushed: after a power failure a
// file may hold anything, and its checksums detect that. The limit covers all files together.
//
// A full or failing disk turns the store off until the next start. While off, it finds no page.
//
// Thread-safe. Put, Get, RemoveForgotten and the calls for notes may block on the disk; the other
// calls never do.
class DiskStore final : public PageStore {
 public:
  // Opens the folder and scans it. Errors: those of DiskFolder::Open. `calls` and `clock` must
  // outlive the store.
  static absl::StatusOr<std::unique_ptr<DiskStore>> Open(const std::string& folder,
                                                         int64_t limit_bytes,
                                                         DiskCalls& calls = DiskCalls::System(),
                                                         const Clock& clock = Clock::Real());

  // Writes a note of a deletion: call before its files are removed. If the daemon ends before they
  // are gone, the next Open removes them. TakeBackNote removes the note: call after the last file
  // is gone. A disk error is ignored: the files are then removed without a note.
  void LeaveNote(const DeletionNote& note);
  void TakeBackNote(const DeletionNote& note);

  // Returns under which identities (PageMark::identity) other than `identity` earlier daemons may
  // have left pages, the latest first: at most kMostIdentities, whose notes stay. Call once, before
  // the first Put or Get: the first page that is written or read leaves or renews the note of this
  // daemon. Disk errors are ignored: later daemons then do not know of this one.
  std::vector<ContentHash> OtherIdentities(const ContentHash& identity);
  static constexpr size_t kMostIdentities = 8;

  absl::Status RemoveForgotten(const EntryName& page) override;

 private:
  DiskStore(std::unique_ptr<DiskFolder> folder, int64_t limit, DiskCalls& calls, const Clock& clock)
      : PageStore(limit, clock), folder_(std::move(folder)), calls_(calls) {}

  // FAILED_PRECONDITION if something other than a file has the name. A disk error turns the store
  // off.
  absl::StatusOr<bool> PutNew(const EntryName& name, const PageMark& mark,
                              const PageSource& payload, int64_t use) override;
  absl::StatusOr<bool> AddDocuments(const EntryName& from, const PageMark& mark) override;
  absl::StatusOr<std::optional<double>> Read(const EntryName& name, const PageMark& expected,
                                             const PageTarget& payload, int64_t use) override;
  bool OnDropped(const EntryName& name) override;

  absl::Status WriteFile(const EntryName& name, const PageMark& mark,
                         std::span<const std::span<const std::byte>> payload, int64_t use);
  absl::Status WriteAll(int file, std::span<const std::byte> bytes, int64_t offset);
  absl::Status ReadAll(int file, std::span<std::byte> bytes, int64_t offset);
  // Once, leaves or renews the note of the identity whose pages this daemon has.
  void Note(const PageMark& mark);
  // Removes the files of pages that were dropped.
  absl::Status RemoveFiles(std::span<const EntryName> pages);
  // Used by Open, as RemoveNoted is: `twins` are second files of pages, whose other files go too.
  void RemoveTwins(std::vector<EntryName> twins);
  // Used by Open: removes the files that a note of an earlier daemon names, then the note.
  void RemoveNoted(const DeletionNote& note);
  absl::Status OpenFailed(absl::string_view what, int error);
  absl::Status Failed(absl::string_view what, int error);
  absl::Status MeetFolder(const EntryName& name);

  const std::unique_ptr<DiskFolder> folder_;
  DiskCalls& calls_;
  // The notes that Open has found, with their times.
  std::vector<std::pair<int64_t, IdentityNote>> identities_;
  std::atomic<bool> noted_{false};  // whether Note has done so
  std::atomic<uint64_t> next_file_{0};
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_DISK_STORE_H_
