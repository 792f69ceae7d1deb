#include "engine/pages/pinned_documents.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/error_payloads.h"
#include "engine/pages/request_pages.h"
#include "kernels/base/status_macros.h"

namespace annulus {

PinnedDocuments::PinnedDocuments(Options options, PageBook& book, PrefixIndex& index)
    : options_(std::move(options)), book_(book), index_(index) {}

int64_t PinnedDocuments::AllPages() const {
  int64_t all = 0;
  for (int rank = 0; rank < book_.ranks(); ++rank) all += book_.counts(rank).total();
  return all;
}

// What a Hit of so many tokens has.
int64_t PinnedDocuments::PagesOf(int64_t tokens) const {
  int64_t pages = 0;
  const int64_t page = options_.page_tokens;
  for (const int64_t window : options_.group_windows) {
    const int64_t oldest = window > 0 ? std::max<int64_t>(0, tokens - window + 1) / page : 0;
    pages += tokens / page - oldest;
  }
  return pages;
}

absl::Status PinnedDocuments::CheckPages(const TenantId& tenant, int64_t pages) const {
  int64_t all = 0;
  int64_t own = 0;
  for (const auto& [document, pin] : pins_) {
    all += pin.pages;
    if (pin.tenant == tenant) own += pin.pages;
  }
  const auto most = [&](double share) {
    return static_cast<int64_t>(static_cast<double>(AllPages()) * share);
  };
  const auto refuse = [&](absl::string_view whose, int64_t allowed, absl::string_view option) {
    absl::Status status = absl::ResourceExhaustedError(
        absl::StrCat("pin: the prompt up to the document's end needs ", pages, " pages; ", whose,
                     " may take at most ", allowed,
                     " pages; unpin or delete others, prefill the document without pin, or ask the "
                     "operator for a larger ",
                     option));
    status.SetPayload(kLimitPayload, absl::Cord("pinned"));
    return status;
  };
  if (own + pages > most(options_.tenant_share)) {
    return refuse(absl::StrCat("your pinned documents take ", own, " and"),
                  most(options_.tenant_share), "--max-pinned-by-tenant");
  }
  // The message does not tell how much other tenants have pinned.
  if (all + pages > most(options_.share)) {
    return refuse("the pinned documents of all tenants together", most(options_.share),
                  "--max-pinned");
  }
  return absl::OkStatus();
}

absl::Status PinnedDocuments::CheckRoom(const TenantId& tenant, int64_t tokens) const {
  return CheckPages(tenant, PagesOf(tokens));
}

absl::Status PinnedDocuments::Pin(const TenantId& tenant, const TaggedDocuments& documents,
                                  const PrefixIndex::Hit& hit) {
  const DocumentTag document = documents.back().tag;
  const auto [first, last] = pins_.equal_range(document);
  if (std::any_of(first, last, [&](const auto& pin) { return pin.second.end == hit.end; })) {
    return absl::OkStatus();
  }
  Pinned pin{tenant, documents, hit.end, /*owner=*/{}, PagesOf(hit.tokens), {}};
  for (const auto& group : hit.groups) {
    for (const PrefixPage& page : group) pin.held.push_back(page.id);
  }
  ANNULUS_RETURN_IF_ERROR(CheckPages(tenant, pin.pages));
  const PageOwner owner = book_.OpenPin(tenant);
  absl::Cleanup undo = [&] { book_.Release(owner); };  // without memory for the rest
  HoldPages(hit, owner, book_);
  pin.owner = owner;
  std::lock_guard lock(mutex_);
  pins_.emplace(document, std::move(pin));
  std::move(undo).Cancel();
  index_.Pin(hit.end);
  return absl::OkStatus();
}

void PinnedDocuments::EndPin(const Pinned& pin) {
  index_.Unpin(pin.end);
  book_.Release(pin.owner);
}

void PinnedDocuments::Unpin(DocumentTag document) {
  std::lock_guard lock(mutex_);
  const auto [first, last] = pins_.equal_range(document);
  for (auto pin = first; pin != last; ++pin) EndPin(pin->second);
  pins_.erase(first, last);
}

void PinnedDocuments::SetExpiry(DocumentTag document, SteadyTime at) {
  std::lock_guard lock(mutex_);
  expiries_[document] = at;
}

std::vector<DocumentTag> PinnedDocuments::Due(SteadyTime now) const {
  std::vector<DocumentTag> due;
  for (const auto& [document, at] : expiries_) {
    if (at <= now) due.push_back(document);
  }
  return due;
}

SteadyTime PinnedDocuments::NextExpiry() const {
  SteadyTime next = SteadyTime::max();
  for (const auto& [document, at] : expiries_) next = std::min(next, at);
  return next;
}

void PinnedDocuments::Forget(DocumentTag document) {
  std::lock_guard lock(mutex_);
  std::erase_if(pins_, [&](const auto& pin) {
    const TaggedDocuments& has = pin.second.documents;
    const bool goes =
        std::any_of(has.begin(), has.end(), [&](const auto& each) { return each.tag == document; });
    if (goes) EndPin(pin.second);
    return goes;
  });
  expiries_.erase(document);
}

void PinnedDocuments::ForgetRanks(std::span<const int32_t> ranks) {
  const auto is_lost = [&](PageId id) {
    return std::find(ranks.begin(), ranks.end(), id.rank) != ranks.end();
  };
  std::lock_guard lock(mutex_);
  std::erase_if(pins_, [&](const auto& entry) {
    const Pinned& pin = entry.second;
    const bool lost = std::any_of(pin.held.begin(), pin.held.end(), is_lost);
    if (lost) EndPin(pin);
    return lost;
  });
}

void PinnedDocuments::Clear() {
  std::lock_guard lock(mutex_);
  for (const auto& [document, pin] : pins_) EndPin(pin);
  pins_.clear();
}

PinnedDocuments::State PinnedDocuments::StateOf(DocumentTag document) const {
  std::lock_guard lock(mutex_);
  State state;
  state.pinned = pins_.contains(document);
  const auto expiry = expiries_.find(document);
  if (expiry != expiries_.end()) state.expires = expiry->second;
  return state;
}

}  // namespace annulus
