#include "engine/coordinator/document_keeper.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/error_payloads.h"
#include "engine/base/try_to.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Of all pages: those of the ring without the ranks whose loss is tolerated.
double ShareLeft(const CoordinatorOptions& options) {
  return static_cast<double>(options.ranks_left()) / options.limits.ranks;
}

}  // namespace

DocumentKeeper::DocumentKeeper(Parts parts)
    : use_(std::move(parts)),
      pins_({use_.options.engine.max_pinned * ShareLeft(use_.options),
             use_.options.engine.max_pinned_by_tenant * ShareLeft(use_.options),
             use_.options.limits.page_tokens, use_.options.limits.group_windows},
            use_.ledger.book(), use_.ledger.prefixes().index()) {}

void DocumentKeeper::Forget(DocumentTag document) {
  // At once: a request from before leaves nothing, even if it ends before the loop hears of it.
  use_.ledger.prefixes().index().documents().Forget(document, use_.clock.Now());
  Order(document, What::kForget);
}

void DocumentKeeper::Order(DocumentTag document, What what) {
  {
    std::lock_guard lock(mutex_);
    What& known = orders_.try_emplace(document, what).first->second;
    known = std::max(known, what);
  }
  use_.wake();
}

KeptDocument DocumentKeeper::Find(DocumentTag document) const {
  const PinnedDocuments::State state = pins_.StateOf(document);
  KeptDocument kept;
  kept.pinned = state.pinned;
  if (state.expires.has_value()) {
    kept.expires_in = std::max(0.0, SecondsBetween(use_.clock.Now(), *state.expires));
  }
  kept.memory_tokens = use_.ledger.prefixes().index().documents().TokensOf(document);
  return kept;
}

void DocumentKeeper::Tend() {
  const SteadyTime now = use_.clock.Now();
  if (NextDue() <= now) {
    TryTo([&] {
      for (const DocumentTag document : pins_.Due(now)) Forget(document);
    });
  }
  std::map<DocumentTag, What> orders;
  {
    std::lock_guard lock(mutex_);
    orders.swap(orders_);
  }
  while (!orders.empty()) {
    auto order = orders.extract(orders.begin());
    if (TryTo([&] { CarryOut(order.key(), order.mapped()); })) continue;
    std::lock_guard lock(mutex_);
    const auto back = orders_.insert(std::move(order));
    if (!back.inserted) back.position->second = std::max(back.position->second, back.node.mapped());
  }
}

void DocumentKeeper::CarryOut(DocumentTag document, What what) {
  if (what == What::kForget) {
    pins_.Forget(document);
    use_.ledger.prefixes().index().Forget(document);
  } else {
    pins_.Unpin(document);
  }
  use_.serving.NoteRoom();
}

absl::Status DocumentKeeper::KeepPrefilled(Request& request) {
  const RequestSpec& spec = request.spec();
  if (!spec.pin && !spec.ttl.has_value()) return absl::OkStatus();
  PrefixReuse& prefixes = use_.ledger.prefixes();
  const TaggedDocuments documents = PrefixReuse::TagsOf(spec);
  if (prefixes.index().documents().WasForgotten(documents, request.documents_found())) {
    return absl::UnavailableError(
        "a document of the prompt was deleted during the prefill, so its pages are not kept");
  }
  if (spec.pin) {
    const std::shared_ptr<const AttentionAssignment> policy =
        request.sequence() != nullptr ? request.sequence()->attention
                                      : use_.policies.ChooseFor(request);
    const std::optional<PrefixIndex::Hit> hit = prefixes.FindAll(spec, policy.get());
    if (!hit.has_value()) {
      return absl::UnavailableError(
          "the pages were evicted before they could be pinned; try again");
    }
    ANNULUS_RETURN_IF_ERROR(use_.growth.CheckRoomBeside(*hit));
    ANNULUS_RETURN_IF_ERROR(pins_.Pin(spec.tenant, documents, *hit));
  }
  if (spec.ttl.has_value()) {
    pins_.SetExpiry(documents.back().tag, use_.clock.Now() + *spec.ttl);
  }
  return absl::OkStatus();
}

absl::Status DocumentKeeper::CheckPinRoom(const RequestSpec& spec) const {
  if (!spec.pin) return absl::OkStatus();
  return pins_.CheckRoom(spec.tenant, std::ssize(spec.prompt));
}

absl::Status DocumentKeeper::CheckRoomBesidePins(const Request& request) const {
  if (!use_.ledger.state().running.empty() || use_.ledger.tier_will_free_pages()) {
    return absl::OkStatus();
  }
  const PageBook& book = use_.ledger.book();
  int64_t all = 0;
  int64_t left = 0;
  int64_t pinned = 0;
  for (int rank = 0; rank < book.ranks(); ++rank) {
    all += book.counts(rank).total();
    left += book.free_count(rank) + book.unheld_count(rank);
    pinned += book.pinned_count(rank);
  }
  if (pinned == 0) return absl::OkStatus();
  std::string kept;
  const LossReserve reserve(use_.options, use_.ledger, use_.needs);
  if (const std::optional<int64_t> beside = reserve.PagesBesidePins(); beside.has_value()) {
    all = all / book.ranks() * use_.options.ranks_left();
    left = std::min(left, *beside);
    kept = absl::StrCat(" that ", use_.options.ranks_left(), " of ", book.ranks(),
                        " ranks have (--tolerate ", use_.options.tolerated_ranks, ")");
  }
  absl::Status status = absl::ResourceExhaustedError(absl::StrCat(
      "the request needs ", AllPagesNeeded(use_.needs.Of(request), use_.options.limits),
      " pages of keys and values if none of its prompt is cached; pinned documents leave ", left,
      " of ", all, kept, "; unpin or delete documents, shorten the prompt, or lower max_tokens"));
  status.SetPayload(kLimitPayload, absl::Cord("pinned"));
  return status;
}

}  // namespace annulus
