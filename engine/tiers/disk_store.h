#ifndef ANNULUS_ENGINE_TIERS_DISK_STORE_H_
#define ANNULUS_ENGINE_TIERS_DISK_STORE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/work_meter.h"
#include "engine/tiers/disk_calls.h"
#include "engine/tiers/disk_folder.h"
#include "engine/tiers/known_pages.h"
#include "engine/tiers/page_entry.h"

namespace annulus {

// Pages of keys and values in the files of one folder, one page a file, so that a daemon that ended
// in any way finds them again. Whatever the files hold, Get gives the very bytes that Put was given
// for that mark, or fails.
//
// A file appears under its name whole, by rename. Nothing is flushed: after a power failure a file
// may hold anything, which its checksums tell. The files together never take more than the limit;
// those used least recently go first, the later pages of a text before the earlier ones, since
// those are of no use without these. A tenant that may have no more (PageMark::tenant_bytes) loses
// its own.
//
// A disk that is full or fails turns the store off until the next start: it then has nothing.
//
// Thread-safe. Put, Get, RemoveForgotten and notes take as long as the disk does; the others never
// wait for it.
class DiskStore {
 public:
  // Bytes of the heap for each page that is known, to within a tenth.
  static constexpr int64_t kBytesPerPage = 352;

  // FAILED_PRECONDITION as DiskFolder::Open. `calls` must outlive the store.
  static absl::StatusOr<std::unique_ptr<DiskStore>> Open(const std::string& folder,
                                                         int64_t limit_bytes,
                                                         DiskCalls& calls = DiskCalls::System());

  // When something is used: greater each time, about ns of the wall clock, whatever that does. One
  // for all pages that a request uses keeps their order.
  int64_t NextUse();

  bool Has(const PageKey& key) const;
  // Whether it has the page and knows that it belongs to these documents.
  bool Has(const PageKey& key, const DocumentSet& documents) const;
  void Touch(const PageKey& key, int64_t use);

  // Returns whether the page was written; false: it was there already, and belongs to the mark's
  // documents now too, or one of those was deleted since the page's request came.
  // RESOURCE_EXHAUSTED if there is no room (of the tenant's too) beside pages of the same use or a
  // later one, so a text
  // that is larger than the limit keeps its beginning, or if the process has no file or memory left
  // for it; FAILED_PRECONDITION if something else has the file's name. Any other error turns the
  // store off.
  absl::StatusOr<bool> Put(const PageMark& mark,
                           std::span<const std::span<const std::byte>> payload, int64_t use);

  // Reads the page that `expected` names, of exactly payload.size() bytes; returns its coverage.
  // NOT_FOUND: it is not there (any more); DATA_LOSS: it was not what it should be and is removed;
  // RESOURCE_EXHAUSTED: the process has no file left to open it; UNAVAILABLE: the disk failed and
  // the store is off. `payload` then holds anything.
  absl::StatusOr<std::optional<double>> Get(const PageMark& expected, std::span<std::byte> payload,
                                            int64_t use);

  // Pages of a deleted document, whose files are still there.
  struct Deletion {
    DeletionNote note;
    std::vector<EntryName> pages;
  };

  // A tenant's document is deleted: no page that holds or follows it is found any more, and none is
  // put any more by a request that came before. The files of the pages that it returns are the
  // caller's to remove, and count towards the limit until then. Never waits for the disk; looks at
  // all pages, some at a time, and others find theirs meanwhile. RESOURCE_EXHAUSTED without memory:
  // the store is off then.
  absl::StatusOr<Deletion> ForgetDocument(const ContentHash& tenant, absl::string_view content,
                                          const CancelFlag& cancel);
  // Leaves a note before the files are removed, and takes it back once all of them are gone. The
  // next start removes the files that a note names. If the disk takes no note, the files are
  // removed without one.
  void LeaveNote(const DeletionNote& note);
  void TakeBackNote(const DeletionNote& note);
  // For each of the tenant's documents of these contents, at how many places of prompts it has a
  // page that holds or follows it: each place once, whatever stands before the document. Looks at
  // all pages, some at a time. CANCELLED.
  absl::StatusOr<std::vector<int64_t>> CountPages(const ContentHash& tenant,
                                                  std::span<const std::string> contents,
                                                  const CancelFlag& cancel) const;

  // A page's bytes are not what computing gives, under a right checksum: it is not found any more,
  // nor are those that came back with it. Returns the pages that were there, whose files are the
  // caller's to remove, and count towards the limit until then. Never waits for the disk. Throws
  // without memory, and nothing has changed.
  std::vector<EntryName> Distrust(std::span<const PageKey> keys);

  // Removes the file of a page that ForgetDocument or Distrust returned, unless the page was put
  // again. UNAVAILABLE: the disk failed.
  absl::Status RemoveForgotten(const EntryName& page);

  // For good, with the reason.
  void TurnOff(const absl::Status& reason);
  bool on() const { return on_.load(std::memory_order_relaxed); }

  struct Stats {
    int64_t pages = 0;
    int64_t bytes = 0;  // of files, those being written included
    int64_t limit = 0;
    int64_t rejects = 0;     // pages that were not what they should be
    int64_t mismatches = 0;  // calls of Distrust
    int64_t io_errors = 0;   // calls that the disk failed
    std::string off;         // why it is off; empty: it is on
  };
  Stats stats() const;

 private:
  struct Forgotten {
    uint64_t tenant = 0;
    DocumentSet document;
    SteadyTime at;
  };
  static constexpr size_t kMostForgotten = 4096;

  DiskStore(std::unique_ptr<DiskFolder> folder, int64_t limit, DiskCalls& calls)
      : folder_(std::move(folder)), limit_(limit), calls_(calls) {}

  // With the lock held.
  int64_t NextUseLocked();
  bool IsForgotten(const PageMark& mark) const;
  // Without it.
  absl::StatusOr<bool> PutNew(EntryName name, const PageMark& mark,
                              std::span<const std::span<const std::byte>> payload, int64_t use);
  absl::StatusOr<bool> AddDocuments(const EntryName& from, const PageMark& mark);
  absl::Status WriteFile(const EntryName& name, const PageMark& mark,
                         std::span<const std::span<const std::byte>> payload, int64_t use);
  absl::Status WriteAll(int file, std::span<const std::byte> bytes, int64_t offset);
  absl::Status ReadAll(int file, std::span<std::byte> bytes, int64_t offset);
  absl::StatusOr<std::optional<double>> ReadFile(const EntryName& name, const PageMark& expected,
                                                 std::span<std::byte> payload, int64_t use);
  // Of pages that nobody finds any more.
  absl::Status RemoveFiles(std::span<const EntryName> pages);
  Deletion Forget(const Forgotten& forgotten, const CancelFlag& cancel);
  // At the start: removes what a note of an earlier daemon names.
  void RemoveNoted(const DeletionNote& note);
  absl::Status OpenFailed(absl::string_view what, int error);
  absl::Status Failed(absl::string_view what, int error);

  const std::unique_ptr<DiskFolder> folder_;
  const int64_t limit_;
  DiskCalls& calls_;
  std::atomic<bool> on_{true};
  std::atomic<int64_t> io_errors_{0};
  std::atomic<uint64_t> next_file_{0};

  mutable std::mutex mutex_;
  KnownPages pages_;
  int64_t rejects_ = 0;
  int64_t mismatches_ = 0;
  int64_t last_use_ = 0;
  std::deque<Forgotten> forgotten_;  // the latest
  // Of those that were given up for newer ones: no request from before leaves pages of documents.
  SteadyTime latest_given_up_ = SteadyTime::min();
  std::string off_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_DISK_STORE_H_
