// The store's part in documents, and in what must not be found any more.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

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

template <typename Look>
bool DiskStore::LookAtSome(int most, std::optional<Order>& done, const Look& look) const {
  auto next = done.has_value() ? order_.upper_bound(*done) : order_.begin();
  for (int looked = 0; looked < most && next != order_.end(); ++looked) {
    done = *next++;
    look(entries_.at(done->key).name);
  }
  return next != order_.end();
}

absl::StatusOr<std::vector<int64_t>> DiskStore::CountPages(const ContentHash& tenant,
                                                           std::span<const std::string> contents,
                                                           const CancelFlag& cancel) const {
  std::vector<DocumentSet> documents(contents.size());
  for (size_t i = 0; i < contents.size(); ++i) documents[i].Add(contents[i]);
  std::vector<std::set<int32_t>> places(contents.size());
  const auto look = [&](const EntryName& name) {
    if (name.tenant != TenantPart(tenant)) return;
    for (size_t i = 0; i < documents.size(); ++i) {
      if (name.documents.Holds(documents[i])) places[i].insert(name.first_position);
    }
  };
  const int at_once = kPagesAtOnce / static_cast<int>(std::max<size_t>(1, contents.size())) + 1;
  std::optional<Order> done;
  for (bool more = on(); more;) {
    if (done.has_value()) cancel.MayPause();
    if (cancel.cancelled()) return absl::CancelledError("the call was cancelled");
    std::lock_guard lock(mutex_);
    more = LookAtSome(at_once, done, look);
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
  std::optional<Order> done;
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
    more = LookAtSome(kPagesAtOnce, done, [&](const EntryName& name) {
      if (name.tenant != document.tenant || !name.documents.Holds(document.document)) return;
      pages.push_back(name);
      Drop(pages.back().key);
      bytes_ += FileBytes(pages.back().payload_bytes);  // until its file is gone
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
  std::vector<std::string> names;
  for (auto next = entries_.begin(); next != entries_.end();) {
    const auto entry = next++;
    if (!note.Names(entry->second.name, entry->second.use)) continue;
    names.push_back(entry->second.name.Text());
    Erase(entry);
  }
  if (RemoveFiles(names).ok()) TakeBackNote(note);
}

std::vector<EntryName> DiskStore::Distrust(std::span<const PageKey> keys) {
  std::vector<EntryName> pages;
  pages.reserve(keys.size());
  std::lock_guard lock(mutex_);
  ++mismatches_;
  for (const PageKey& key : keys) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) continue;
    pages.push_back(found->second.name);
    Erase(found);
    bytes_ += FileBytes(pages.back().payload_bytes);  // until its file is gone
  }
  return pages;
}

absl::Status DiskStore::RemoveForgotten(const EntryName& page) {
  bool again = false;
  {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(page.key);
    again = found != entries_.end() && found->second.name.Text() == page.Text();
  }
  if (!again) ANNULUS_RETURN_IF_ERROR(RemoveFiles(std::vector{page.Text()}));
  std::lock_guard lock(mutex_);
  bytes_ -= FileBytes(page.payload_bytes);
  return absl::OkStatus();
}

}  // namespace annulus
