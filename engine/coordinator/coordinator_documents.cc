// The part of Coordinator for documents: pins, times to live and deletions.

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/error_payloads.h"
#include "engine/base/field_error.h"
#include "engine/coordinator/coordinator.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {

void Coordinator::ForgetDocument(DocumentTag document) {
  // At once: a request from before leaves nothing, even if it ends before the loop hears of it.
  prefixes_.index().documents().Forget(document, clock_.Now());
  Order(document, DocumentOrder::kForget);
}

void Coordinator::UnpinDocument(DocumentTag document) { Order(document, DocumentOrder::kUnpin); }

void Coordinator::Order(DocumentTag document, DocumentOrder order) {
  {
    std::lock_guard lock(orders_mutex_);
    DocumentOrder& known = orders_.try_emplace(document, order).first->second;
    known = std::max(known, order);
  }
  commands_.TryPush(nullptr);  // only to wake the loop; a full queue means that it is awake
}

KeptDocument Coordinator::FindDocument(DocumentTag document) const {
  const PinnedDocuments::State state = pins_.Look(document);
  KeptDocument kept;
  kept.pinned = state.pinned;
  if (state.expires.has_value()) {
    kept.expires_in = std::max(0.0, SecondsBetween(clock_.Now(), *state.expires));
  }
  kept.memory_tokens = prefixes_.index().documents().TokensOf(document);
  return kept;
}

// Carries out what clients ordered for documents since the last turn, and deletes documents whose
// time to live is over.
void Coordinator::TendDocuments() {
  const SteadyTime now = clock_.Now();
  const auto expire = [&] {
    for (const DocumentTag document : pins_.Due(now)) ForgetDocument(document);
    return absl::OkStatus();
  };
  if (pins_.NextExpiry() <= now) Guarded(expire, NoMemoryError).IgnoreError();
  std::map<DocumentTag, DocumentOrder> orders;
  {
    std::lock_guard lock(orders_mutex_);
    orders.swap(orders_);
  }
  while (!orders.empty()) {
    auto order = orders.extract(orders.begin());
    const auto obey = [&] {
      Obey(order.key(), order.mapped());
      return absl::OkStatus();
    };
    if (Guarded(obey, NoMemoryError).ok()) continue;
    // Without memory for it, the next turn tries again.
    std::lock_guard lock(orders_mutex_);
    const auto back = orders_.insert(std::move(order));
    if (!back.inserted) back.position->second = std::max(back.position->second, back.node.mapped());
  }
}

void Coordinator::Obey(DocumentTag document, DocumentOrder order) {
  if (order == DocumentOrder::kForget) {
    pins_.Forget(document);
    prefixes_.index().Forget(document);
  } else {
    pins_.Unpin(document);
  }
  serving_.NoteRoom();
}

// Sets the pin and the time to live that the request asks for what it has read ahead.
absl::Status Coordinator::KeepPrefilled(Request& request) {
  const RequestSpec& spec = request.spec();
  if (!spec.pin && !spec.ttl.has_value()) return absl::OkStatus();
  const TaggedDocuments documents = PrefixReuse::TagsOf(spec);
  if (prefixes_.index().documents().WasForgotten(documents, request.documents_found())) {
    return absl::UnavailableError(
        "a document of the prompt was deleted while the server read it, so nothing of it is kept");
  }
  if (spec.pin) {
    const std::shared_ptr<const AttentionAssignment> policy =
        request.sequence() != nullptr ? request.sequence()->attention : TakePolicy(request);
    const std::optional<PrefixIndex::Hit> hit = prefixes_.FindAll(spec, policy.get());
    if (!hit.has_value()) {
      return absl::UnavailableError(
          "what the server had read left memory before it could be pinned; try again");
    }
    ANNULUS_RETURN_IF_ERROR(CheckRoomToGrow(*hit));
    ANNULUS_RETURN_IF_ERROR(pins_.Pin(spec.tenant, documents, *hit));
  }
  if (spec.ttl.has_value()) {
    pins_.SetExpiry(documents.back().tag, clock_.Now() + *spec.ttl);
  }
  return absl::OkStatus();
}

// Whether the request may pin its prompt.
absl::Status Coordinator::CheckPinRoom(const RequestSpec& spec) const {
  return spec.pin ? pins_.CheckRoom(spec.tenant, std::ssize(spec.prompt)) : absl::OkStatus();
}

// Nothing is there for the request. If nothing runs that could end, pinned documents take its room.
absl::Status Coordinator::CheckRoomBesidePins(const Request& request) {
  const bool waits = !state_.running.empty() || (tier_ != nullptr && tier_->will_free_pages());
  if (waits || !pins_.any()) return absl::OkStatus();
  int64_t all = 0;
  int64_t left = 0;
  for (int rank = 0; rank < pages_.ranks(); ++rank) {
    all += pages_.counts(rank).total();
    left += pages_.free_count(rank) + pages_.unheld_count(rank);
  }
  absl::Status status = absl::ResourceExhaustedError(absl::StrCat(
      "the request needs ", AllPagesNeeded(DemandOf(request), options_.limits),
      " pages of keys and values if none of its prompt is cached; pinned documents leave ", left,
      " of ", all, "; unpin or delete documents, shorten the prompt, or lower max_tokens"));
  status.SetPayload(kLimitPayload, absl::Cord("pinned"));
  return status;
}

}  // namespace annulus
