#ifndef ANNULUS_ENGINE_TIERS_PAGE_STORE_H_
#define ANNULUS_ENGINE_TIERS_PAGE_STORE_H_

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/base/work_meter.h"
#include "engine/tiers/disk_folder.h"
#include "engine/tiers/known_pages.h"
#include "engine/tiers/page_entry.h"
#include "kernels/base/check.h"

namespace annulus {

// A page that a store takes: its bytes, in parts, or where it is, for a store that copies pages
// itself (PageStore::beside_ranks). Refers to the parts.
class PageSource {
 public:
  using Parts = std::span<const std::span<const std::byte>>;

  template <std::convertible_to<Parts> Given>
  PageSource(const Given& parts)  // NOLINT(google-explicit-constructor)
      : parts_(parts) {
    for (const auto& part : parts_) size_ += part.size();
  }
  PageSource(PageId id, size_t size) : id_(id), rank_(id.rank), size_(size) {}

  Parts parts() const { return parts_; }
  PageId id() const { return id_; }
  int32_t rank() const { return rank_; }  // for PageKey
  size_t size() const { return size_; }   // bytes of the page

 private:
  Parts parts_;
  PageId id_{};
  int32_t rank_ = PageKey::kAnyRank;
  size_t size_ = 0;
};

// Likewise a page that a store gives.
class PageTarget {
 public:
  template <std::convertible_to<std::span<std::byte>> Given>
  PageTarget(Given&& bytes)  // NOLINT(google-explicit-constructor)
      : bytes_(bytes), size_(bytes_.size()) {}
  PageTarget(PageId id, size_t size) : id_(id), rank_(id.rank), size_(size) {}

  std::span<std::byte> bytes() const { return bytes_; }
  PageId id() const { return id_; }
  int32_t rank() const { return rank_; }
  size_t size() const { return size_; }

 private:
  std::span<std::byte> bytes_;
  PageId id_{};
  int32_t rank_ = PageKey::kAnyRank;
  size_t size_ = 0;
};

// A store of pages of keys and values below the ranks' memory. Get returns exactly the bytes that
// Put stored for the mark, or an error: it never returns bytes that changed meanwhile. This base
// class tracks the pages, their tenants and the deleted documents; DiskStore and HostStore store
// the bytes.
//
// The pages together never exceed the limit. To make room, the store drops the least recently used
// pages first, and within one text the later pages first, because a page is useless without those
// before it. A tenant at its own limit (PageMark::tenant_bytes) loses its own pages.
//
// Thread-safe. Put, Get and RemoveForgotten may block on the disk or memory that holds the bytes;
// the other calls never do.
class PageStore {
 public:
  // Heap bytes for each known page, within 10%.
  static constexpr int64_t kBytesPerPage = 352;

  virtual ~PageStore() = default;
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  // Returns a time of use: greater with each call, and close to the wall clock in ns even if that
  // jumps. Use one value for all pages of a request, so that the order among them stays.
  int64_t NextUse();

  // Of a key that says kAnyRank where pages are beside ranks: whether any has it.
  bool Has(const PageKey& key) const;
  // Whether the page is there and labelled with all of these documents.
  bool Has(const PageKey& key, const DocumentSet& documents) const;
  void Touch(const PageKey& key, int64_t use);

  // Protects the page from being dropped to make room, until Release has been called as often as
  // Hold. Returns false if the page is not there. A page that is broken, distrusted or deleted is
  // dropped even if it is held; releasing it is then a no-op.
  bool Hold(const PageKey& key);
  void Release(const PageKey& key);
  // Whether Put would now find room for a page of this size, or already has the page. Only for
  // stores beside no ranks: others have as much room as the rank's own shelf.
  bool HasRoom(const PageMark& mark, uint64_t payload_bytes, int64_t use) const;

  // Whether the store keeps each page beside its rank, in the process that has the rank. Put and
  // Get then take ids of pages, and copy between the ranks' memory and the store themselves. A page
  // that several ranks had is there several times, and Get copies only to pages of a rank that had
  // it.
  bool beside_ranks() const { return ranks_ > 0; }
  // The key of the page beside the rank; the same key if pages are beside none.
  PageKey KeyBeside(PageKey key, int32_t rank) const {
    if (beside_ranks()) key.rank = rank;
    return key;
  }
  // A bit for each rank beside which the page is; the key says kAnyRank.
  uint64_t RanksWith(PageKey key) const;
  // What was beside these ranks is lost. Takes the time of a pass over all pages.
  void ForgetRanks(std::span<const int32_t> ranks);

  // Stores a page. Returns true if it was written, and false if it was not needed: either it was
  // there, and is now labelled with the mark's documents too, or one of these documents was deleted
  // after the page's request came. Errors:
  // - RESOURCE_EXHAUSTED: no room in the store, or in the tenant's share, without dropping pages
  //   that are held, are being read from memory, or were used no earlier than `use` (so a text that
  //   exceeds the limit keeps its beginning). No page was dropped then. Or the process is out of
  //   memory or file descriptors.
  // - UNAVAILABLE: the store is off, or the process that has the rank is lost.
  absl::StatusOr<bool> Put(const PageMark& mark, const PageSource& payload, int64_t use);

  // Reads the page that `expected` names into `payload`, which must have exactly its size, and
  // returns its coverage. After an error, the contents of `payload` are undefined. Errors:
  // - NOT_FOUND: the page is not there, or the store is off.
  // - DATA_LOSS: the page failed a check and was removed.
  // - RESOURCE_EXHAUSTED: the process is out of memory or file descriptors.
  // - UNAVAILABLE: the disk failed, and the store is off now; or the process that has the rank is
  //   lost.
  absl::StatusOr<std::optional<double>> Get(const PageMark& expected, const PageTarget& payload,
                                            int64_t use);

  // The pages of a deleted document for which RemoveForgotten must still be called.
  struct Deletion {
    DeletionNote note;
    std::vector<EntryName> pages;
  };

  // Forgets a tenant's document: lookups no longer find pages that hold or follow it, and requests
  // that came before can no longer put such pages. The caller must remove the returned pages, which
  // count towards the limit until then. Visits all of the tenant's pages in batches, so other calls
  // are not blocked. RESOURCE_EXHAUSTED: out of memory; the store is off then.
  absl::StatusOr<Deletion> ForgetDocument(const ContentHash& tenant, absl::string_view content,
                                          const CancelFlag& cancel);
  // For each of the tenant's documents with these contents, returns at how many positions of
  // prompts there is a page that holds or follows it. A position counts once, whatever stands
  // before the document. Visits all of the tenant's pages in batches. Returns CANCELLED once
  // `cancel` is set.
  absl::StatusOr<std::vector<int64_t>> CountPages(const ContentHash& tenant,
                                                  std::span<const std::string> contents,
                                                  const CancelFlag& cancel) const;

  // Drops pages whose bytes differ from newly computed ones although their checksums are right, and
  // the pages that were read with them. `counts`: whether Stats::mismatches counts the call,
  // because such a page came from this store. The caller must remove the returned pages, which
  // count towards the limit until then. If memory runs out, throws and changes nothing.
  std::vector<EntryName> Distrust(std::span<const PageKey> keys, bool counts = true);

  // Removes the bytes of a page that ForgetDocument or Distrust returned. No-op if the page was put
  // again since. UNAVAILABLE: the disk failed.
  virtual absl::Status RemoveForgotten(const EntryName& page) = 0;

  // Call before threads are joined that may be in Put or Get: these wait for no other process from
  // now on. See RankShelves::Stop.
  virtual void Stop() {}

  // Turns the store off until the process ends. The first reason stays.
  void TurnOff(const absl::Status& reason);
  // Call if a page could not be copied from or to a device: counts an error, turns the store off.
  void CopyFailed(const absl::Status& reason);
  bool on() const { return on_.load(std::memory_order_relaxed); }

  struct Stats {
    int64_t pages = 0;
    int64_t bytes = 0;  // includes pages that are being written
    int64_t limit = 0;
    int64_t rejects = 0;     // pages that failed a check
    int64_t mismatches = 0;  // calls of Distrust with `counts`
    int64_t io_errors = 0;   // failed calls to the disk, and CopyFailed
    std::string off;         // why the store is off; empty: it is on
    // The path of a folder that has the name of a page's file, so that this page can never be put;
    // of several, the first that was met. Empty: none.
    std::string obstacle;
  };
  Stats stats() const;

 protected:
  // `clock` must outlive the store. It tells whether the request of a page (PageMark::asked) came
  // before a deletion.
  // `ranks`: how many ranks pages are kept beside, at most kMostRanks; 0: beside none.
  static constexpr int kMostRanks = 64;
  PageStore(int64_t limit_bytes, const Clock& clock, int ranks = 0)
      : limit_(limit_bytes), ranks_(ranks), clock_(clock) {
    ANNULUS_CHECK(ranks >= 0 && ranks <= kMostRanks) << ranks << " ranks";
  }

  static constexpr int kPagesAtOnce = 2048;  // visited under the lock: takes below a millisecond
  static EntryName NameOf(const PageMark& mark, uint64_t payload_bytes,
                          int32_t rank = PageKey::kAnyRank);

  // Put of a page that is not known.
  virtual absl::StatusOr<bool> PutNew(const EntryName& name, const PageMark& mark,
                                      const PageSource& payload, int64_t use) = 0;
  // Put of a page that is known, but not labelled with all of the mark's documents.
  virtual absl::StatusOr<bool> AddDocuments(const EntryName& known, const PageMark& mark) = 0;
  // Get of a page that is known as `name`.
  virtual absl::StatusOr<std::optional<double>> Read(const EntryName& name,
                                                     const PageMark& expected,
                                                     const PageTarget& payload, int64_t use) = 0;
  // Called with the lock held, after the page was dropped from `pages_`. Returns whether bytes are
  // left for RemoveForgotten; these count towards the limit. Must not throw.
  virtual bool OnDropped(const EntryName& name) = 0;

  // These require the lock.
  int64_t NextUseLocked();
  bool IsForgotten(const PageMark& mark) const;
  KnownPages::Wanted WantedFor(const EntryName& name, const PageMark& mark, int64_t use) const;

  const int64_t limit_;
  const int ranks_;
  std::atomic<int64_t> io_errors_{0};
  mutable std::mutex mutex_;
  KnownPages pages_;
  int64_t rejects_ = 0;
  std::string obstacle_;
  int64_t last_use_ = 0;

 private:
  struct Forgotten {
    uint64_t tenant = 0;
    DocumentSet document;
    SteadyTime at;
  };
  static constexpr size_t kMostForgotten = 4096;

  Deletion Forget(const Forgotten& forgotten, const CancelFlag& cancel);
  // Calls `visit` with the key, or, if it says kAnyRank and pages are beside ranks, with that of
  // each rank, until it returns true. Returns whether it did.
  template <typename Visit>
  bool VisitKeys(PageKey key, const Visit& visit) const {
    if (ranks_ == 0 || key.rank != PageKey::kAnyRank) return visit(key);
    for (key.rank = 0; key.rank < ranks_; ++key.rank) {
      if (visit(key)) return true;
    }
    return false;
  }

  const Clock& clock_;
  std::atomic<bool> on_{true};
  int64_t mismatches_ = 0;
  std::deque<Forgotten> forgotten_;  // the latest kMostForgotten
  // The time of the latest deletion that no longer fits into `forgotten_`. Requests that came
  // before it cannot put pages of any document.
  SteadyTime latest_given_up_ = SteadyTime::min();
  std::string off_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_PAGE_STORE_H_
