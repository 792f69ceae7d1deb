#include "engine/pages/prompt_saver.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <utility>

#include "engine/base/try_to.h"
#include "engine/scheduler/placement.h"
#include "engine/scheduler/step_cost.h"

namespace annulus {
namespace {

using Documents = std::vector<std::pair<int32_t, DocumentSet>>;

// Computed once for a prompt: hashing a document's name for each page would stall the coordinator.
Documents DocumentsOf(const RequestSpec& spec) {
  Documents documents;
  for (const PromptDocument& document : spec.documents) {
    documents.emplace_back(document.begin, DocumentSet()).second.Add(document.content);
  }
  std::sort(documents.begin(), documents.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 1; i < documents.size(); ++i) documents[i].second.Add(documents[i - 1].second);
  return documents;
}

// The documents that begin before the position: a page that ends there holds or follows them.
DocumentSet DocumentsBefore(int32_t end, const Documents& documents) {
  const auto after = std::partition_point(documents.begin(), documents.end(),
                                          [&](const auto& each) { return each.first < end; });
  return after == documents.begin() ? DocumentSet() : std::prev(after)->second;
}

}  // namespace

void PromptSaver::Offer(const Sequence& sequence, Request& request,
                        const std::vector<int32_t>& checkpoints) {
  if (!use_.levels.on()) return;
  const int64_t before = use_.writes.waiting();
  // Without memory for it, the pages stay where they are: the next step tries again.
  TryTo([&] { OfferNow(sequence, request, checkpoints); });
  if (use_.writes.waiting() != before) use_.writes.Show();
}

void PromptSaver::OfferNow(const Sequence& sequence, Request& request,
                           const std::vector<int32_t>& checkpoints) {
  auto found = offered_.find(request.id());
  if (found == offered_.end()) {
    Offered whole;  // there in full or, where memory runs out, not at all
    // Pages that a policy computed after pages not computed under it can serve no other request.
    // What a policy chooses by content can depend on how the prompt was cut into steps.
    whole.never = ClassOf(sequence.attention.get()) == AttentionClass::kContent ||
                  (sequence.attention != nullptr && request.begun_from() > 0);
    whole.use = use_.levels.NextUse();
    whole.documents = DocumentsOf(request.spec());
    whole.last =
        use_.marks.Root(request.spec().tenant, sequence.attention.get(), sequence.rope_length);
    found = offered_.emplace(request.id(), std::move(whole)).first;
  }
  Offered& state = found->second;
  if (state.never) return;
  if (use_.marks.has_windows()) {
    for (const int32_t length : checkpoints) OfferPages(sequence, request, length, state);
    OfferChunk(sequence, request, state);
    return;
  }
  const int32_t length = std::min(sequence.whole(), sequence.prompt_length) /
                         use_.limits.page_tokens * use_.limits.page_tokens;
  if (length <= state.tokens) return;
  if (length > request.known()) use_.prefixes.KeepUpTo(length, sequence, request, &state.kept);
  OfferPages(sequence, request, length, state);
  state.pace.Computed(length, use_.clock.Now());
}

bool PromptSaver::HoldsBack(RequestId id) {
  const auto found = offered_.find(id);
  const int last = use_.levels.size() - 1;
  // Host memory does not survive a crash, so nothing waits for it.
  if (found == offered_.end() || use_.levels[last].kind != TierKind::kDisk) return false;
  Offered& state = found->second;
  while (state.saved < state.tokens &&
         !WaitsToBeWritten(state.chain[state.saved / use_.limits.page_tokens])) {
    state.saved += use_.limits.page_tokens;
  }
  const bool waits_for_nothing = !use_.levels.store(last).on() || state.passing.is_stuck;
  state.pace.Saved(waits_for_nothing ? std::numeric_limits<int32_t>::max() : state.saved);
  const double before = state.pace.waited();
  const bool waits = state.pace.Waits(use_.clock.Now());
  use_.levels.metrics(last).wait_seconds.Add(state.pace.waited() - before);
  if (waits) held_until_ = std::min(held_until_, *state.pace.due());
  return waits;
}

void PromptSaver::OfferChunk(const Sequence& sequence, Request& request, Offered& state) {
  const bool has_none = EndPassing(sequence, request.spec(), state);
  const int32_t page = use_.limits.page_tokens;
  const int32_t length = sequence.whole();
  if (!sequence.in_prefill() || length <= state.reached || length % page != 0) return;
  state.reached = length;
  state.pace.Computed(length, use_.clock.Now());
  const bool is_on = use_.levels.store(use_.levels.size() - 1).on();
  if (!has_none || !is_on || use_.limits.passing_checkpoints == 0) return;
  const int32_t cached = request.begun_from();
  if (length <= std::max(state.tokens, cached)) return;
  // Before the pages are kept: if memory runs out below, these are still known to be lent.
  for (int group = 0; group < use_.marks.groups(); ++group) {
    if (!use_.marks.is_window(group)) continue;
    // Cached pages are not from the reserve.
    const int32_t oldest = std::max(cached / page * page, use_.marks.OldestSeen(group, length));
    for (const PageEntry& entry : sequence.groups[group].entries) {
      if (entry.first_position < oldest || entry.first_position >= length) continue;
      state.passing.lent.push_back({group, {entry.first_position, {entry.rank, entry.page}}});
    }
  }
  use_.prefixes.KeepUpTo(length, sequence, request, &state.kept);
  if (state.kept.tokens != length) return;  // one of its documents was deleted
  state.passing.end = state.kept.digest;
  state.passing.is_known = state.kept.is_new;
  OfferPages(sequence, request, length, state);
  NoteWritten(request.spec(), length, state);
}

void PromptSaver::NoteWritten(const RequestSpec& spec, int32_t length, Offered& state) const {
  Passing& passing = state.passing;
  std::vector<PlacedKey> written;
  use_.marks.ForEachWindowPage(length, [&](int group, int32_t first) {
    const PageKey key = state.KeyAt(group, first, use_.limits.page_tokens);
    const bool is_new = use_.writes.Waits(key) && !IsAtCheckpoint(spec, length, group, first);
    const bool was_written = std::any_of(passing.written.begin(), passing.written.end(),
                                         [&](const PlacedKey& each) { return each.key == key; });
    if (is_new || was_written) written.push_back({key, first});
  });
  passing.stale.reserve(passing.stale.size() + passing.written.size());
  for (const PlacedKey& each : passing.written) {
    const bool stays = std::any_of(written.begin(), written.end(),
                                   [&](const PlacedKey& other) { return other.key == each.key; });
    if (!stays && !IsAtCheckpoint(spec, length, each.key.group, each.first_position)) {
      passing.stale.push_back(each.key);
    }
  }
  passing.written = std::move(written);
}

void PromptSaver::DropStale(Offered& state) {
  Passing& passing = state.passing;
  if (passing.stale.empty()) return;
  const PageStore& disk = use_.levels.store(use_.levels.size() - 1);
  // A page that the disk had no room for, for example, cannot be continued from.
  const bool is_whole = std::all_of(passing.written.begin(), passing.written.end(),
                                    [&](const PlacedKey& each) { return disk.Has(each.key); });
  if (!is_whole) return;
  use_.levels.Drop(passing.stale);
  passing.stale.clear();
}

bool PromptSaver::IsAtCheckpoint(const RequestSpec& spec, int32_t computed, int group,
                                 int32_t first) const {
  const std::vector<int32_t> own = Request::Checkpoints(spec, use_.limits.page_tokens);
  return std::any_of(own.begin(), own.end(), [&](int32_t length) {
    return length <= computed && first >= use_.marks.OldestSeen(group, length) && first < length;
  });
}

bool PromptSaver::EndPassing(const Sequence& sequence, const RequestSpec& spec, Offered& state) {
  Passing& passing = state.passing;
  for (const Passing::Lent& lent : passing.lent) {
    const auto index = static_cast<size_t>(lent.page.first_position / use_.limits.page_tokens);
    if (index < state.chain.size() && use_.writes.Waits({state.chain[index], lent.group})) {
      return false;
    }
  }
  if (passing.is_known) use_.prefixes.index().DropCheckpoint(passing.end);
  passing.is_known = false;
  std::erase_if(passing.lent,
                [&](const Passing::Lent& lent) { return TakeBack(sequence, spec, lent); });
  passing.is_stuck = !passing.lent.empty();
  DropStale(state);
  return passing.lent.empty();
}

bool PromptSaver::TakeBack(const Sequence& sequence, const RequestSpec& spec,
                           const Passing::Lent& lent) {
  const PageId id = lent.page.id;
  const PageBook::Page page = use_.book.page(id);
  if (page.keepers > 0 || page.holders > 1) {
    // One of the request's own checkpoints may keep the page. The reserve allows for those.
    return IsAtCheckpoint(spec, sequence.computed, lent.group, lent.page.first_position);
  }
  const auto maps_it = [&](const GroupTable& group) {
    return std::any_of(group.entries.begin(), group.entries.end(), [id](const PageEntry& entry) {
      return entry.rank == id.rank && entry.page == id.page;
    });
  };
  // DropOutsideWindows recycles pages that are still in a table. A page that is not complete has
  // been recycled already.
  if (page.state == PageState::kComplete &&
      std::none_of(sequence.groups.begin(), sequence.groups.end(), maps_it)) {
    use_.book.Recycle(sequence.owner, id);
  }
  return true;
}

bool PromptSaver::WaitsToBeWritten(const ContentHash& chain) const {
  for (int group = 0; group < use_.marks.groups(); ++group) {
    if (use_.writes.Waits({chain, group})) return true;
  }
  return false;
}

void PromptSaver::OfferPages(const Sequence& sequence, const Request& request, int32_t length,
                             Offered& state) {
  const std::span<const int32_t> prompt(request.spec().prompt);
  const int32_t page = use_.limits.page_tokens;
  while (state.tokens < length) {
    PageMark next = state.last;
    PageMarks::Advance(prompt.subspan(state.tokens, page), next);
    for (int group = 0; group < use_.marks.groups(); ++group) {
      if (use_.marks.is_window(group)) continue;
      OfferPage(sequence, request, group, next, state);
    }
    // Last, and all at once: if memory ran out for a page, it is offered again under the same
    // chain. If only the chain moved on, the next page would be kept under this one's tokens.
    state.chain.push_back(next.chain);
    state.last = std::move(next);
    state.tokens += page;
  }
  use_.marks.ForEachWindowPage(length, [&](int group, int32_t first) {
    PageMark mark = state.last;
    mark.first_position = first;
    mark.parent = first == 0 ? RootOf(mark) : state.chain[first / page - 1];
    mark.chain = state.chain[first / page];
    const std::span<const int32_t> tokens = prompt.subspan(first, page);
    mark.tokens.assign(tokens.begin(), tokens.end());
    OfferPage(sequence, request, group, std::move(mark), state);
  });
}

void PromptSaver::OfferPage(const Sequence& sequence, const Request& request, int group,
                            PageMark mark, const Offered& state) {
  const int64_t use = state.use;
  mark.group = group;
  const PageKey key = KeyOf(mark);
  const bool known = use_.levels.Find(key).has_value();
  if (known) use_.levels.Touch(key, use);
  mark.documents = DocumentsBefore(mark.first_position + use_.limits.page_tokens, state.documents);
  // Pages computed before this request were compared at that time.
  const bool compare = known && compares_ && mark.first_position >= request.begun_from();
  const auto degree = static_cast<int>(sequence.ring.size());
  const int32_t rank = sequence.ring[static_cast<size_t>(
      PlaceOnRing(mark.first_position, use_.limits.page_tokens, degree, use_.limits.shards))];
  if (!compare && use_.levels.HaveAll(key, rank, mark.documents)) return;
  if (use_.writes.full()) return;
  const PageWrites::Offers* const offers = use_.writes.Find(key);
  if (offers != nullptr) {
    if (offers->documents.Holds(mark.documents)) return;
    mark.documents.Add(offers->documents);
  }
  const std::vector<PageEntry>& entries = sequence.groups[group].entries;
  const auto entry =
      std::lower_bound(entries.begin(), entries.end(), mark.first_position,
                       [](const PageEntry& e, int32_t first) { return e.first_position < first; });
  if (entry == entries.end() || entry->first_position != mark.first_position) return;
  PageId id{entry->rank, entry->page};
  PageBook::Page page = use_.book.page(id);
  if (page.state != PageState::kCached && offers != nullptr) {
    // The request recomputed a cached page: the cached one stays.
    id = offers->page;
    page = use_.book.page(id);
    if (page.generation != offers->generation) return;
  }
  if (page.state != PageState::kCached) return;
  mark.coverage = page.coverage;
  mark.asked = request.documents_found();
  use_.writes.Offer({std::move(mark), id, page.generation, page.hash, request.spec().tenant,
                     TenantBytes(request.spec().tenant_room), use, compare, nullptr});
}

PageLevels::Counts PromptSaver::TenantBytes(const TenantRoom& room) const {
  PageLevels::Counts most;
  most.fill(std::numeric_limits<int64_t>::max());
  for (int level = 0; level < use_.levels.size(); ++level) {
    const bool host = use_.levels[level].kind == TierKind::kHost;
    const int64_t bytes = host ? room.host_bytes : room.disk_bytes;
    if (bytes > 0) most[level] = bytes;
  }
  return most;
}

int64_t PromptSaver::bytes() const {
  int64_t bytes = 0;
  for (const auto& [id, state] : offered_) bytes += std::ssize(state.chain) * 32 + 200;
  return bytes;
}

}  // namespace annulus
