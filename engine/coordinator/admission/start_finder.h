#ifndef ANNULUS_ENGINE_COORDINATOR_ADMISSION_START_FINDER_H_
#define ANNULUS_ENGINE_COORDINATOR_ADMISSION_START_FINDER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/coordinator/admission/loss_reserve.h"
#include "engine/coordinator/admission/page_needs.h"
#include "engine/coordinator/admission/room_kept.h"
#include "engine/coordinator/admission/tenant_quota.h"
#include "engine/coordinator/coordinator_options.h"
#include "engine/coordinator/ledger.h"
#include "engine/memory/prefix_index.h"
#include "engine/pages/prefix_reuse.h"
#include "engine/request/request.h"
#include "engine/scheduler/placement.h"

namespace annulus {

// How a request begins: its ring, and the cached pages that it reuses.
struct Start {
  RingChoice choice;
  std::optional<PrefixIndex::Hit> hit;  // absent: nothing is reused
  int32_t cached = 0;                   // tokens of `hit`
};

// Finds how requests can begin, and makes room for them. It never takes the room that is gathered
// for a large request (see Admission): `large` below is that request, or null; nor the room that is
// kept for the loss of ranks (LossReserve). Used by the coordinator's thread alone.
class StartFinder {
 public:
  // The references must outlive the object.
  StartFinder(const CoordinatorOptions& options, Ledger& ledger, const PageNeeds& needs,
              TenantQuota& quota)
      : options_(options),
        ledger_(ledger),
        needs_(needs),
        quota_(quota),
        reserve_(options, ledger, needs) {}

  // Call before each pass over waiting requests, and before each question: see LossReserve.
  void BeginPass() { reserve_.BeginPass(); }

  // Finds a start for a waiting request: on the ring of one of its cached beginnings `found`, or
  // with nothing cached on the rank that it should join or on a fresh ring. Takes the first that
  // fits, in the order of Candidates. The request's owner is then open in the book and holds the
  // hit's pages, and the choice's pages are free; otherwise it is not open. Nothing: there is no
  // room. RESOURCE_EXHAUSTED: its tenant may not have so many pages now.
  absl::StatusOr<std::optional<Start>> Find(const Request& request, const PageDemand& demand,
                                            std::vector<PrefixReuse::Found> found,
                                            const Request* large);

  // How a request may begin: with the cached beginning `from`, if not null; on `ring`, or, if that
  // is empty, on any.
  struct Candidate {
    PrefixReuse::Found* from = nullptr;
    std::vector<int32_t> ring;
  };
  // In the order to try them: by what the busiest rank would still have to do. So a hit is computed
  // by the ranks that hold it unless they are much busier or fuller than others, or too few for
  // what is left. Points into `found`.
  std::vector<Candidate> Candidates(const PageDemand& demand,
                                    std::vector<PrefixReuse::Found>& found) const;
  // What to restore the first `tokens` tokens of a request to, in the order to try: `before`,
  // memory's part of them, on whose ring the rest is put, or null: all to a fresh ring.
  std::vector<const PrefixReuse::Found*> RestoreTargets(
      const PageDemand& demand, int32_t tokens,
      const std::optional<PrefixReuse::Found>& before) const;

  // Whether to begin with the first `tokens` tokens of a request on the only ring to which they can
  // be restored, rather than to compute all on a fresh one.
  bool IsWorthRing(const PageDemand& demand, int32_t tokens,
                   const std::vector<int32_t>& ring) const;

  // Makes the owner hold the pages of the hit, and counts them in its demand.
  void HoldHit(const PrefixIndex::Hit& hit, PageOwner owner, PageDemand& demand);

  // Finds a ring with enough free pages. Frees cached prefixes if that gives one: first the
  // tenant's own, as far as its quota requires, then the oldest; never those that an owner holds.
  // If that gives none, or `accepts` refuses the ring, frees nothing. `fixed`: as for ChooseRing.
  std::optional<RingChoice> MakeRoom(const RequestSpec& spec, const PageDemand& demand,
                                     const std::vector<int32_t>& fixed,
                                     const std::function<bool(const RingChoice&)>& accepts);
  // Whether `large`, if not null, will still fit if another request takes the choice and the hit's
  // pages; null: no hit.
  bool LeavesRoom(const Request* large, const RingChoice& choice, const PrefixIndex::Hit* hit);

  // Whether room is kept for the loss of ranks if a request of this demand begins with the hit;
  // null: with nothing cached.
  bool KeepsReserve(const PageDemand& demand, const PrefixIndex::Hit* hit, const Request* large);
  // Call when a request of this demand begins.
  void NotePlaced(const PageDemand& demand, const Start& start);

  // Call when a request has begun while room is gathered, and when it has left or was preempted.
  void NoteBegun(RequestId id, const Start& start);
  void Forget(RequestId id) { room_kept_.Forget(id); }

  // [rank] For ChooseRing: how many sequences run, or empty if ranks share the machine, where an
  // idle rank's processors compute for the others.
  std::vector<int> Load() const;

 private:
  const CoordinatorOptions& options_;
  Ledger& ledger_;
  const PageNeeds& needs_;
  TenantQuota& quota_;
  RoomKept room_kept_;
  LossReserve reserve_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_ADMISSION_START_FINDER_H_
