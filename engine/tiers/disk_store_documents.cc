// The store's part in documents, and in what must not be found any more.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>

#include "engine/base/field_error.h"
#include "engine/tiers/disk_store.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr int kPagesAtOnce = 2048;  // looked at with the lock held: less than a millisecond

}  // namespace

bool DiskStore::IsForgotten(const PageMark& mark) const {
  if (mark.documents.empty()) return false;
  if (mark.asked <= latest_given_up_) return true;
  return std::any_of(forgotten_.begin(), forgotten_.end(), [&](const Forgotten& each) {
    return mark.asked <= each.at && each.tenant == TenantPart(mark.tenant) &&
           mark.documents.Holds(each.document);
  });
}

absl::StatusOr<DiskStore::Deletion> DiskStore::ForgetDocument(const ContentHash& tenant,
                                                              absl::string_view content,
                                                              const CancelFlag& cancel) {
  Forgotten forgotten;
  forgotten.tenant = TenantPart(tenant);
  forgotten.document.Add(content);
  Deletion deletion;
  const auto forget = [&] {
    deletion = Forget(forgotten, cancel);
    return absl::OkStatus();
  };
  ANNULUS_RETURN_IF_ERROR(Guarded(forget, [&] {
    // It may still know pages of the document.
    TurnOff(NoMemoryError());
    return NoMemoryError();
  }));
  return deletion;
}

absl::StatusOr<std::vector<int64_t>> DiskStore::CountPages(const ContentHash& tenant,
                                                           std::span<const std::string> contents,
                                                           const CancelFlag& cancel) const {
  std::vector<DocumentSet> documents(contents.size());
  for (size_t i = 0; i < contents.size(); ++i) documents[i].Add(contents[i]);
  std::vector<std::set<int32_t>> places(contents.size());
  const auto look = [&](const KnownPages::Page& page) {
    for (size_t i = 0; i < documents.size(); ++i) {
      if (page.name.documents.Holds(documents[i])) places[i].insert(page.name.first_position);
    }
  };
  const int at_once = kPagesAtOnce / static_cast<int>(std::max<size_t>(1, contents.size())) + 1;
  std::optional<KnownPages::Order> done;
  for (bool more = on(); more;) {
    if (done.has_value()) cancel.MayPause();
    if (cancel.cancelled()) return absl::CancelledError("the call was cancelled");
    std::lock_guard lock(mutex_);
    more = pages_.LookAtSome(TenantPart(tenant), at_once, done, look);
  }
  std::vector<int64_t> counts;
  for (const auto& each : places) counts.push_back(std::ssize(each));
  return counts;
}

// Pages that are used meanwhile move behind the others, so none is passed by; those that come
// meanwhile are no longer put, or belong to the document's next life.
DiskStore::Deletion DiskStore::Forget(const Forgotten& document, const CancelFlag& cancel) {
  Deletion deletion{{document.tenant, document.document, 0}, {}};
  std::vector<EntryName>& pages = deletion.pages;
  std::optional<KnownPages::Order> done;
  for (bool more = true; more;) {
    if (done.has_value()) cancel.MayPause();
    std::lock_guard lock(mutex_);
    if (!done.has_value()) {
      deletion.note.use = NextUseLocked();
      forgotten_.push_back(document);
      forgotten_.back().at = std::chrono::steady_clock::now();
      if (forgotten_.size() > kMostForgotten) {
        latest_given_up_ = forgotten_.front().at;
        forgotten_.pop_front();
      }
    }
    more =
        pages_.LookAtSome(document.tenant, kPagesAtOnce, done, [&](const KnownPages::Page& page) {
          if (!page.name.documents.Holds(document.document)) return;
          pages.push_back(page.name);
          pages_.Drop(pages.back().key);
          // Until its file is gone.
          pages_.Count(document.tenant, KnownPages::FileBytes(pages.back().payload_bytes));
        });
  }
  return deletion;
}

void DiskStore::LeaveNote(const DeletionNote& note) {
  const int file = calls_.Open(folder_->descriptor(), note.Text(),
                               O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file >= 0) close(file);
}

void DiskStore::TakeBackNote(const DeletionNote& note) {
  calls_.Remove(folder_->descriptor(), note.Text());
}

void DiskStore::RemoveNoted(const DeletionNote& note) {
  std::vector<EntryName> removed;
  std::optional<KnownPages::Order> done;
  pages_.LookAtSome(note.tenant, std::numeric_limits<int>::max(), done,
                    [&](const KnownPages::Page& page) {
                      if (!note.Names(page.name, page.use)) return;
                      removed.push_back(page.name);
                      pages_.Drop(removed.back().key);
                    });
  if (RemoveFiles(removed).ok()) TakeBackNote(note);
}

std::vector<EntryName> DiskStore::Distrust(std::span<const PageKey> keys) {
  std::vector<EntryName> pages;
  pages.reserve(keys.size());
  std::lock_guard lock(mutex_);
  ++mismatches_;
  for (const PageKey& key : keys) {
    const std::optional<EntryName> dropped = pages_.Drop(key);
    if (!dropped.has_value()) continue;
    pages.push_back(*dropped);
    pages_.Count(dropped->tenant, KnownPages::FileBytes(dropped->payload_bytes));  // as above
  }
  return pages;
}

absl::Status DiskStore::RemoveForgotten(const EntryName& page) {
  bool again = false;
  {
    std::lock_guard lock(mutex_);
    const KnownPages::Page* const known = pages_.Find(page.key);
    again = known != nullptr && known->name.Text() == page.Text();
  }
  if (!again) ANNULUS_RETURN_IF_ERROR(RemoveFiles(std::vector{page}));
  std::lock_guard lock(mutex_);
  pages_.Count(page.tenant, -KnownPages::FileBytes(page.payload_bytes));
  return absl::OkStatus();
}

}  // namespace annulus
