#include "engine/coordinator/ledger.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "engine/coordinator/admission/memory_account.h"
#include "engine/request/evidence_memory.h"

namespace annulus {

Ledger::Ledger(const CoordinatorOptions& options, RankPort& ranks, const Clock& clock,
               std::function<void()> wake)
    : options_(options),
      ranks_(ranks),
      book_(ranks.page_counts(), options.limits.group_windows, ranks.page_hooks()),
      prefixes_(options.identity, options.limits, options.ropes, book_) {
  state_.running.reserve(options.engine.max_running);  // a request that is admitted finds its place
  if (options.tiers.empty()) return;
  tier_ = std::make_unique<PageTier>(options.tiers,
                                     PageTier::Options{.identity = options.identity,
                                                       .other_identities = options.other_identities,
                                                       .verify = options.engine.kv_verify,
                                                       .comparer = options.comparer,
                                                       .wake = std::move(wake)},
                                     options.limits, ranks, clock, book_, prefixes_);
}

Ledger::~Ledger() {
  tier_.reset();
  for (const PageOwner owner : lost_) book_.Release(owner);
}

void Ledger::Add(std::unique_ptr<Request>& request) {
  Request& taken = *request;
  requests_.emplace(taken.id(), std::move(request));
  absl::Cleanup undo = [&] { requests_.extract(taken.id()).mapped().swap(request); };
  waiting_.push_back(taken.id());
  std::move(undo).Cancel();
}

void Ledger::Run(std::unique_ptr<Sequence> sequence) {
  waiting_.erase(std::find(waiting_.begin(), waiting_.end(), sequence->id));
  state_.running.push_back(std::move(sequence));
}

void Ledger::RunCheck(std::unique_ptr<Request> request, std::unique_ptr<Sequence> sequence) {
  ReserveToRun();
  requests_.emplace(sequence->id, std::move(request));
  state_.running.push_back(std::move(sequence));
}

void Ledger::WaitAgain(Request& request) {
  state_.ended.reserve(state_.ended.size() + 1);
  waiting_.push_back(request.id());
  absl::Cleanup undo = [this] { waiting_.pop_back(); };
  request.TakeAnswerBack();
  std::move(undo).Cancel();
  request.sequence()->prompt_length = request.tokens_to_read();
}

void Ledger::Suspend(Request& request) {
  EndSequence(request);
  request.Suspend();
}

std::unique_ptr<Request> Ledger::Take(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return nullptr;
  std::unique_ptr<Request> request = std::move(found->second);
  requests_.erase(found);
  return request;
}

void Ledger::Leave(const Request& request) {
  if (request.sequence() != nullptr) return EndSequence(request);
  waiting_.erase(std::find(waiting_.begin(), waiting_.end(), request.id()));
}

void Ledger::EndSequence(const Request& request) {
  const SequenceId id = request.id();
  ReleasePages(id, request.sequence()->owner);
  state_.running.erase(std::find_if(state_.running.begin(), state_.running.end(),
                                    [id](const auto& sequence) { return sequence->id == id; }));
  state_.ended.push_back(id);
}

void Ledger::ReleasePages(SequenceId id, PageOwner owner) {
  if (ranks_busy_) {
    left_.push_back({id, owner});
  } else if (ranks_.state() == RanksState::kLost) {
    lost_.push_back(owner);  // a rank that did not come back may still touch the pages
  } else {
    book_.Release(owner);
  }
}

std::set<SequenceId> Ledger::left() const {
  std::set<SequenceId> left;
  for (const Left& each : left_) left.insert(each.id);
  return left;
}

bool Ledger::ReleaseLeft() {
  if (left_.empty()) return false;
  for (const Left& each : std::exchange(left_, {})) ReleasePages(each.id, each.owner);
  return true;
}

void Ledger::ForgetPages(std::span<const int32_t> ranks) {
  // First what does not throw, and what no later call makes up for.
  for (const int32_t rank : ranks) book_.SetUsable(rank, ranks_.is_hosted(rank));
  if (tier_ != nullptr) tier_->ForgetRanks(ranks);
  for (PageKeeper* const keeper : keepers_) keeper->ForgetRanks(ranks);
  prefixes_.index().ForgetRanks(ranks);
}

void Ledger::ForgetPages() {
  for (PageKeeper* const keeper : keepers_) keeper->Clear();
  prefixes_.index().Clear();
}

std::vector<int32_t> Ledger::FreePages() const {
  std::vector<int32_t> pages;
  for (int rank = 0; rank < book_.ranks(); ++rank) {
    pages.push_back(book_.is_usable(rank) ? book_.free_count(rank) : -1);
  }
  return pages;
}

std::vector<int32_t> Ledger::PagesWithoutUse() const {
  std::vector<int32_t> pages = FreePages();
  for (int rank = 0; rank < book_.ranks(); ++rank) pages[rank] += book_.unheld_count(rank);
  return pages;
}

std::vector<int> Ledger::SequencesByRank() const {
  std::vector<int> running(ranks_.size(), 0);
  for (const auto& sequence : state_.running) {
    for (const int32_t rank : sequence->ring) ++running[rank];
  }
  return running;
}

std::vector<int> Ledger::HomesByRank() const {
  std::vector<int> homes(ranks_.size(), 0);
  for (const auto& sequence : state_.running) {
    if (!sequence->paused) ++homes[sequence->home];
  }
  return homes;
}

int64_t Ledger::bytes() const {
  int64_t bytes = prefixes_.bytes() + (tier_ == nullptr ? 0 : tier_->bytes());
  for (const RequestId id : waiting_) bytes += WaitingBytes(request(id).tokens_to_read());
  for (const auto& sequence : state_.running) {
    bytes +=
        RunningBytes(*sequence, options_.limits.page_tokens) + request(sequence->id).lookup_bytes();
    if (sequence->evidence == nullptr) continue;
    bytes += static_cast<int64_t>(
        NeedForEvidence(options_.evidence_shape, sequence->evidence->ranges).of_request());
  }
  return bytes;
}

}  // namespace annulus
