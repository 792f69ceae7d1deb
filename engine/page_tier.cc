#include "engine/page_tier.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/scheduler/step_cost.h"
#include "kernels/base/check.h"
#include "kernels/base/guarded.h"

namespace annulus {
namespace {

// So that a burst of pages leaves the disk to others too.
constexpr double kWriteBytesPerSecond = 512 << 20;

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

// Needs no memory itself.
absl::Status NoMemory() { return absl::Status(absl::StatusCode::kResourceExhausted, ""); }

size_t StoredBytes(const KvGeometry& geometry) {
  return geometry.layer_page_bytes * static_cast<size_t>(geometry.layers_per_page);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DiskStore>> OpenDisk(const EngineOptions& options,
                                                    const KvGeometry& pages, bool on_host) {
  if (options.kv_disk.empty()) return nullptr;
  // A few pages.
  const int64_t least = std::max<int64_t>(1 << 20, 4 * KnownPages::FileBytes(StoredBytes(pages)));
  if (options.kv_disk_bytes < least) {
    return absl::InvalidArgumentError(absl::StrCat("kv-disk-size is ", options.kv_disk_bytes,
                                                   " bytes; with kv-disk give what ",
                                                   "its files may take, at least ", least));
  }
  if (!on_host) {
    return absl::UnimplementedError(
        "kv-disk takes pages from the host's memory; those of this device are not there; leave it "
        "out, or use --device cpu");
  }
  absl::StatusOr<std::unique_ptr<DiskStore>> store =
      options.kv_disk_calls == nullptr
          ? DiskStore::Open(options.kv_disk, options.kv_disk_bytes)
          : DiskStore::Open(options.kv_disk, options.kv_disk_bytes, *options.kv_disk_calls);
  if (store.ok()) return store;
  return absl::Status(store.status().code(), absl::StrCat("kv-disk: ", store.status().message()));
}

void ShowDisk(const DiskStore& store, TierMetrics& metrics) {
  const DiskStore::Stats stats = store.stats();
  metrics.Show({.up = store.on(),
                .bytes = stats.bytes,
                .limit = stats.limit,
                .pages = stats.pages,
                .rejects = stats.rejects,
                .mismatches = stats.mismatches,
                .io_errors = stats.io_errors});
}

PageTier::PageTier(DiskStore& store, Options options, const PlanLimits& limits,
                   const RankPort& ranks, PageBook& book, PrefixReuse& prefixes,
                   TierMetrics& metrics)
    : store_(store),
      identity_(HashOf(options.identity)),
      verify_(options.verify),
      most_job_seconds_(options.most_job_seconds),
      limits_(limits),
      ranks_(ranks),
      book_(book),
      prefixes_(prefixes),
      metrics_(metrics),
      page_bytes_(StoredBytes(ranks.local_pages(0)->geometry())),
      // Two chunks of a prompt.
      most_writes_(std::max<int64_t>(16, 2 * int64_t{limits.ranks} * limits.prefill_rows_per_rank /
                                             limits.page_tokens *
                                             std::ssize(limits.group_windows))),
      most_leaving_([&] {
        int64_t pages = 0;
        for (int rank = 0; rank < book.ranks(); ++rank) pages += book.counts(rank).total();
        return pages;
      }()) {
  PageMover::Options mover;
  mover.page_bytes = page_bytes_;
  mover.compares = verify_ == KvVerify::kAll;
  mover.write_bytes_per_second = kWriteBytesPerSecond;
  // One word is enough until the coordinator has heard it: its queue has few places.
  mover.wake = [this, wake = std::move(options.wake)] {
    if (woken_.exchange(true)) return;
    absl::Cleanup unheard = [this] { woken_ = false; };  // without memory for it
    wake();
    std::move(unheard).Cancel();
  };
  mover_ = std::make_unique<PageMover>(store_, std::move(mover));
}

PageTier::~PageTier() {
  mover_.reset();
  for (const auto& [owner, write] : writes_) {
    if (write.held) book_.Release(owner);
  }
  for (const auto& [owner, restore] : restores_) book_.Release(owner);
}

size_t PageTier::KeyHash::operator()(const PageKey& key) const {
  size_t value;
  std::memcpy(&value, key.chain.data(), sizeof(value));
  return value ^ static_cast<size_t>(key.group);
}

bool PageTier::has_windows() const {
  return std::any_of(limits_.group_windows.begin(), limits_.group_windows.end(),
                     [](int32_t window) { return window > 0; });
}

PagePieces PageTier::PiecesOf(PageId id) const {
  const KvPool& pool = *ranks_.local_pages(id.rank);
  PagePieces pieces;
  for (int layer = 0; layer < pool.geometry().layers_per_page; ++layer) {
    pieces.emplace_back(pool.LayerPage(id.page, layer), pool.geometry().layer_page_bytes);
  }
  return pieces;
}

// What stands before the first page.
PageMark PageTier::MarkFor(const TenantId& tenant, const AttentionAssignment* policy,
                           int64_t rope) const {
  PageMark mark;
  mark.identity = identity_;
  mark.policy =
      HashOf(absl::StrCat(policy == nullptr ? "dense" : AssignmentText(*policy), "/rope", rope));
  mark.tenant = HashOf(tenant.name());
  mark.chain = RootOf(mark);
  mark.first_position = -limits_.page_tokens;
  return mark;
}

void PageTier::Advance(std::span<const int32_t> tokens, PageMark& mark) {
  mark.parent = mark.chain;
  mark.chain = ChainOf(mark.parent, tokens);
  mark.first_position += static_cast<int32_t>(tokens.size());
  mark.tokens.assign(tokens.begin(), tokens.end());
}

// ---- there

void PageTier::Offer(const Sequence& sequence, Request& request,
                     const std::vector<int32_t>& checkpoints) {
  if (!store_.on()) return;
  const auto offer = [&] {
    OfferNow(sequence, request, checkpoints);
    return absl::OkStatus();
  };
  // Without memory for it, the pages stay where they are: the next step tries again.
  Guarded(offer, NoMemory).IgnoreError();
}

void PageTier::OfferNow(const Sequence& sequence, Request& request,
                        const std::vector<int32_t>& checkpoints) {
  auto found = offered_.find(request.id());
  if (found == offered_.end()) {
    Offered whole;  // there in full or, where memory runs out, not at all
    // Pages that a policy computed after pages not computed under it can serve no other request.
    // What a policy chooses by content can depend on how the prompt was cut into steps.
    whole.never = ClassOf(sequence.attention.get()) == AttentionClass::kContent ||
                  (sequence.attention != nullptr && request.cached_tokens() > 0);
    whole.use = store_.NextUse();
    whole.documents = DocumentsOf(request.spec());
    whole.last = MarkFor(request.spec().tenant, sequence.attention.get(), sequence.rope_length);
    found = offered_.emplace(request.id(), std::move(whole)).first;
  }
  Offered& state = found->second;
  if (state.never) return;
  if (has_windows()) {
    for (const int32_t length : checkpoints) OfferPages(sequence, request, length, state);
    return;
  }
  const int32_t length = std::min(sequence.computed, sequence.prompt_length) / limits_.page_tokens *
                         limits_.page_tokens;
  if (length <= state.tokens) return;
  if (length > request.cached_tokens()) prefixes_.KeepUpTo(length, sequence, request, &state.kept);
  OfferPages(sequence, request, length, state);
}

void PageTier::OfferPages(const Sequence& sequence, const Request& request, int32_t length,
                          Offered& state) {
  const std::span<const int32_t> prompt(request.spec().prompt);
  const int32_t page = limits_.page_tokens;
  while (state.tokens < length) {
    PageMark next = state.last;
    Advance(prompt.subspan(state.tokens, page), next);
    for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
      if (limits_.group_windows[g] > 0) continue;
      OfferPage(sequence, request, static_cast<int>(g), next, state);
    }
    // Last, and all at once: if memory ran out for a page, it is offered again under the same
    // chain. If only the chain moved on, the next page would be kept under this one's tokens.
    state.chain.push_back(next.chain);
    state.last = std::move(next);
    state.tokens += page;
  }
  for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
    if (limits_.group_windows[g] == 0) continue;
    const int32_t oldest = std::max(0, length - limits_.group_windows[g] + 1);
    for (int32_t first = oldest / page * page; first < length; first += page) {
      PageMark mark = state.last;
      mark.first_position = first;
      mark.parent = first == 0 ? RootOf(mark) : state.chain[first / page - 1];
      mark.chain = state.chain[first / page];
      const std::span<const int32_t> tokens = prompt.subspan(first, page);
      mark.tokens.assign(tokens.begin(), tokens.end());
      OfferPage(sequence, request, static_cast<int>(g), std::move(mark), state);
    }
  }
}

void PageTier::OfferPage(const Sequence& sequence, const Request& request, int group, PageMark mark,
                         const Offered& state) {
  const int64_t use = state.use;
  mark.group = group;
  const PageKey key = KeyOf(mark);
  const bool known = store_.Has(key);
  if (known) store_.Touch(key, use);
  mark.documents = DocumentsBefore(mark.first_position + limits_.page_tokens, state.documents);
  // Pages computed before this request were compared at that time.
  const bool compare =
      known && verify_ == KvVerify::kAll && mark.first_position >= request.cached_tokens();
  if (!compare && store_.Has(key, mark.documents)) return;
  if (std::ssize(leaving_) >= most_leaving_) return;
  const auto waiting = waiting_.find(key);
  if (waiting != waiting_.end()) {
    if (waiting->second.documents.Holds(mark.documents)) return;
    mark.documents.Add(waiting->second.documents);
  }
  const std::vector<PageEntry>& entries = sequence.groups[group].entries;
  const auto entry =
      std::lower_bound(entries.begin(), entries.end(), mark.first_position,
                       [](const PageEntry& e, int32_t first) { return e.first_position < first; });
  if (entry == entries.end() || entry->first_position != mark.first_position) return;
  PageId id{entry->rank, entry->page};
  PageBook::Page page = book_.page(id);
  if (page.state != PageState::kCached && waiting != waiting_.end()) {
    // The request computed what was cached already: that one stays so.
    id = waiting->second.page;
    page = book_.page(id);
    if (page.generation != waiting->second.generation) return;
  }
  if (page.state != PageState::kCached) return;
  mark.coverage = page.coverage;
  mark.asked = request.documents_found();
  const int64_t most = request.spec().tenant_room.disk_bytes;
  if (most > 0) mark.tenant_bytes = most;
  leaving_.push_back(
      {std::move(mark), id, page.generation, page.hash, request.spec().tenant, use, compare});
  absl::Cleanup undo = [&] { leaving_.pop_back(); };
  Waiting& offered = waiting_[key];
  std::move(undo).Cancel();
  offered = {leaving_.back().mark.documents, offered.offers + 1, id, page.generation};
}

void PageTier::EndOffer(const PageMark& mark) {
  const auto found = waiting_.find(KeyOf(mark));
  ANNULUS_CHECK(found != waiting_.end()) << "an offer that nobody made";
  if (--found->second.offers == 0) waiting_.erase(found);
}

void PageTier::StartWrites() {
  while (!leaving_.empty() && std::ssize(writes_) < most_writes_) {
    const Leaving& next = leaving_.front();
    const PageBook::Page now = book_.page(next.page);
    const bool same = now.state == PageState::kCached && now.generation == next.generation &&
                      now.hash == next.hash;
    if (same) {
      StartWrite();
    } else {
      EndOffer(next.mark);
      leaving_.pop_front();
    }
  }
}

// The page that waits first; without memory for it, it goes on waiting.
void PageTier::StartWrite() {
  Leaving& next = leaving_.front();
  const PageOwner owner = next_owner_++;
  absl::Cleanup undo = [&] {
    if (book_.IsOpen(owner)) book_.Release(owner);
    writes_.erase(owner);
  };
  book_.Open(owner, next.tenant);
  book_.Hold(owner, next.page);
  Writing& writing = writes_[owner];
  mover_->Write({owner, next.mark, PiecesOf(next.page), next.use, next.compare});
  std::move(undo).Cancel();
  writing.page = std::move(next);
  leaving_.pop_front();
}

bool PageTier::LetGoOfWrites() {
  const bool held = std::any_of(writes_.begin(), writes_.end(),
                                [](const auto& entry) { return entry.second.held; });
  if (!held) return false;
  // First: the mover may read what is held alone.
  const std::vector<uint64_t> dropped = mover_->DropWrites();
  for (auto& [owner, write] : writes_) {
    if (write.held) book_.Release(owner);
    write.held = false;
  }
  for (auto ticket = dropped.rbegin(); ticket != dropped.rend(); ++ticket) {
    Leaving page = std::move(writes_.extract(*ticket).mapped().page);
    const auto wait = [&] {
      leaving_.push_front(std::move(page));
      return absl::OkStatus();
    };
    // Without memory to wait, it may be offered again.
    if (!Guarded(wait, NoMemory).ok()) EndOffer(page.mark);
  }
  return true;
}

void PageTier::TakeWritten(const PageMover::Done& done) {
  const auto found = writes_.find(done.ticket);
  ANNULUS_CHECK(found != writes_.end()) << "a write that nobody asked for: " << done.ticket;
  EndOffer(found->second.page.mark);
  if (found->second.held) book_.Release(done.ticket);
  writes_.erase(found);
  metrics_.write_seconds.Add(done.seconds);
  if (done.fresh) metrics_.written_bytes.Add(page_bytes());
  if (done.compared) metrics_.checks.Increment();
}

// The store is off: what it was to carry stays where it is, and nobody waits.
void PageTier::StopCarrying() {
  LetGoOfWrites();
  for (const Leaving& page : leaving_) EndOffer(page.mark);
  leaving_.clear();
  offered_.clear();
  std::vector<PageOwner> reading;
  for (const auto& [owner, restore] : restores_) {
    if (restore.phase == Phase::kReading) reading.push_back(owner);
  }
  for (const PageOwner owner : reading) StopReading(owner);
}

bool PageTier::Turn() {
  woken_ = false;
  const auto restores = std::ssize(restores_);
  // Each part runs by itself, so that one that finds no memory does not stop the others. The next
  // turn does what was left undone, and a restore that lacks one of its pages becomes overdue.
  const auto try_to = [&](const auto& part) {
    const auto run = [&] {
      part();
      return absl::OkStatus();
    };
    Guarded(run, NoMemory).IgnoreError();
  };
  std::vector<PageMover::Done> all;
  try_to([&] { all = mover_->TakeDone(); });
  for (const PageMover::Done& done : all) {
    try_to([&] {
      if (done.read) {
        TakeRead(done);
      } else {
        TakeWritten(done);
      }
    });
  }
  try_to([&] { CarryOn(); });
  return std::ssize(restores_) < restores;
}

void PageTier::CarryOn() {
  if (mover_->OldestJob() > most_job_seconds_) {
    store_.TurnOff(absl::UnavailableError(
        absl::StrCat("the disk has not answered for more than ", most_job_seconds_, " s")));
  }
  EndOverdue();
  if (store_.on()) {
    StartWrites();
  } else {
    StopCarrying();
  }
}

int64_t PageTier::bytes() const {
  int64_t bytes = store_.stats().pages * DiskStore::kBytesPerPage + mover_->buffer_bytes();
  const auto mark = static_cast<int64_t>(sizeof(Leaving) + 200 + limits_.page_tokens * 4);
  bytes += std::ssize(leaving_) * mark;
  bytes += std::ssize(writes_) * 2 * mark;  // the mover has marks of its own
  for (const auto& [id, state] : offered_) bytes += std::ssize(state.chain) * 32 + 200;
  for (const auto& [owner, restore] : restores_) {
    bytes += std::ssize(restore.beginning.marks) * 2 * mark +
             std::ssize(restore.tokens) * static_cast<int64_t>(sizeof(int32_t));
  }
  bytes += std::ssize(standings_) * static_cast<int64_t>(sizeof(StandingState) + 64);
  return bytes + std::ssize(arriving_) * static_cast<int64_t>(sizeof(Arriving) + 64);
}

}  // namespace annulus
