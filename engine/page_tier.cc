#include "engine/page_tier.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

// A read that takes longer says that the disk fails.
constexpr double kMostReadSeconds = 30;
// A request waits for its pages as long as some arrive that often.
constexpr double kMostStillSeconds = 5;
// So that a burst of pages leaves the disk to others too.
constexpr double kWriteBytesPerSecond = 512 << 20;

SteadyTime ClockNow() { return std::chrono::steady_clock::now(); }

size_t StoredBytes(const KvGeometry& geometry) {
  return geometry.layer_page_bytes * static_cast<size_t>(geometry.layers_per_page);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DiskStore>> OpenDisk(const EngineOptions& options, bool on_host) {
  constexpr int64_t kLeast = 1 << 20;
  if (options.kv_disk.empty()) return nullptr;
  if (options.kv_disk_bytes < kLeast) {
    return absl::InvalidArgumentError(absl::StrCat("kv-disk-size is ", options.kv_disk_bytes,
                                                   " bytes; with kv-disk give what ",
                                                   "its files may take, at least ", kLeast));
  }
  if (!on_host) {
    return absl::UnimplementedError(
        "kv-disk takes pages from the host's memory; those of this device are not there; leave it "
        "out, or use --device cpu");
  }
  absl::StatusOr<std::unique_ptr<DiskStore>> store =
      DiskStore::Open(options.kv_disk, options.kv_disk_bytes);
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
                .io_errors = stats.io_errors});
}

PageTier::PageTier(DiskStore& store, const std::string& identity, const PlanLimits& limits,
                   const RankSet& ranks, PageBook& book, PrefixReuse& prefixes,
                   TierMetrics& metrics, std::function<void()> wake)
    : store_(store),
      identity_(HashOf(identity)),
      limits_(limits),
      ranks_(ranks),
      book_(book),
      prefixes_(prefixes),
      metrics_(metrics),
      page_bytes_(StoredBytes(ranks.pool(0).geometry())),
      // Two chunks of a prompt.
      most_writes_(std::max<int64_t>(16, 2 * int64_t{limits.ranks} * limits.prefill_rows_per_rank /
                                             limits.page_tokens *
                                             std::ssize(limits.group_windows))),
      most_leaving_([&] {
        int64_t pages = 0;
        for (int rank = 0; rank < book.ranks(); ++rank) pages += book.counts(rank).total();
        return pages;
      }()) {
  PageMover::Options options;
  options.page_bytes = page_bytes_;
  options.write_bytes_per_second = kWriteBytesPerSecond;
  // One word is enough until the coordinator has heard it: its queue has few places.
  options.wake = [this, wake = std::move(wake)] {
    if (!woken_.exchange(true)) wake();
  };
  mover_ = std::make_unique<PageMover>(store_, std::move(options));
}

PageTier::~PageTier() {
  mover_.reset();
  for (const auto& [owner, key] : writes_) book_.Release(owner);
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
  const KvPool& pool = ranks_.pool(id.rank);
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

namespace {

// The mark of the page behind `mark`'s.
void Advance(std::span<const int32_t> tokens, PageMark& mark) {
  mark.parent = mark.chain;
  mark.chain = ChainOf(mark.parent, tokens);
  mark.first_position += static_cast<int32_t>(tokens.size());
  mark.tokens.assign(tokens.begin(), tokens.end());
}

}  // namespace

// ---- there

void PageTier::Offer(const Sequence& sequence, Request& request,
                     const std::vector<int32_t>& checkpoints) {
  if (!store_.on()) return;
  const auto [found, is_new] = offered_.try_emplace(request.id());
  Offered& state = found->second;
  if (is_new) {
    // What a policy computes behind pages that were not computed under it is nobody's else.
    state.never = sequence.attention != nullptr && request.cached_tokens() > 0;
    state.use = store_.NextUse();
    state.last = MarkFor(request.spec().tenant, sequence.attention.get(), sequence.rope_length);
  }
  if (state.never) return;
  if (has_windows()) {
    for (const int32_t length : checkpoints) OfferPages(sequence, request, length, state);
    return;
  }
  const int32_t length = std::min(sequence.computed, sequence.prompt_length) / limits_.page_tokens *
                         limits_.page_tokens;
  if (length <= state.tokens) return;
  if (length > request.cached_tokens()) prefixes_.KeepUpTo(length, sequence, request);
  OfferPages(sequence, request, length, state);
}

void PageTier::OfferPages(const Sequence& sequence, const Request& request, int32_t length,
                          Offered& state) {
  const std::span<const int32_t> prompt(request.spec().prompt);
  const int32_t page = limits_.page_tokens;
  for (; state.tokens < length; state.tokens += page) {
    Advance(prompt.subspan(state.tokens, page), state.last);
    state.chain.push_back(state.last.chain);
    for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
      if (limits_.group_windows[g] > 0) continue;
      OfferPage(sequence, request, static_cast<int>(g), state.last, state.use);
    }
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
      OfferPage(sequence, request, static_cast<int>(g), std::move(mark), state.use);
    }
  }
}

void PageTier::OfferPage(const Sequence& sequence, const Request& request, int group, PageMark mark,
                         int64_t use) {
  mark.group = group;
  const PageKey key = KeyOf(mark);
  if (store_.Has(key)) {
    store_.Touch(key, use);
    return;
  }
  if (std::ssize(leaving_) >= most_leaving_ || leaving_keys_.contains(key)) return;
  const std::vector<PageEntry>& entries = sequence.groups[group].entries;
  const auto entry =
      std::lower_bound(entries.begin(), entries.end(), mark.first_position,
                       [](const PageEntry& e, int32_t first) { return e.first_position < first; });
  if (entry == entries.end() || entry->first_position != mark.first_position) return;
  const PageId id{entry->rank, entry->page};
  const PageBook::Page page = book_.page(id);
  if (page.state != PageState::kCached) return;
  mark.coverage = page.coverage;
  leaving_keys_.insert(key);
  leaving_.push_back({std::move(mark), id, page.generation, page.hash, request.spec().tenant, use});
}

void PageTier::StartWrites() {
  while (!leaving_.empty() && std::ssize(writes_) < most_writes_) {
    Leaving next = std::move(leaving_.front());
    leaving_.pop_front();
    const PageKey key = KeyOf(next.mark);
    const PageBook::Page page = book_.page(next.page);
    const bool same = page.state == PageState::kCached && page.generation == next.generation &&
                      page.hash == next.hash;
    if (!same || !store_.on()) {
      leaving_keys_.erase(key);
      continue;
    }
    const PageOwner owner = next_owner_++;
    book_.Open(owner, next.tenant);
    book_.Hold(owner, next.page);
    writes_[owner] = key;
    mover_->Write(owner, std::move(next.mark), PiecesOf(next.page), next.use);
  }
}

void PageTier::TakeWritten(const PageMover::Done& done) {
  const auto found = writes_.find(done.ticket);
  ANNULUS_CHECK(found != writes_.end()) << "a write that nobody asked for: " << done.ticket;
  leaving_keys_.erase(found->second);
  writes_.erase(found);
  book_.Release(done.ticket);
  metrics_.write_seconds.Add(done.seconds);
  if (done.status.ok()) metrics_.written_bytes.Add(page_bytes());
}

// ---- and back

bool PageTier::HasPage(const ContentHash& chain, bool windows) const {
  for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
    if ((limits_.group_windows[g] > 0) != windows) continue;
    if (!store_.Has({chain, static_cast<int>(g)})) return false;
  }
  return true;
}

// The longest of the beginnings for whose end all windows' pages are there.
int32_t PageTier::LengthWithWindows(const std::vector<PageMark>& marks) const {
  const int32_t page = limits_.page_tokens;
  const auto has_all = [&](int32_t length) {
    for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
      if (limits_.group_windows[g] == 0) continue;
      const int32_t oldest = std::max(0, length - limits_.group_windows[g] + 1) / page;
      for (int32_t index = length / page - 1; index >= oldest; --index) {
        if (!store_.Has({marks[index].chain, static_cast<int>(g)})) return false;
      }
    }
    return true;
  };
  for (auto pages = static_cast<int32_t>(marks.size()); pages > 0; --pages) {
    if (HasPage(marks[pages - 1].chain, true) && has_all(pages * page)) return pages * page;
  }
  return 0;
}

PageTier::Beginning PageTier::Find(const RequestSpec& spec, const AttentionAssignment* policy,
                                   int64_t rope) const {
  const std::span<const int32_t> known = std::span(spec.prompt).first(spec.prompt.size() - 1);
  const auto page = static_cast<size_t>(limits_.page_tokens);
  const auto find = [&](const AttentionAssignment* under) {
    Beginning beginning;
    if (under != nullptr) beginning.policy = *under;
    beginning.rope_length = rope;
    PageMark mark = MarkFor(spec.tenant, under, rope);
    for (size_t first = 0; first + page <= known.size(); first += page) {
      Advance(known.subspan(first, page), mark);
      if (!HasPage(mark.chain, false)) break;
      beginning.marks.push_back(mark);
    }
    beginning.tokens = has_windows() ? LengthWithWindows(beginning.marks)
                                     : static_cast<int32_t>(beginning.marks.size() * page);
    beginning.marks.resize(beginning.tokens / page);
    return beginning;
  };
  if (!store_.on()) return {};
  Beginning dense = find(nullptr);
  if (policy == nullptr) return dense;
  Beginning own = find(policy);
  return own.tokens > dense.tokens ? own : dense;
}

double PageTier::SecondsFor(int32_t tokens) const {
  if (bytes_per_second_ == 0) return 0;
  return page_bytes() * static_cast<double>(std::ssize(limits_.group_windows)) * tokens /
         limits_.page_tokens / bytes_per_second_;
}

bool PageTier::moves() const {
  const SteadyTime now = ClockNow();
  return std::any_of(restores_.begin(), restores_.end(), [&](const auto& entry) {
    return SecondsBetween(entry.second.moved, now) < kMostStillSeconds;
  });
}

PageTier::Standing PageTier::StandingOf(RequestId id) const {
  const auto found = standings_.find(id);
  if (found == standings_.end()) return Standing::kUnknown;
  if (found->second.settled) return Standing::kSettled;
  if (found->second.wants) return Standing::kWanting;
  for (const auto& [owner, restore] : restores_) {
    if (restore.request != id) continue;
    return moves() ? Standing::kComing : Standing::kSettled;
  }
  return Standing::kSettled;
}

void PageTier::Begin(RequestId id, const TenantId& tenant, const std::vector<int32_t>& prompt,
                     Beginning beginning, const PrefixIndex::Hit* from, std::vector<int32_t> ring,
                     PageOwner owner) {
  Restore& restore = restores_[owner];
  restore.request = id;
  restore.tenant = tenant;
  restore.tokens.assign(prompt.begin(), prompt.begin() + beginning.tokens);
  restore.ring = std::move(ring);
  restore.from = from == nullptr ? 0 : from->tokens;
  restore.good_to = beginning.tokens;
  restore.begun = restore.moved = ClockNow();
  restore.beginning = std::move(beginning);
  restore.pages.resize(limits_.group_windows.size());
  standings_[id] = {};
  const int32_t page = limits_.page_tokens;
  const int32_t to = restore.good_to;
  for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
    int32_t first = restore.from;
    if (const int32_t window = limits_.group_windows[g]; window > 0) {
      first = std::max(0, to - window + 1) / page * page;
    } else if (from != nullptr) {
      restore.pages[g] = from->groups[g];
    }
    for (; first < to; first += page) StartRead(owner, restore, static_cast<int>(g), first);
  }
  if (restore.left == 0) EndRestore(owner);
}

void PageTier::StartRead(PageOwner owner, Restore& restore, int group, int32_t first) {
  const int index = PlaceOnRing(first, limits_.page_tokens, static_cast<int>(restore.ring.size()),
                                limits_.shards);
  if (book_.free_count(restore.ring[index]) == 0) {
    restore.whole = false;
    restore.good_to = std::min(restore.good_to, first);
    return;
  }
  const PageId id = book_.Load(owner, restore.ring[index], group);
  restore.pages[group].push_back({first, id});
  ++restore.left;
  const uint64_t ticket = next_owner_++;
  arriving_[ticket] = {owner, first};
  PageMark mark = restore.beginning.marks[first / limits_.page_tokens];
  mark.group = group;
  mover_->Read(ticket, std::move(mark), PiecesOf(id), store_.NextUse());
}

void PageTier::TakeRead(const PageMover::Done& done) {
  const auto found = arriving_.find(done.ticket);
  ANNULUS_CHECK(found != arriving_.end()) << "a read that nobody asked for: " << done.ticket;
  const Arriving arriving = found->second;
  arriving_.erase(found);
  Restore& restore = restores_.at(arriving.restore);
  restore.moved = ClockNow();
  metrics_.read_seconds.Add(done.seconds);
  if (done.status.ok()) {
    metrics_.read_bytes.Add(page_bytes());
    if (done.coverage.has_value()) {
      restore.coverage = std::min(restore.coverage.value_or(1), *done.coverage);
    }
  } else {
    restore.whole = false;
    restore.good_to = std::min(restore.good_to, arriving.first_position);
  }
  if (--restore.left == 0) EndRestore(arriving.restore);
}

// What is there up to the first page that is missing becomes known; with windows all or nothing.
void PageTier::EndRestore(PageOwner owner) {
  const Restore restore = std::move(restores_.extract(owner).mapped());
  int32_t to = restore.good_to;
  if (to <= restore.from || (has_windows() && !restore.whole)) to = restore.from;
  if (to > restore.from) {
    const auto page_at = [&](int group, int32_t first) {
      const std::vector<PrefixPage>& pages = restore.pages[group];
      const auto page = std::lower_bound(
          pages.begin(), pages.end(), first,
          [](const PrefixPage& each, int32_t at) { return each.first_position < at; });
      ANNULUS_CHECK(page != pages.end() && page->first_position == first) << "no page at " << first;
      return page->id;
    };
    const std::optional<AttentionAssignment>& policy = restore.beginning.policy;
    prefixes_.KeepLoaded({restore.tenant, policy.has_value() ? &*policy : nullptr,
                          restore.beginning.rope_length, restore.ring},
                         std::span(restore.tokens).first(to), restore.coverage, page_at);
    const double seconds = SecondsBetween(restore.begun, ClockNow());
    const double bytes = page_bytes() * (to - restore.from) / limits_.page_tokens *
                         static_cast<double>(std::ssize(limits_.group_windows));
    const double rate = bytes / std::max(seconds, 1e-6);
    bytes_per_second_ = bytes_per_second_ == 0 ? rate : 0.7 * bytes_per_second_ + 0.3 * rate;
    metrics_.restores.Increment();
    metrics_.hits.Add(to - restore.from);
  }
  book_.Release(owner);
  const auto standing = standings_.find(restore.request);
  if (standing != standings_.end()) standing->second = {false, true, restore.from, to};
}

int64_t PageTier::Restored(RequestId id, int64_t cached) const {
  const auto found = standings_.find(id);
  if (found == standings_.end()) return 0;
  return std::max<int64_t>(0, std::min<int64_t>(cached, found->second.to) - found->second.from);
}

void PageTier::Forget(RequestId id) {
  standings_.erase(id);
  offered_.erase(id);
}

bool PageTier::Turn() {
  woken_ = false;
  const bool wrote = !writes_.empty();
  const auto restores = std::ssize(restores_);
  for (const PageMover::Done& done : mover_->TakeDone()) {
    if (done.read) {
      TakeRead(done);
    } else {
      TakeWritten(done);
    }
  }
  if (mover_->OldestRead() > kMostReadSeconds) {
    store_.TurnOff(absl::UnavailableError(
        absl::StrCat("a read took more than ", kMostReadSeconds, " s: the disk does not answer")));
  }
  StartWrites();
  return std::ssize(restores_) < restores || (wrote && writes_.empty());
}

int64_t PageTier::bytes() const {
  constexpr int kReaders = 2;  // of the mover
  int64_t pages = store_.stats().pages * DiskStore::kBytesPerPage +
                  kReaders * static_cast<int64_t>(page_bytes_);
  const auto mark = static_cast<int64_t>(sizeof(Leaving) + 200 + limits_.page_tokens * 4);
  pages += std::ssize(leaving_) * mark;
  for (const auto& [id, state] : offered_) pages += std::ssize(state.chain) * 32;
  for (const auto& [owner, restore] : restores_) {
    pages += std::ssize(restore.beginning.marks) * 2 * mark;
  }
  return pages;
}

}  // namespace annulus
