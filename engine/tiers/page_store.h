#ifndef ANNULUS_ENGINE_TIERS_PAGE_STORE_H_
#define ANNULUS_ENGINE_TIERS_PAGE_STORE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/work_meter.h"
#include "engine/tiers/disk_folder.h"
#include "engine/tiers/known_pages.h"
#include "engine/tiers/page_entry.h"

namespace annulus {

// A place below the ranks' memory that keeps pages of keys and values. Whatever happens to the
// bytes meanwhile, Get gives the very bytes that Put was given for that mark, or fails. This class
// knows which pages are there, whose they are and which documents were deleted; where the bytes lie
// is what DiskStore and HostStore add.
//
// The pages together never take more than the limit. Those used least recently go first, and of one
// text the later pages before the earlier ones, since those are of no use without these. A tenant
// that may have no more (its `tenant_bytes`) loses its own.
//
// Thread-safe. Put, Get and RemoveForgotten take as long as the place does; the others never wait
// for it.
class PageStore {
 public:
  // Bytes of the heap for each page that is known, to within a tenth.
  static constexpr int64_t kBytesPerPage = 352;

  virtual ~PageStore() = default;
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  // When something is used: greater each time, about ns of the wall clock, whatever that does. One
  // for all pages that a request uses keeps their order.
  int64_t NextUse();

  bool Has(const PageKey& key) const;
  // Whether it has the page and knows that it belongs to these documents.
  bool Has(const PageKey& key, const DocumentSet& documents) const;
  void Touch(const PageKey& key, int64_t use);

  // A page that is held makes no room for others until Release was called as often as Hold: it
  // still has to go elsewhere. False: the page is not there. A page that is dropped for another
  // reason goes all the same, and Release of it does nothing.
  bool Hold(const PageKey& key);
  void Release(const PageKey& key);
  // Whether Put would find room for a page with so many bytes just now, or has the page.
  bool HasRoom(const PageMark& mark, uint64_t payload_bytes, int64_t use) const;

  // Returns whether the page was written; false: it was there already, and belongs to the mark's
  // documents now too, or one of those was deleted since the page's request came.
  // RESOURCE_EXHAUSTED if there is no room (of the tenant's too) beside pages that are held, of the
  // same use or a later one, so a text that is larger than the limit keeps its beginning, or if the
  // process has no memory or file left for it. UNAVAILABLE: the store is off.
  absl::StatusOr<bool> Put(const PageMark& mark,
                           std::span<const std::span<const std::byte>> payload, int64_t use);

  // Reads the page that `expected` names, of exactly payload.size() bytes; returns its coverage.
  // NOT_FOUND: it is not there (any more); DATA_LOSS: it was not what it should be and is removed;
  // RESOURCE_EXHAUSTED: the process has nothing left to read it with; UNAVAILABLE: the store is
  // off. `payload` then holds anything.
  absl::StatusOr<std::optional<double>> Get(const PageMark& expected, std::span<std::byte> payload,
                                            int64_t use);

  // Pages of a deleted document that RemoveForgotten still has to remove.
  struct Deletion {
    DeletionNote note;
    std::vector<EntryName> pages;
  };

  // A tenant's document is deleted: no page that holds or follows it is found any more, and none is
  // put any more by a request that came before. The pages that it returns are the caller's to
  // remove, and count towards the limit until then. Looks at all pages, some at a time, and others
  // find theirs meanwhile. RESOURCE_EXHAUSTED without memory: the store is off then.
  absl::StatusOr<Deletion> ForgetDocument(const ContentHash& tenant, absl::string_view content,
                                          const CancelFlag& cancel);
  // For each of the tenant's documents of these contents, at how many places of prompts it has a
  // page that holds or follows it: each place once, whatever stands before the document. Looks at
  // all pages, some at a time. CANCELLED.
  absl::StatusOr<std::vector<int64_t>> CountPages(const ContentHash& tenant,
                                                  std::span<const std::string> contents,
                                                  const CancelFlag& cancel) const;

  // A page's bytes are not what computing gives, under a right checksum: it is not found any more,
  // nor are those that came back with it. `counts`: it came from here. Returns the pages that
  // RemoveForgotten still has to remove; they count towards the limit until then. Throws without
  // memory, and nothing has changed.
  std::vector<EntryName> Distrust(std::span<const PageKey> keys, bool counts = true);

  // Removes what is left of a page that ForgetDocument or Distrust returned, unless the page was
  // put again. UNAVAILABLE: the disk failed.
  virtual absl::Status RemoveForgotten(const EntryName& page) = 0;

  // For good, with the reason.
  void TurnOff(const absl::Status& reason);
  bool on() const { return on_.load(std::memory_order_relaxed); }

  struct Stats {
    int64_t pages = 0;
    int64_t bytes = 0;  // pages that are being written included
    int64_t limit = 0;
    int64_t rejects = 0;     // pages that were not what they should be
    int64_t mismatches = 0;  // calls of Distrust that counted
    int64_t io_errors = 0;   // calls that the disk failed
    std::string off;         // why it is off; empty: it is on
  };
  Stats stats() const;

 protected:
  explicit PageStore(int64_t limit_bytes) : limit_(limit_bytes) {}

  static constexpr int kPagesAtOnce = 2048;  // looked at with the lock held: below a millisecond
  static EntryName NameOf(const PageMark& mark, uint64_t payload_bytes);

  // Of a page that is not known, resp. known without some of the mark's documents.
  virtual absl::StatusOr<bool> PutNew(const EntryName& name, const PageMark& mark,
                                      std::span<const std::span<const std::byte>> payload,
                                      int64_t use) = 0;
  virtual absl::StatusOr<bool> AddDocuments(const EntryName& known, const PageMark& mark) = 0;
  // Of a page that is known as `name`.
  virtual absl::StatusOr<std::optional<double>> Read(const EntryName& name,
                                                     const PageMark& expected,
                                                     std::span<std::byte> payload, int64_t use) = 0;
  // With the lock held: the page is known no more. Returns whether something of it is left for
  // RemoveForgotten, which then counts towards the limit. Throws nothing.
  virtual bool OnDropped(const EntryName& name) = 0;

  // With the lock held.
  int64_t NextUseLocked();
  bool IsForgotten(const PageMark& mark) const;
  KnownPages::Wanted WantedFor(const EntryName& name, const PageMark& mark, int64_t use) const;

  const int64_t limit_;
  std::atomic<int64_t> io_errors_{0};
  mutable std::mutex mutex_;
  KnownPages pages_;
  int64_t rejects_ = 0;
  int64_t last_use_ = 0;

 private:
  struct Forgotten {
    uint64_t tenant = 0;
    DocumentSet document;
    SteadyTime at;
  };
  static constexpr size_t kMostForgotten = 4096;

  Deletion Forget(const Forgotten& forgotten, const CancelFlag& cancel);

  std::atomic<bool> on_{true};
  int64_t mismatches_ = 0;
  std::deque<Forgotten> forgotten_;  // the latest
  // Of those that were given up for newer ones: no request from before leaves pages of documents.
  SteadyTime latest_given_up_ = SteadyTime::min();
  std::string off_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_PAGE_STORE_H_
