#ifndef ANNULUS_ENGINE_COORDINATOR_ADMISSION_REQUEST_STARTER_H_
#define ANNULUS_ENGINE_COORDINATOR_ADMISSION_REQUEST_STARTER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/coordinator/admission/page_needs.h"
#include "engine/coordinator/admission/sequence_maker.h"
#include "engine/coordinator/admission/start_finder.h"
#include "engine/coordinator/coordinator_options.h"
#include "engine/coordinator/ledger.h"
#include "engine/coordinator/planning/policy_chooser.h"
#include "engine/grammar/grammar_caches.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/request/request.h"
#include "engine/scheduler/admission.h"

namespace annulus {

// Begins waiting requests, for the first time or again after a preemption. A request takes every
// page that it can ever need, so that it cannot run out of pages later; or those that it is
// expected to need (PageNeeds). Tokens that an earlier prompt left cached are shared instead of
// computed, but the last token is always computed. Used by the coordinator's thread alone.
class RequestStarter {
 public:
  // What the starter works with. All of it must outlive the starter.
  struct Parts {
    const CoordinatorOptions& options;
    Ledger& ledger;
    EngineMetrics& metrics;
    PolicyChooser& policies;
    const PageNeeds& needs;
    StartFinder& finder;
    const SequenceMaker& sequences;
  };
  explicit RequestStarter(const Parts& parts)
      : use_(parts), grammars_(parts.options.tokens, OutputGuide::kCacheBytes) {}

  // Call before each pass over waiting requests.
  void BeginPass() { use_.finder.BeginPass(); }

  // Begins the request if there is room, and tells it what it begins with. `large`: see
  // StartFinder; with it, no room is kLeavesNoRoom. A request for evidence needs room in
  // CoordinatorOptions::evidence_room, too. Errors of StartFinder::Find and
  // PageNeeds::CheckFits. If an error is returned, or memory runs out, which throws, the request
  // still waits; its owner may then be open in the book.
  absl::StatusOr<AdmissionHost::Answer> TryStart(Request& request, const Request* large);

 private:
  bool HasEvidenceRoom(const Request& request, const Request* large) const;
  std::unique_ptr<Sequence> MakeSequence(const Request& request, const PageDemand& demand,
                                         const Start& start,
                                         std::shared_ptr<const AttentionAssignment> attention);
  void ReportBeginning(Request& request, const Sequence& sequence, int32_t cached);

  const Parts use_;
  GrammarCaches grammars_;  // of the requests' guides
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_ADMISSION_REQUEST_STARTER_H_
