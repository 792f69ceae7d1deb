#ifndef ANNULUS_ENGINE_COORDINATOR_LEDGER_H_
#define ANNULUS_ENGINE_COORDINATOR_LEDGER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "engine/base/clock.h"
#include "engine/coordinator/coordinator_options.h"
#include "engine/coordinator/page_keeper.h"
#include "engine/memory/page_book.h"
#include "engine/pages/page_tier.h"
#include "engine/pages/prefix_reuse.h"
#include "engine/request/request.h"
#include "engine/runner/rank_port.h"
#include "engine/state/sequence.h"

namespace annulus {

// What an engine has: its requests, the ranks' pages, and the prefixes that keep pages.
// Owns all of it and keeps it consistent when a request begins to run, waits again or leaves. It
// decides nothing: who runs, and on which pages, is decided by the classes that work on it.
//
// A request waits, then runs (it has a sequence in state().running), and then leaves. A check of
// restored pages is a request without a client that runs at once. Used by the coordinator's thread
// alone.
class Ledger {
 public:
  // `wake`: PageTier::Options::wake. The references must outlive the ledger.
  Ledger(const CoordinatorOptions& options, RankPort& ranks, const Clock& clock,
         std::function<void()> wake);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // ---- requests

  // All that wait or run, checks included.
  const Requests& requests() const { return requests_; }
  // Must be there.
  Request& request(RequestId id) { return *requests_.at(id); }
  const Request& request(RequestId id) const { return *requests_.at(id); }
  const std::deque<RequestId>& waiting() const { return waiting_; }  // in order of arrival
  EngineState& state() { return state_; }
  const EngineState& state() const { return state_; }

  // A new request, which waits. Takes it, or throws if memory runs out and changes nothing.
  void Add(std::unique_ptr<Request>& request);
  // Call before Run or RunCheck, which must not fail. Throws if memory runs out.
  void ReserveToRun() { state_.running.reserve(state_.running.size() + 1); }
  // The waiting request whose sequence this is runs now.
  void Run(std::unique_ptr<Sequence> sequence);
  // A check begins. Throws if memory runs out, and changes nothing.
  void RunCheck(std::unique_ptr<Request> request, std::unique_ptr<Sequence> sequence);
  // A running request is to be preempted: it waits, and its answer so far is part of its prompt.
  // Keeps its sequence and pages until Suspend. Throws if memory runs out, and changes nothing.
  void WaitAgain(Request& request);
  // Ends the sequence of a request for which WaitAgain was called, and releases its pages.
  void Suspend(Request& request);
  // Takes a request out, because it has ended; null if it is not there. Leave must follow.
  std::unique_ptr<Request> Take(RequestId id);
  // The request that Take returned waits or runs no more; releases its pages.
  void Leave(const Request& request);

  // ---- pages

  PageBook& book() { return book_; }
  const PageBook& book() const { return book_; }
  PrefixReuse& prefixes() { return prefixes_; }
  const PrefixReuse& prefixes() const { return prefixes_; }
  PageTier* tier() { return tier_.get(); }  // null: there is none
  const PageTier* tier() const { return tier_.get(); }

  // [rank] -1 for a rank that is not usable: a sequence must not have it on its ring even if it
  // needs no page there.
  std::vector<int32_t> FreePages() const;
  std::vector<int32_t> PagesWithoutUse() const;  // likewise, with cached pages that nobody holds
  std::vector<int> SequencesByRank() const;      // [rank] how many that run have pages there
  std::vector<int> HomesByRank() const;          // [rank] how many have their home; none parked
  // See PageTier. False without a tier.
  bool LetGoOfWrites() { return tier_ != nullptr && tier_->LetGoOfWrites(); }
  bool tier_will_free_pages() const { return tier_ != nullptr && tier_->will_free_pages(); }

  // Must outlive the last call of ForgetPages and, as `keepers`, the loop.
  void AddKeeper(PageKeeper& keeper) { keepers_.push_back(&keeper); }
  std::span<PageKeeper* const> keepers() const { return keepers_; }

  // The contents of the pages on these ranks are lost, or of all: forgets the pins and prefixes
  // that have them. Pages of ranks that nobody hosts are not taken until those are lost again, as
  // somebody does. The first one leaves to its caller what becomes of the requests that run, and
  // throws if memory runs out: the tier knows by then, and which ranks are hosted; call the other,
  // which the tier does not learn of, once none runs.
  void ForgetPages(std::span<const int32_t> ranks);
  void ForgetPages();

  // ---- pages that a step may still use

  // Says whether the ranks have a step. Pages of requests that leave meanwhile stay held, since the
  // step may use them, until ReleaseLeft.
  void set_ranks_busy(bool busy) { ranks_busy_ = busy; }
  // The sequences that left while the ranks had a step.
  std::set<SequenceId> left() const;
  bool any_left() const { return !left_.empty(); }
  // Releases the pages of those that left. Call when the ranks have no step. Returns whether there
  // were any.
  bool ReleaseLeft();

  // Heap bytes of requests, cached prefixes and the tier's bookkeeping.
  int64_t bytes() const;

 private:
  void EndSequence(const Request& request);
  void ReleasePages(SequenceId id, PageOwner owner);

  struct Left {
    SequenceId id = 0;
    PageOwner owner;
  };

  const CoordinatorOptions& options_;
  RankPort& ranks_;
  EngineState state_;
  Requests requests_;
  std::deque<RequestId> waiting_;
  PageBook book_;
  PrefixReuse prefixes_;
  std::unique_ptr<PageTier> tier_;
  std::vector<PageKeeper*> keepers_;
  bool ranks_busy_ = false;
  std::vector<Left> left_;
  // Owners of pages that a lost rank may still use. Released when the ledger goes.
  std::vector<PageOwner> lost_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_LEDGER_H_
