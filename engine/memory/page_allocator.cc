#include "engine/memory/page_allocator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace annulus {

PageRef& PageRef::operator=(PageRef&& other) noexcept {
  if (this != &other) {
    Reset();
    allocator_ = std::exchange(other.allocator_, nullptr);
    id_ = std::exchange(other.id_, -1);
  }
  return *this;
}

PageRef PageRef::Share() const {
  if (allocator_ == nullptr) return PageRef();
  allocator_->AddOwner(id_);
  return PageRef(allocator_, id_);
}

int64_t PageRef::owners() const {
  ANNULUS_CHECK(allocator_ != nullptr);
  return allocator_->owners(id_);
}

void PageRef::Reset() {
  if (allocator_ == nullptr) return;
  std::exchange(allocator_, nullptr)->DropOwner(std::exchange(id_, -1));
}

PageAllocator::PageAllocator(int32_t pages, Hooks hooks) : hooks_(std::move(hooks)) {
  ANNULUS_CHECK(pages >= 0) << "pages " << pages;
  records_.resize(pages);
  free_.reserve(pages);
  // Low ids first: a lightly used pool touches only the beginning of its slab.
  for (int32_t id = pages - 1; id >= 0; --id) free_.push_back(id);
}

PageAllocator::~PageAllocator() {
  ANNULUS_CHECK(held_count() == 0)
      << "page allocator ends with " << held_count() << " of " << page_count() << " pages held";
}

absl::StatusOr<PageRef> PageAllocator::Allocate(PageOwner owner) {
  if (free_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("asked for 1 page, 0 of ", page_count(), " are free"));
  }
  return Take(owner);
}

absl::StatusOr<std::vector<PageRef>> PageAllocator::AllocateMany(int32_t count, PageOwner owner) {
  ANNULUS_CHECK(count >= 0) << "count " << count;
  if (count > free_count()) {
    return absl::ResourceExhaustedError(absl::StrCat("asked for ", count, " pages, ", free_count(),
                                                     " of ", page_count(), " are free"));
  }
  std::vector<PageRef> pages;
  pages.reserve(count);
  for (int32_t i = 0; i < count; ++i) pages.push_back(Take(owner));
  return pages;
}

const PageAllocator::Record& PageAllocator::record(int32_t id) const {
  ANNULUS_CHECK(id >= 0 && id < page_count()) << "page " << id << " of " << page_count();
  return records_[id];
}

int64_t PageAllocator::owners(int32_t id) const { return record(id).owners; }

PageAllocator::Page PageAllocator::page(int32_t id) const {
  return {.id = id, .owner = record(id).owner, .generation = record(id).generation};
}

PageRef PageAllocator::Take(PageOwner owner) {
  const int32_t id = free_.back();
  free_.pop_back();
  Record& record = records_[id];
  ANNULUS_CHECK(record.owners == 0) << "free page " << id << " has owners";
  if (hooks_.on_allocate) hooks_.on_allocate(page(id));
  record.owners = 1;
  record.owner = owner;
  high_water_ = std::max(high_water_, held_count());
  return PageRef(this, id);
}

void PageAllocator::AddOwner(int32_t id) {
  ANNULUS_CHECK(records_[id].owners > 0) << "page " << id << " is free and cannot be shared";
  ++records_[id].owners;
}

void PageAllocator::DropOwner(int32_t id) {
  Record& record = records_[id];
  ANNULUS_CHECK(record.owners > 0) << "page " << id << " was freed twice";
  if (--record.owners > 0) return;
  ++record.generation;
  free_.push_back(id);
  if (hooks_.on_free) hooks_.on_free(page(id));
}

}  // namespace annulus
