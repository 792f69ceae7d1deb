#include "engine/tiers/page_store.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {

EntryName PageStore::NameOf(const PageMark& mark, uint64_t payload_bytes, int32_t rank) {
  PageKey key = KeyOf(mark);
  key.rank = rank;
  return {key, TenantPart(mark.tenant), mark.first_position, payload_bytes, mark.documents};
}

int64_t PageStore::NextUse() {
  std::lock_guard lock(mutex_);
  return NextUseLocked();
}

int64_t PageStore::NextUseLocked() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  last_use_ = std::max<int64_t>(last_use_ + 1,
                                std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  return last_use_;
}

bool PageStore::Has(const PageKey& key) const {
  if (!on()) return false;
  std::lock_guard lock(mutex_);
  return VisitKeys(key, [this](const PageKey& each) { return pages_.Find(each) != nullptr; });
}

uint64_t PageStore::RanksWith(PageKey key) const {
  uint64_t ranks = 0;
  std::lock_guard lock(mutex_);
  for (key.rank = 0; on() && key.rank < ranks_; ++key.rank) {
    if (pages_.Find(key) != nullptr) ranks |= uint64_t{1} << key.rank;
  }
  return ranks;
}

void PageStore::ForgetRanks(std::span<const int32_t> ranks) {
  if (!beside_ranks()) return;
  std::lock_guard lock(mutex_);
  for (const int32_t rank : ranks) {
    for (const EntryName& page : pages_.DropBeside(rank)) OnDropped(page);
  }
}

bool PageStore::Has(const PageKey& key, const DocumentSet& documents) const {
  if (!on()) return false;
  std::lock_guard lock(mutex_);
  const KnownPages::Page* const page = pages_.Find(key);
  return page != nullptr && page->name.documents.Holds(documents);
}

void PageStore::Touch(const PageKey& key, int64_t use) {
  std::lock_guard lock(mutex_);
  VisitKeys(key, [&](const PageKey& each) {
    pages_.Touch(each, use);
    return false;
  });
}

bool PageStore::Hold(const PageKey& key) {
  std::lock_guard lock(mutex_);
  return on() && pages_.Hold(key);
}

void PageStore::Release(const PageKey& key) {
  std::lock_guard lock(mutex_);
  pages_.Release(key);
}

KnownPages::Wanted PageStore::WantedFor(const EntryName& name, const PageMark& mark,
                                        int64_t use) const {
  return {name.tenant, KnownPages::FileBytes(name.payload_bytes), use, mark.tenant_bytes, limit_};
}

bool PageStore::HasRoom(const PageMark& mark, uint64_t payload_bytes, int64_t use) const {
  ANNULUS_CHECK(!beside_ranks()) << "the room of which rank's shelf?";
  const EntryName name = NameOf(mark, payload_bytes);
  std::lock_guard lock(mutex_);
  return pages_.Find(name.key) != nullptr || pages_.HasRoom(WantedFor(name, mark, use));
}

absl::StatusOr<bool> PageStore::Put(const PageMark& mark, const PageSource& payload, int64_t use) {
  const EntryName name = NameOf(mark, payload.size(), payload.rank());
  const int64_t bytes = KnownPages::FileBytes(name.payload_bytes);
  const int64_t most = std::min(limit_, mark.tenant_bytes);
  if (bytes > most) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a page takes ", bytes, " bytes; the limit for all is ", most));
  }
  std::optional<EntryName> known;
  {
    std::lock_guard lock(mutex_);
    if (!on()) return absl::UnavailableError(off_);
    if (IsForgotten(mark)) return false;
    if (const auto* const page = pages_.Find(name.key)) known = page->name;
  }
  if (!known.has_value()) return PutNew(name, mark, payload, use);
  if (known->documents.Holds(mark.documents)) return false;
  return AddDocuments(*known, mark);
}

absl::StatusOr<std::optional<double>> PageStore::Get(const PageMark& expected,
                                                     const PageTarget& payload, int64_t use) {
  EntryName name = NameOf(expected, payload.size(), payload.rank());
  {
    std::lock_guard lock(mutex_);
    const KnownPages::Page* const page = pages_.Find(name.key);
    if (!on() || page == nullptr) return absl::NotFoundError("the page is not there");
    name.documents = page->name.documents;
  }
  absl::StatusOr<std::optional<double>> read = Read(name, expected, payload, use);
  if (read.ok()) {
    Touch(name.key, use);
    return read;
  }
  if (!absl::IsNotFound(read.status()) && !absl::IsDataLoss(read.status())) return read;
  std::optional<EntryName> dropped;
  {
    std::lock_guard lock(mutex_);
    if (absl::IsDataLoss(read.status())) ++rejects_;
    dropped = pages_.Drop(name.key);
    if (dropped.has_value() && !OnDropped(*dropped)) dropped.reset();
  }
  if (dropped.has_value()) RemoveForgotten(*dropped).IgnoreError();
  return read;
}

void PageStore::TurnOff(const absl::Status& reason) {
  std::lock_guard lock(mutex_);
  on_ = false;
  if (!off_.empty()) return;
  const auto say = [&] {
    off_ = std::string(reason.message());
    return absl::OkStatus();
  };
  Guarded(say, [&] {
    off_ = "out of memory";  // short strings need no allocation
    return absl::OkStatus();
  }).IgnoreError();
}

void PageStore::CopyFailed(const absl::Status& reason) {
  ++io_errors_;
  TurnOff(reason);
}

bool PageStore::IsForgotten(const PageMark& mark) const {
  if (mark.documents.empty()) return false;
  if (mark.asked <= latest_given_up_) return true;
  return std::any_of(forgotten_.begin(), forgotten_.end(), [&](const Forgotten& each) {
    return mark.asked <= each.at && each.tenant == TenantPart(mark.tenant) &&
           mark.documents.Holds(each.document);
  });
}

absl::StatusOr<PageStore::Deletion> PageStore::ForgetDocument(const ContentHash& tenant,
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
    // The store may still know pages of the document.
    TurnOff(NoMemoryError());
    return NoMemoryError();
  }));
  return deletion;
}

absl::StatusOr<std::vector<int64_t>> PageStore::CountPages(const ContentHash& tenant,
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
    more = pages_.VisitSome(TenantPart(tenant), at_once, done, look);
  }
  std::vector<int64_t> counts;
  for (const auto& each : places) counts.push_back(std::ssize(each));
  return counts;
}

// Visits every page although the lock is released between batches: a page that is used meanwhile
// moves to the end of the order. Pages that are put meanwhile belong to a later upload of the
// document, because IsForgotten keeps out those of earlier requests.
PageStore::Deletion PageStore::Forget(const Forgotten& document, const CancelFlag& cancel) {
  Deletion deletion{{document.tenant, document.document, 0}, {}};
  std::vector<EntryName>& pages = deletion.pages;
  std::optional<KnownPages::Order> done;
  for (bool more = true; more;) {
    if (done.has_value()) cancel.MayPause();
    std::lock_guard lock(mutex_);
    if (!done.has_value()) {
      deletion.note.use = NextUseLocked();
      forgotten_.push_back(document);
      forgotten_.back().at = clock_.Now();
      if (forgotten_.size() > kMostForgotten) {
        latest_given_up_ = forgotten_.front().at;
        forgotten_.pop_front();
      }
    }
    more = pages_.VisitSome(document.tenant, kPagesAtOnce, done, [&](const KnownPages::Page& page) {
      if (!page.name.documents.Holds(document.document)) return;
      pages.push_back(page.name);
      pages_.Drop(pages.back().key);
      if (!OnDropped(pages.back())) pages.pop_back();
    });
  }
  return deletion;
}

std::vector<EntryName> PageStore::Distrust(std::span<const PageKey> keys, bool counts) {
  std::vector<EntryName> pages;
  pages.reserve(keys.size());
  std::lock_guard lock(mutex_);
  if (counts) ++mismatches_;
  for (const PageKey& key : keys) {
    VisitKeys(key, [&](const PageKey& each) {
      const std::optional<EntryName> dropped = pages_.Drop(each);
      if (dropped.has_value() && OnDropped(*dropped)) pages.push_back(*dropped);
      return false;
    });
  }
  return pages;
}

PageStore::Stats PageStore::stats() const {
  std::lock_guard lock(mutex_);
  return {pages_.size(), pages_.bytes(), limit_, rejects_,
          mismatches_,   io_errors_,     off_,   obstacle_};
}

}  // namespace annulus
