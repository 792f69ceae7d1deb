#include "engine/coordinator/admission/page_needs.h"

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
  if (attention != nullptr) demand.summarised = ranks_.PagesSummarised(SummariesOf(*attention));
  if (ReservesExpected(spec, attention)) ReserveExpected(spec, demand);
  return demand;
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
    const auto total = static_cast<int32_t>(book.counts(rank).total());
    demand.alone.push_back(total - book.pinned_count(rank));
  }
}

}  // namespace annulus
