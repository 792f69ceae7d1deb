#include "engine/coordinator/admission/page_needs.h"

#include <algorithm>
#include <vector>

#include "engine/coordinator/admission/wait_error.h"
#include "engine/sparse/page_summaries.h"

namespace annulus {

PageDemand PageNeeds::Of(const Request& request) const {
  if (request.has_begun()) return Of(request.spec(), request.attention().get());
  const AttentionAssignment attention =
      request.spec().attention.value_or(options_.engine.attention);
  return Of(request.spec(), attention.dense() ? nullptr : &attention);
}

PageDemand PageNeeds::Of(const RequestSpec& spec, const AttentionAssignment* attention) const {
  PageDemand demand = Demand(spec, options_.limits.page_tokens);
  demand.most_ranks = ledger_.book().usable_ranks();
  if (attention != nullptr) demand.summarised = ranks_.PagesSummarised(SummariesOf(*attention));
  if (ReservesExpected(spec, attention)) ReserveExpected(spec, demand);
  return demand;
}

absl::Status PageNeeds::CheckFits(const Request& request) const {
  const PageBook& book = ledger_.book();
  std::vector<int32_t> room;
  if (book.usable_ranks() == book.ranks()) return absl::OkStatus();
  for (int rank = 0; rank < book.ranks(); ++rank) room.push_back(book.room(rank));
  PageDemand demand = Of(request);
  demand.reserved = 0;
  if (ChooseRing(demand, room, {}, options_.limits).has_value()) return absl::OkStatus();
  return WaitError(request, ranks_.awaited());
}

// Requests with an attention policy reserve everything: their summaries' pages are fixed when they
// begin, and rows that are computed again in another chunk may choose other blocks. So do those of
// tenants with a quota of keys and values, which cannot use pages of others.
bool PageNeeds::ReservesExpected(const RequestSpec& spec,
                                 const AttentionAssignment* attention) const {
  return options_.engine.admission == AdmissionMode::kExpected && attention == nullptr &&
         !spec.prefill_only && spec.tenant_room.kv_bytes == 0;
}

void PageNeeds::ReserveExpected(const RequestSpec& spec, PageDemand& demand) const {
  const int64_t page = options_.limits.page_tokens;
  const int64_t prompt = std::ssize(spec.prompt) - spec.answered;
  const int64_t tokens = prompt + serving_.ExpectAnswer(spec, spec.answered);
  const int64_t reserved = (tokens + page - 1) / page * page;
  if (reserved >= demand.tokens) return;
  demand.reserved = reserved;
  const PageBook& book = ledger_.book();
  for (int rank = 0; rank < book.ranks(); ++rank) {
    demand.alone.push_back(std::max(0, book.room(rank) - book.pinned_count(rank)));
  }
}

}  // namespace annulus
