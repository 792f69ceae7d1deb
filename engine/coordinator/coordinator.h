#ifndef ANNULUS_ENGINE_COORDINATOR_COORDINATOR_H_
#define ANNULUS_ENGINE_COORDINATOR_COORDINATOR_H_

#include <atomic>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/coordinator/admission/admission_pass.h"
#include "engine/coordinator/admission/page_growth.h"
#include "engine/coordinator/admission/page_needs.h"
#include "engine/coordinator/admission/prefix_waits.h"
#include "engine/coordinator/admission/request_starter.h"
#include "engine/coordinator/admission/restore_waits.h"
#include "engine/coordinator/admission/sequence_maker.h"
#include "engine/coordinator/admission/start_finder.h"
#include "engine/coordinator/admission/tenant_quota.h"
#include "engine/coordinator/command_queue.h"
#include "engine/coordinator/coordinator_options.h"
#include "engine/coordinator/keepers.h"
#include "engine/coordinator/ledger.h"
#include "engine/coordinator/planning/plan_answers.h"
#include "engine/coordinator/planning/plan_queue.h"
#include "engine/coordinator/planning/policy_chooser.h"
#include "engine/coordinator/restore_checks.h"
#include "engine/coordinator/result_delivery.h"
#include "engine/coordinator/serving.h"
#include "engine/coordinator/snapshot_board.h"
#include "engine/coordinator/step_account.h"
#include "engine/coordinator/step_recovery.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/request/request.h"
#include "engine/runner/rank_port.h"
#include "engine/scheduler/scheduler.h"

namespace annulus {

// The engine's loop: one thread that takes commands, admits requests, plans steps, has the ranks
// run them, and passes results to the requests' sinks. What there is stands in the Ledger; what
// becomes of it is decided by the classes over it, each in its own file. Only this thread touches
// them, except where they say that they are thread-safe.
//
// A running request can be parked, which pauses it and keeps its pages, while its reader is slow.
// Or it can be set back: it gives up its pages and waits again, because others need them
// (preemption) or because a step failed (StepRecovery).
//
// If memory runs out while the loop works for a request, that request ends with an error, or the
// work is done later: see Guarded and TryTo.
class Coordinator {
 public:
  // Starts the loop. All references, and what the pointers in `options` point to, must outlive the
  // coordinator. All times in requests must be times of `clock`. `end_of_text_ids`: tokens that end
  // an answer. `vocabulary`: the number of tokens that logits are computed for.
  Coordinator(const CoordinatorOptions& options, RankPort& ranks, EngineMetrics& metrics,
              const Clock& clock, std::vector<int32_t> end_of_text_ids, int32_t vocabulary);
  // Cancels all requests and joins the thread. A running step is waited for.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // The public methods below are thread-safe.

  // Queues a request. After OK, its sink receives exactly one OnDone. RESOURCE_EXHAUSTED with a
  // retry hint if max_waiting requests wait already, or this owner's share of them.
  absl::Status Submit(std::unique_ptr<Request> request);
  // The error with which Submit would refuse a request of this owner (ShareName::owner) now,
  // counted as Submit does; OK if there is room.
  absl::Status CheckQueue(const std::string& owner) { return commands_.Check(owner); }
  // Ends the request with CANCELLED after the running step. No-op if it has ended or is unknown.
  void Cancel(RequestId id) { commands_.Cancel(id); }

  // Ordered here and carried out by the loop before its next step: see DocumentKeeper.
  void ForgetDocument(DocumentTag document) { keepers_.documents.Forget(document); }
  void UnpinDocument(DocumentTag document) { keepers_.documents.Unpin(document); }
  KeptDocument FindDocument(DocumentTag document) const {
    return keepers_.documents.Find(document);
  }

  // Returns what the request would take if it were submitted now: see Engine::Plan. Requires that
  // Engine::Validate accepts it. The cached prefix that it finds counts as used. Errors: see
  // PlanQueue::Ask.
  absl::StatusOr<RequestPlan> Plan(RequestSpec spec, const CancelFlag& cancel);

  using Snapshot = EngineSnapshot;
  Snapshot snapshot() const { return board_.Last(); }

 private:
  // Functions without a comment here have one at their definition. The headings name the files.

  // ---- coordinator.cc: the loop; how requests come and end
  void Loop();
  void TakeCommands();
  void Enqueue(std::unique_ptr<Request> request);
  void AdmitWaiting();
  SteadyTime NextWake() const;
  void ExpireDeadlines();
  void CheckReaders();
  void Finish(RequestId id, FinishReason reason, absl::Status status);
  void FinishAll(FinishReason reason, const absl::Status& status, bool waiting_too);
  void Report(Request& request, FinishReason reason, absl::Status status);
  void ForgetWaits(const Request& request);
  void Publish(bool busy);

  // ---- coordinator_step.cc: one step of the ranks
  // The step that the ranks have. Between two turns of the loop there is one only if it is a
  // successor: it was started while the step before it ran.
  struct RunningStep {
    std::shared_ptr<const StepPlan> plan;
    SteadyTime begun;    // when planning began; of a successor: when the step before it ended
    SteadyTime started;  // when the ranks got it; of a successor: as `begun`
    // Seconds for which the ranks were idle before it. 0 for a successor: see RankPort::pause.
    double host = 0;
    bool is_successor = false;
  };
  bool RunStep();
  std::optional<bool> BeginStep();
  StepPlan PlanNext();
  std::optional<StepPlan> PlanSuspect(SequenceId id, std::vector<StreamRows> streams) const;
  StepPlan PlanOthers(std::span<const StreamRows> streams);
  std::shared_ptr<const StepPlan> TakePlan(absl::FunctionRef<std::optional<StepPlan>()> make);
  std::shared_ptr<const StepPlan> StartSuccessor(const StepPlan& running);
  bool NextStepDepends(const StepPlan& running) const;
  bool UseStep(const StepPlan& plan, const std::vector<RankResult>& results, double seconds);
  std::shared_ptr<const StepPlan> WithoutThoseThatLeft(std::shared_ptr<const StepPlan> plan,
                                                       std::vector<RankResult>& results) const;
  void KeepPrefixes();
  void DropSuccessor();
  bool FailStep(const absl::Status& cause, std::initializer_list<const StepPlan*> plans,
                std::span<const int32_t> lost = {});
  bool EndIfDown(const absl::Status& cause);
  void TendRanks();
  void SetStep(std::optional<RunningStep> step);
  void ReleaseLeft();

  const CoordinatorOptions options_;
  ModePolicy modes_ = options_.modes;  // with the links of the ring that formed last
  RankPort& ranks_;
  EngineMetrics& metrics_;
  const Clock& clock_;

  CommandQueue commands_;
  PlanQueue plans_;
  SnapshotBoard board_;
  std::atomic<bool> stop_{false};

  Serving serving_;
  Ledger ledger_;
  PolicyChooser policies_;
  PageNeeds needs_;
  TenantQuota quota_;
  StartFinder finder_;
  SequenceMaker sequences_;
  PrefixWaits prefix_waits_;
  RestoreWaits restore_waits_;
  RequestStarter starter_;
  PageGrowth growth_;
  Keepers keepers_;
  RestoreChecks checks_;
  PlanAnswers answers_;
  StepRecovery recovery_;
  StepAccount account_;
  ResultDelivery delivery_;

  std::optional<RunningStep> step_;
  bool mending_ = false;      // the ranks were not up at the last turn
  bool others_turn_ = false;  // the last step was a suspect's: see StepRecovery
  // When the last step ended. Absent: the ranks had nothing to do since.
  std::optional<SteadyTime> ranks_idle_since_;
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_COORDINATOR_H_
