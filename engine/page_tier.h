#ifndef ANNULUS_ENGINE_PAGE_TIER_H_
#define ANNULUS_ENGINE_PAGE_TIER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/metrics/engine_metrics.h"
#include "engine/prefix_reuse.h"
#include "engine/request.h"
#include "engine/runner/rank_set.h"
#include "engine/tiers/page_mover.h"

namespace annulus {

// Of EngineOptions::kv_disk; null where that is empty. `on_host`: whether pages are in the host's
// memory. INVALID_ARGUMENT, UNIMPLEMENTED or what DiskStore::Open gives.
absl::StatusOr<std::unique_ptr<DiskStore>> OpenDisk(const EngineOptions& options, bool on_host);

void ShowDisk(const DiskStore& store, TierMetrics& metrics);

// Beginnings of prompts that a store below the ranks' memory keeps: complete pages go there in the
// background, and come back for a request whose prompt begins with them. What has come back is a
// cached prefix like any other. The store's threads do the carrying: no call here waits for a disk.
//
// Pages that are being carried are held in the book by owners of the tier's own; few are at a time.
// Used by the coordinator's thread alone.
class PageTier {
 public:
  // `identity`: of keys and values, as PrefixReuse takes it. `wake` has the coordinator call Turn;
  // any thread calls it. All references outlive the tier.
  PageTier(DiskStore& store, const std::string& identity, const PlanLimits& limits,
           const RankSet& ranks, PageBook& book, PrefixReuse& prefixes, TierMetrics& metrics,
           std::function<void()> wake);
  // Waits for the carrying under way.
  ~PageTier();
  PageTier(const PageTier&) = delete;
  PageTier& operator=(const PageTier&) = delete;

  // ---- there

  // After a step and PrefixReuse::Keep, which gave `checkpoints`: the prompt's pages that are
  // complete, and known, are to leave. Without windows that is every chunk's.
  void Offer(const Sequence& sequence, Request& request, const std::vector<int32_t>& checkpoints);

  // ---- and back

  // What the store has of a prompt's beginning, without the prompt's last token.
  struct Beginning {
    int32_t tokens = 0;
    std::optional<AttentionAssignment> policy;  // absent: dense
    int64_t rope_length = 0;
    std::vector<PageMark> marks;  // [page], of group 0
  };
  // `policy`: as PrefixReuse::Find takes it.
  Beginning Find(const RequestSpec& spec, const AttentionAssignment* policy, int64_t rope) const;

  // Seconds until so many tokens would be there; 0: not known yet.
  double SecondsFor(int32_t tokens) const;

  enum class Standing { kUnknown, kWanting, kComing, kSettled };
  // Of a request that waits: whether its pages were asked for. Coming ones that have not moved for
  // a while count as settled. Wanting: the store has them, and there was no place.
  Standing StandingOf(RequestId id) const;
  void Settle(RequestId id) { standings_[id].settled = true; }
  void Want(RequestId id) { standings_[id].wants = true; }
  // Whether pages of windows come back too: then a beginning comes back whole.
  bool has_windows() const;

  // Whether another prefix can be asked for now; if not, whether those before it move.
  bool has_place() const { return std::ssize(restores_) < kMostRestores; }
  bool moves() const;

  // Asks for the pages of `beginning` behind `from`'s, which `owner` holds already; null: for all.
  // There is room for them on `ring`. The prefix becomes known when they are there.
  PageOwner NewOwner() { return next_owner_++; }
  void Begin(RequestId id, const TenantId& tenant, const std::vector<int32_t>& prompt,
             Beginning beginning, const PrefixIndex::Hit* from, std::vector<int32_t> ring,
             PageOwner owner);

  // Of `cached` tokens that an admitted request reuses, those that came back for it.
  int64_t Restored(RequestId id, int64_t cached) const;
  void Forget(RequestId id);

  // Takes in what was carried and hands out more. True: a prefix has come, or no page is held any
  // more, so that others may find room.
  bool Turn();

  // Bytes of the heap for bookkeeping.
  int64_t bytes() const;

 private:
  static constexpr int64_t kMostRestores = 2;

  // Of a running request: how far its prompt was offered.
  struct Offered {
    bool never = false;
    int32_t tokens = 0;
    int64_t use = 0;
    PageMark last;                   // of the last page
    std::vector<ContentHash> chain;  // [page]
  };
  struct Leaving {
    PageMark mark;
    PageId page;
    uint32_t generation = 0;
    ContentHash hash{};  // in the book
    TenantId tenant;
    int64_t use = 0;
  };
  struct Restore {
    RequestId request = 0;
    TenantId tenant;
    Beginning beginning;
    std::vector<int32_t> tokens;
    std::vector<int32_t> ring;
    PrefixPages pages;  // [group], ascending
    int32_t from = 0;
    int32_t good_to = 0;  // no page below is missing
    bool whole = true;    // no page is missing
    int64_t left = 0;
    std::optional<double> coverage;
    SteadyTime begun;
    SteadyTime moved;
  };
  struct Arriving {
    PageOwner restore = 0;
    int32_t first_position = 0;
  };
  struct StandingState {
    bool wants = false;
    bool settled = false;
    int32_t from = 0;
    int32_t to = 0;
  };
  struct KeyHash {
    size_t operator()(const PageKey& key) const;
  };

  PageMark MarkFor(const TenantId& tenant, const AttentionAssignment* policy, int64_t rope) const;
  bool HasPage(const ContentHash& chain, bool windows) const;
  int32_t LengthWithWindows(const std::vector<PageMark>& marks) const;
  void OfferPages(const Sequence& sequence, const Request& request, int32_t length, Offered& state);
  void OfferPage(const Sequence& sequence, const Request& request, int group, PageMark mark,
                 int64_t use);
  void StartWrites();
  void StartRead(PageOwner owner, Restore& restore, int group, int32_t first);
  void TakeWritten(const PageMover::Done& done);
  void TakeRead(const PageMover::Done& done);
  void EndRestore(PageOwner owner);
  PagePieces PiecesOf(PageId id) const;
  double page_bytes() const { return static_cast<double>(page_bytes_); }

  DiskStore& store_;
  const ContentHash identity_;
  const PlanLimits limits_;
  const RankSet& ranks_;
  PageBook& book_;
  PrefixReuse& prefixes_;
  TierMetrics& metrics_;
  const size_t page_bytes_;
  const int64_t most_writes_;
  const int64_t most_leaving_;

  PageOwner next_owner_ = PageOwner{1} << 63;  // no request's
  std::map<RequestId, Offered> offered_;
  std::deque<Leaving> leaving_;
  std::unordered_set<PageKey, KeyHash> leaving_keys_;  // being written too
  std::unordered_map<PageOwner, PageKey> writes_;
  std::map<PageOwner, Restore> restores_;
  std::unordered_map<uint64_t, Arriving> arriving_;  // by ticket
  std::map<RequestId, StandingState> standings_;
  double bytes_per_second_ = 0;
  std::atomic<bool> woken_{false};
  std::unique_ptr<PageMover> mover_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGE_TIER_H_
