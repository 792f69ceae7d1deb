#ifndef ANNULUS_ENGINE_MEMORY_PAGE_ALLOCATOR_H_
#define ANNULUS_ENGINE_MEMORY_PAGE_ALLOCATOR_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace annulus {

class PageAllocator;

// Whom a page was allocated for: an opaque number of the caller's, only for poison and messages.
using PageOwner = uint64_t;

// One owner of a page; movable. The page is free again when its last owner ends. Not thread-safe:
// create, share, move and destroy on the coordinator's thread only. A page that a running step
// still touches must keep an owner until that step has ended on every rank.
class PageRef {
 public:
  PageRef() = default;
  PageRef(PageRef&& other) noexcept { *this = std::move(other); }
  PageRef& operator=(PageRef&& other) noexcept;
  PageRef(const PageRef&) = delete;
  PageRef& operator=(const PageRef&) = delete;
  ~PageRef() { Reset(); }

  // Another owner of the same page.
  PageRef Share() const;
  // How many the page has. Not of an empty reference.
  int64_t owners() const;
  // Ends this ownership now; the reference is then empty.
  void Reset();

  explicit operator bool() const { return allocator_ != nullptr; }
  // 0 <= id < page_count; -1 when empty.
  int32_t id() const { return id_; }

 private:
  friend class PageAllocator;
  PageRef(PageAllocator* allocator, int32_t id) : allocator_(allocator), id_(id) {}

  PageAllocator* allocator_ = nullptr;
  int32_t id_ = -1;
};

// Ids of one rank's pages, with a count of owners each. A page is either free (no owner) or held.
// Ids leave only inside PageRefs, so a page cannot be freed twice or used without an owner.
// Allocation and release are O(1). Not thread-safe: the coordinator owns it.
class PageAllocator {
 public:
  struct Page {
    int32_t id = -1;
    PageOwner owner = 0;      // of the latest Allocate
    uint32_t generation = 0;  // how often the page has been freed
  };
  // Called inside Allocate and inside the end of the last owner (generation already counts it).
  // A hook must not call the allocator.
  struct Hooks {
    std::function<void(const Page&)> on_allocate;
    std::function<void(const Page&)> on_free;
  };

  // pages >= 0.
  explicit PageAllocator(int32_t pages, Hooks hooks = {});
  // Every PageRef must have ended.
  ~PageAllocator();
  PageAllocator(const PageAllocator&) = delete;
  PageAllocator& operator=(const PageAllocator&) = delete;

  // RESOURCE_EXHAUSTED with asked, free and total pages when too few are free. The page freed last
  // is handed out first, while it is still warm.
  absl::StatusOr<PageRef> Allocate(PageOwner owner = 0);
  // All `count` (>= 0) pages, or none.
  absl::StatusOr<std::vector<PageRef>> AllocateMany(int32_t count, PageOwner owner = 0);

  int32_t page_count() const { return static_cast<int32_t>(records_.size()); }
  int32_t free_count() const { return static_cast<int32_t>(free_.size()); }
  int32_t held_count() const { return page_count() - free_count(); }
  // Most pages ever held at once. Freed pages are taken again before others, so no more than these
  // have ever been written.
  int32_t high_water() const { return high_water_; }

  int64_t owners(int32_t id) const;  // 0: free
  Page page(int32_t id) const;

 private:
  friend class PageRef;
  struct Record {
    PageOwner owner = 0;
    uint32_t owners = 0;
    uint32_t generation = 0;
  };

  const Record& record(int32_t id) const;
  PageRef Take(PageOwner owner);
  void AddOwner(int32_t id);
  void DropOwner(int32_t id);

  const Hooks hooks_;
  std::vector<Record> records_;
  std::vector<int32_t> free_;  // a stack; room for every page, so releasing never allocates
  int32_t high_water_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_PAGE_ALLOCATOR_H_
