#ifndef ANNULUS_ENGINE_COORDINATOR_ADMISSION_PAGE_GROWTH_H_
#define ANNULUS_ENGINE_COORDINATOR_ADMISSION_PAGE_GROWTH_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/coordinator/admission/loss_reserve.h"
#include "engine/coordinator/admission/page_needs.h"
#include "engine/coordinator/coordinator_options.h"
#include "engine/coordinator/ledger.h"
#include "engine/coordinator/serving.h"
#include "engine/memory/prefix_index.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/request/request.h"
#include "engine/scheduler/growth.h"

namespace annulus {

// Gives pages to running requests as their answers grow, and has requests give up their pages for
// others (preemption). Only requests for which PageNeeds::ReservesExpected grow. Used by the
// coordinator's thread alone.
class PageGrowth final : public GrowthHost {
 public:
  // What the growth works with. All of it must outlive the object.
  struct Parts {
    const CoordinatorOptions& options;
    Ledger& ledger;
    Serving& serving;
    const PageNeeds& needs;
    EngineMetrics& metrics;
    // Called for each request that is set back, while it still has its sequence.
    std::function<void(const Request&)> on_set_back;
  };
  explicit PageGrowth(Parts parts) : use_(std::move(parts)) {}

  // Gives pages to the requests that need them before their next rows, and preempts others for
  // them. Call when the ranks have no step, before requests that wait get any pages.
  void GrowRunning(SteadyTime now);
  // Whether one found too few at the last call of GrowRunning. No request must begin then.
  bool lacks_pages() const { return lacks_pages_; }

  // Whether every request that has begun, and may still have to grow, fits if it runs alone beside
  // all pins and a new pin of these pages, and whether room for the loss of ranks is kept.
  // RESOURCE_EXHAUSTED with a retry hint and kLimitPayload "pinned". Counts pages that both use
  // twice.
  absl::Status CheckRoomBeside(const PrefixIndex::Hit& pin) const;

  // Takes what the answer is now expected to need; if there is less, a single page.
  bool Grow(SequenceId id) override;
  bool Helps(SequenceId victim, SequenceId id) override;
  // Sets the victim back for others. Throws if memory runs out, and changes nothing.
  void Preempt(SequenceId victim) override;

  // Has a running request give up its pages and wait again; it goes on with the same answer. What
  // it has computed, up to the first page that ranks have lost, stays as a cached prefix as long as
  // nobody needs the room, and goes to the tier, if there is one: when it goes on, it reads back
  // what is read faster than computed (RestoreWaits). Throws if memory runs out, and changes
  // nothing.
  void SetBack(Request& request);

 private:
  int64_t OnePageMore(const Request& request) const;
  // [ring index] What the request lacks for its first `tokens` positions.
  std::vector<int32_t> PagesToGrowTo(const Request& request, int64_t tokens) const;
  // Takes the pages for the request's first `tokens` positions, which are whole pages. Frees cached
  // prefixes for that, and pages that are held only to be written if it may. False: there are too
  // few.
  bool GrowTo(Request& request, int64_t tokens, bool let_go_of_writes);
  absl::Status NoRoomToPin(absl::string_view why) const;
  // Whether the victim alone holds a page of the rank.
  bool Frees(SequenceId victim, int32_t rank) const;

  const Parts use_;
  bool lacks_pages_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_ADMISSION_PAGE_GROWTH_H_
